"""Routes of the refit screen: start one in the background, look at it, keep it or go back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response

from protofission.triage.workbench.background_refit import BackgroundRefit
from protofission.triage.workbench.keeping import go_back, keep_refit
from protofission.web.label.answers import Body, as_conflict, check_keys, json_answer
from protofission.web.label.changing_routes import done
from protofission.web.label.desk import Desk
from protofission.web.sentences import AnswerError


def refit_routes(desk: Desk, job: BackgroundRefit) -> APIRouter:
    """All routes of the refit screen."""
    router = APIRouter(prefix="/api/refit")

    def screen(status: int = 200) -> Response:
        return json_answer({**refit_status(job), "result": job.result()}, status)

    @router.get("")
    def look() -> Response:
        job.prepare()  # who looks may start one: it waits for less then
        return screen()

    @router.post("")
    def start(body: Body) -> Response:
        check_keys(body)
        with as_conflict():
            job.start()
        return screen(202)

    @router.post("/stop")
    def stop(body: Body) -> Response:
        check_keys(body)
        job.cancel()
        return screen()

    @router.post("/keep")
    def keep(body: Body) -> Response:
        check_keys(body)
        if not job.status().waiting:
            raise AnswerError(409, "No refit waits to be kept: refit first.")
        with desk.versions:
            return done(desk, keep_refit(desk.workbench))

    @router.post("/revert")
    def revert(body: Body) -> Response:
        check_keys(body)
        with desk.versions, as_conflict():
            if job.status().waiting:
                job.drop()
                return done(desk, desk.last_action)
            return done(desk, go_back(desk.workbench))

    return router


def refit_status(job: BackgroundRefit) -> dict[str, Any]:
    """Progress of the refit in the background, as JSON values."""
    return asdict(job.status())

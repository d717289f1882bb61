"""The parts of the workbench's server: its desk, its pictures, its work in the background."""

from __future__ import annotations

from pathlib import Path

from protofission.triage.workbench.background_refit import BackgroundRefit
from protofission.triage.workbench.keeping import follow_version
from protofission.triage.workbench.log import WORKBENCH_FOLDER
from protofission.triage.workbench.workbench import Workbench
from protofission.web.asgi import Application
from protofission.web.label.answers import LastActionHeader
from protofission.web.label.desk import Desk
from protofission.web.label.export_routes import export_routes
from protofission.web.label.pictures import Pictures
from protofission.web.label.refit_routes import refit_routes, refit_status
from protofission.web.label.routes import build_app

THUMBNAIL_FILE = "thumbnails.sqlite"


class ServerParts:
    """All that the server of one workbench holds, and its application behind the door.

    Args:
        labeled: the folder of the labeled images, if it was moved; `pool` likewise.
    """

    def __init__(
        self, workbench: Workbench, labeled: Path | None = None, pool: Path | None = None
    ) -> None:
        follow_version(workbench)
        self.desk = Desk(workbench)
        self.desk.now()  # read the features before anybody waits for them
        material = workbench.material
        self.pictures = Pictures(
            material.file,
            self.desk.names.__getitem__,
            material.model / WORKBENCH_FOLDER / THUMBNAIL_FILE,
        )
        self.refit = BackgroundRefit(material.model, labeled, pool)
        self.desk.refit_status = lambda: refit_status(self.refit)
        routers = (export_routes(self.desk), refit_routes(self.desk, self.refit))
        self.app: Application = LastActionHeader(
            build_app(self.desk, self.pictures, routers), lambda: self.desk.last_action
        )

    def close(self) -> None:
        """End the work in the background, and close files."""
        self.refit.cancel()
        self.pictures.close()

"""The parts of the workbench's server: its desk, its pictures, its work in the background."""

from __future__ import annotations

from protofission.triage.workbench.log import WORKBENCH_FOLDER
from protofission.triage.workbench.workbench import Workbench
from protofission.web.asgi import Application
from protofission.web.label.answers import LastActionHeader
from protofission.web.label.desk import Desk
from protofission.web.label.export_routes import export_routes
from protofission.web.label.pictures import Pictures
from protofission.web.label.routes import build_app

THUMBNAIL_FILE = "thumbnails.sqlite"


class ServerParts:
    """All that the server of one workbench holds, and its application behind the door."""

    def __init__(self, workbench: Workbench) -> None:
        self.desk = Desk(workbench)
        self.desk.now()  # read the features before anybody waits for them
        material = workbench.material
        self.pictures = Pictures(
            material.file,
            self.desk.names.__getitem__,
            material.model / WORKBENCH_FOLDER / THUMBNAIL_FILE,
        )
        self.app: Application = LastActionHeader(
            build_app(self.desk, self.pictures, [export_routes(self.desk)]),
            lambda: self.desk.last_action,
        )

    def stop(self) -> None:
        """Ask work in the background to end; returns at once."""

    def close(self) -> None:
        """End the work in the background, and close files."""
        self.stop()
        self.pictures.close()

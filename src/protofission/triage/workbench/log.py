"""The log of actions: an SQLite file that only grows, beside the model.

An action is on the disk when `append` returns. Nothing heavy is imported here.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from protofission.core.errors import InputError, printable, require
from protofission.system.locks import LOCK_FILE, open_locked
from protofission.system.plain_files import open_plain
from protofission.system.posix import NO_LINK
from protofission.triage.workbench.actions import Action, action_text, parse_action

WORKBENCH_FOLDER = "workbench"
"""The folder of a model that holds what a person did."""
LOG_FILE = "log.sqlite"
APPLICATION = 0x50464C47
"""The number by which SQLite files of this kind are known."""
LOG_VERSION = 1
LONGEST_CONTENT = 2**25
"""Most bytes of an action in the log."""
SCHEMA = (
    "CREATE TABLE actions (id INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, "
    "content TEXT NOT NULL) STRICT",
    "CREATE TRIGGER only_grows BEFORE UPDATE ON actions "
    "BEGIN SELECT raise(ABORT, 'the log only grows'); END",
    "CREATE TRIGGER nothing_leaves BEFORE DELETE ON actions "
    "BEGIN SELECT raise(ABORT, 'the log only grows'); END",
)
REMEDY = "put a copy of it back, or move it away to begin with no actions"

_OF_THE_DISK = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
)


class LogEntry(NamedTuple):
    """An action in the log."""

    id: int
    """From 1 on, without gaps."""
    time: str
    """UTC, as ISO 8601."""
    action: Action


class ActionLog:
    """The log of a model, for one process at a time.

    Args:
        model: the folder of the model; the log is in `workbench/log.sqlite` in it.
        read_only: read what is there while another process may append to it.

    Raises:
        InputError: another process has the log, or the file is foreign, damaged or cannot be used.
    """

    def __init__(self, model: Path, *, read_only: bool = False) -> None:
        self.folder = model / WORKBENCH_FOLDER
        self.path = self.folder / LOG_FILE
        self.read_only = read_only
        self._shown = printable(str(self.path))
        self._lock: FileIO | None = None
        self._connection: sqlite3.Connection | None = None
        if not read_only:
            self._lock = _lock_folder(self.folder, model)
        try:
            self.last_id = 0
            if self.path.exists() or not read_only:
                self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file and let others in."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> ActionLog:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def append(self, action: Action) -> int:
        """Add an action and return its id; it is on the disk then.

        Raises:
            InputError: the disk is full or fails, or the log is gone; it is as it was before.
        """
        require(not self.read_only, f"{self._shown} was opened to be read only.")
        self.check_place()
        kind, content = action_text(action)
        require(
            len(content) <= LONGEST_CONTENT,
            f"The action takes {len(content):,} bytes: select fewer images, {LONGEST_CONTENT:,} "
            "bytes are the most.",
        )
        number, now = self.last_id + 1, datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            if self._connection is None:
                self._reopen()
            self._insert(number, now, kind, content)
        except sqlite3.Error as error:
            if not self._was_kept(number):
                raise InputError(
                    f"{self._shown} cannot be written ({error}), and the action was not kept: "
                    "make room on the disk, then do it again."
                ) from None
        self.last_id = number
        return number

    def check_place(self) -> None:
        """Refuse to write where the log was moved or deleted: what is kept would be lost with it.

        SQLite does not notice: it goes on in a file that has no name any more.
        """
        require(self._lock is not None, f"{self._shown} was closed: open the model again.")
        assert self._lock is not None
        try:
            os.stat(self.path)
            lock = os.stat(self.folder / LOCK_FILE)
            if not os.path.samestat(lock, os.fstat(self._lock.fileno())):
                raise FileNotFoundError(self.path)
        except OSError:
            raise InputError(
                f"{self._shown} was moved or deleted, and nothing was kept: put the model back, or "
                "stop this workbench and start it where the model is now."
            ) from None

    def actions(self) -> Iterator[tuple[int, Action]]:
        """All actions with their ids, from the first on."""
        return ((entry.id, entry.action) for entry in self.entries())

    def entries(self) -> Iterator[LogEntry]:
        """All actions with their ids and times, from the first on.

        Raises:
            InputError: one is missing, or is not as this program writes it.
        """
        if self._connection is None:
            return
        with self._refusals():
            for place, row in enumerate(
                self._connection.execute("SELECT id, time, kind, content FROM actions ORDER BY id"),
                1,
            ):
                number, time, kind, content = row
                require(number == place, f"action {place} is missing.")
                try:
                    action = parse_action(kind, content)
                except InputError as wrong:
                    raise InputError(f"action {place}: {str(wrong).rstrip('.')}") from None
                yield LogEntry(number, time, action)

    def _insert(self, number: int, time: str, kind: str, content: str) -> None:
        """Write one action in a transaction of its own."""
        connection = self._connection
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(
                "INSERT INTO actions VALUES (?, ?, ?, ?)", (number, time, kind, content)
            )
            connection.execute("COMMIT")
        except BaseException:  # an interrupt too: the next action begins anew
            with suppress(sqlite3.Error):
                connection.rollback()
            raise

    def _was_kept(self, number: int) -> bool:
        """Whether an action is in the file after all, though writing it failed at the end.

        The file is opened anew: the log is what the disk has.
        """
        try:
            self._reopen()
            return self._last() == number
        except (sqlite3.Error, InputError):
            return False

    def _reopen(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        self._connection = self._connect()

    def _last(self) -> int:
        assert self._connection is not None
        found = self._connection.execute("SELECT max(id) FROM actions").fetchone()[0]
        return int(found or 0)

    def _open(self) -> None:
        with self._refusals():
            for name in (LOG_FILE, f"{LOG_FILE}-wal", f"{LOG_FILE}-shm"):
                _check_plain(self.folder / name)
            connection = self._connection = self._connect()
            if _is_empty(connection):
                if self.read_only:  # a process was killed, or is about to make the table
                    connection.close()
                    self._connection = None
                    return
                _make_table(connection)
            _check_table(connection)
            self.last_id = self._last()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=5, isolation_level=None, check_same_thread=False
        )
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * LONGEST_CONTENT)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")
        if self.read_only:
            connection.execute("PRAGMA query_only=ON")
        return connection

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Say of which file a refusal is, and the remedy."""
        try:
            yield
        except sqlite3.Error as error:
            why = str(error)
            if (error.sqlite_errorcode & 0xFF) in _OF_THE_DISK:
                raise InputError(
                    f"{self._shown} cannot be written ({why}): make room on the disk, or copy the "
                    "model to another place."
                ) from None
        except InputError as error:
            why = str(error).rstrip(".")
        except OSError as error:
            why = error.strerror or str(error)
        else:
            return
        raise InputError(f"{self._shown} cannot be used as a log ({why}): {REMEDY}.") from None


def _lock_folder(folder: Path, model: Path) -> FileIO:
    shown = printable(str(model))
    try:
        return open_locked(folder / LOCK_FILE)
    except BlockingIOError:
        raise InputError(
            f"{shown} is open in another workbench: close that one first, one person works on a "
            "model at a time."
        ) from None
    except OSError as error:
        raise InputError(
            f"{printable(str(folder))} cannot be written ({error.strerror}): make room, or copy "
            "the model to another place."
        ) from None


def _check_plain(path: Path) -> None:
    """Refuse a link, a pipe or a device in the place of a file; one that is missing is fine."""
    with suppress(FileNotFoundError):
        open_plain(path, os.O_RDONLY | NO_LINK).close()


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Whether a file has nothing in it yet."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return not tables and not _number(connection, "application_id")


def _make_table(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id={APPLICATION}")
    connection.execute(f"PRAGMA user_version={LOG_VERSION}")
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute("COMMIT")


def _check_table(connection: sqlite3.Connection) -> None:
    """Refuse a file that is not as this program writes it."""
    require(_number(connection, "application_id") == APPLICATION, "it is of another program.")
    version = _number(connection, "user_version")
    require(
        version == LOG_VERSION,
        f"it is of version {version}, and this protofission reads {LOG_VERSION}.",
    )
    found = connection.execute("SELECT sql FROM sqlite_master ORDER BY rowid").fetchall()
    require([sql for (sql,) in found] == list(SCHEMA), "its tables are others.")
    sound = connection.execute("PRAGMA integrity_check(1)").fetchall()
    require(sound == [("ok",)], "it is damaged.")
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    require(mode == "wal", f"its journal is of the mode {mode}.")

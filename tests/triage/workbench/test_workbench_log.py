"""The log of actions: kept whatever happens, and refused in a sentence where it is not ours."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from protofission.core.errors import InputError
from protofission.triage.workbench.actions import AddClass, Label, Undo, action_text
from protofission.triage.workbench.log import APPLICATION, SCHEMA, ActionLog
from protofission.triage.workbench.workbench import Workbench
from workbench_stubs import StubMaterial, random_log

TESTS = Path(__file__).parents[2]


def file_of(model):
    return model / "workbench" / "log.sqlite"


def written(model, actions):
    with ActionLog(model) as log:
        for _, action in actions:
            log.append(action)
    return file_of(model)


def test_actions_come_back_in_order_with_ids_and_times(tmp_path):
    actions = random_log(0, 60)
    with ActionLog(tmp_path) as log:
        assert [log.append(action) for _, action in actions] == [number for number, _ in actions]
        assert log.last_id == 60
        assert list(log.actions()) == actions
    with ActionLog(tmp_path) as log:
        assert log.last_id == 60
        assert list(log.actions()) == actions
        times = [entry.time for entry in log.entries()]
    assert times == sorted(times)
    assert times[0].endswith("+00:00")
    assert sorted(path.name for path in (tmp_path / "workbench").iterdir()) == [
        ".lock",
        "log.sqlite",
    ]


def test_an_append_is_durable_before_it_returns(tmp_path):
    with ActionLog(tmp_path) as log:
        assert log._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert log._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        log.append(AddClass("fir"))
        shutil.copytree(tmp_path / "workbench", tmp_path / "copy" / "workbench")  # as after a crash
        with ActionLog(tmp_path / "copy") as other:
            assert list(other.actions()) == [(1, AddClass("fir"))]


def test_the_table_only_grows(tmp_path):
    path = written(tmp_path, random_log(0, 5))
    with sqlite3.connect(path) as connection:
        for change in ("DELETE FROM actions", "UPDATE actions SET kind = 'skip'"):
            with pytest.raises(sqlite3.IntegrityError, match="only grows"):
                connection.execute(change)
    connection.close()


def test_a_second_workbench_gets_a_sentence_and_a_reader_does_not(tmp_path):
    with ActionLog(tmp_path) as log:
        log.append(AddClass("fir"))
        with pytest.raises(InputError, match=r"is open in another workbench: close that one first"):
            ActionLog(tmp_path)
        with ActionLog(tmp_path, read_only=True) as reader:
            assert list(reader.actions()) == [(1, AddClass("fir"))]
            with pytest.raises(InputError, match="read only"):
                reader.append(AddClass("oak"))
        log.append(AddClass("elm"))
    with ActionLog(tmp_path) as log:
        assert log.last_id == 2


def test_a_reader_writes_nothing_where_there_is_no_log(tmp_path):
    with ActionLog(tmp_path, read_only=True) as log:
        assert list(log.actions()) == []
    assert list(tmp_path.iterdir()) == []


def test_fifty_kills_lose_at_most_the_action_in_flight(tmp_path):
    done = subprocess.run(
        [sys.executable, str(TESTS / "workbench_lives.py"), str(tmp_path), "50"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["per_life"]) == 50
    assert min(found["per_life"]) >= 1
    assert found["kept"] == sum(found["per_life"]) + found["in_flight"]
    assert found["in_flight"] >= 1  # some kills came between the disk and the acknowledgement
    assert found["heavy"] == []


def full(connection):
    """Leave no room in the file of a connection, as SQLite meets it on a full disk."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages}")


def test_a_full_disk_is_a_sentence_and_the_next_action_is_kept_when_there_is_room(
    tmp_path, monkeypatch
):
    bench = Workbench(StubMaterial(), ActionLog(tmp_path))
    connect = ActionLog._connect

    def connect_full(self):
        connection = connect(self)
        full(connection)
        return connection

    monkeypatch.setattr(ActionLog, "_connect", connect_full)
    full(bench._log._connection)
    acknowledged = []

    def fill():
        for number in range(3000):
            acknowledged.append(bench.do(Label((number % 60,), number % 3, "grid")))

    with pytest.raises(InputError, match=r"is full.*was not kept: make room on the disk"):
        fill()
    kept, last = bench.state, acknowledged[-1]
    assert kept.last_id == last
    with pytest.raises(InputError, match="was not kept"):
        bench.do(Label(tuple(range(60)), 0, "grid"))
    assert bench.state is kept
    bench._log._connection.execute("PRAGMA max_page_count=100000")
    monkeypatch.undo()
    again = bench.do(AddClass("oak"))
    assert again == last + 1
    bench.close()
    with Workbench(StubMaterial(), ActionLog(tmp_path)) as bench:
        assert bench.state.last_id == again
        assert bench.state.class_named("oak")
        bench.undo()
        assert bench.state.content()["cells"] == kept.content()["cells"]


ROOM = """
import resource, sys
from pathlib import Path
from workbench_stubs import StubMaterial
from protofission.core.errors import InputError
from protofission.triage.workbench.actions import Label
from protofission.triage.workbench.log import ActionLog
from protofission.triage.workbench.workbench import Workbench

bench = Workbench(StubMaterial(), ActionLog(Path(sys.argv[1])))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
done, sentence = 0, ""
for number in range(3000):
    try:
        done = bench.do(Label((number % 60,), number % 3, "grid"))
    except InputError as error:
        sentence = str(error)
        break
refused = bench.state.last_id
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
print(done, refused, bench.do(Label((0,), 1, "grid")), sentence, sep="|")
bench.close()
"""


def test_a_file_that_cannot_grow_loses_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ROOM, str(tmp_path), "60000"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last, refused, after, sentence = done.stdout.strip().split("|")
    assert int(last) == int(refused) == int(after) - 1 > 0
    assert "cannot be written" in sentence
    assert sentence.endswith("make room on the disk, then do it again.")
    with ActionLog(tmp_path) as log:
        assert [number for number, _ in log.actions()] == list(range(1, int(after) + 1))


def test_a_disk_that_is_full_from_the_start_is_a_sentence_with_its_remedy(tmp_path, monkeypatch):
    connect = ActionLog._connect

    def connect_full(self):
        connection = connect(self)
        connection.execute("PRAGMA max_page_count=1")
        return connection

    monkeypatch.setattr(ActionLog, "_connect", connect_full)
    with pytest.raises(InputError, match=r"\(database or disk is full\): make room on the disk"):
        ActionLog(tmp_path)
    monkeypatch.undo()
    with ActionLog(tmp_path) as log:
        assert log.append(AddClass("fir")) == 1


def test_a_write_that_failed_after_it_was_kept_counts_as_kept(tmp_path, monkeypatch):
    """The log is what the disk has: else an id would stand for two actions."""
    log, insert = ActionLog(tmp_path), ActionLog._insert

    def kept_and_failed(self, *row):
        insert(self, *row)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(ActionLog, "_insert", kept_and_failed)
    assert log.append(AddClass("fir")) == 1
    monkeypatch.undo()
    assert log.append(AddClass("oak")) == 2
    assert list(log.actions()) == [(1, AddClass("fir")), (2, AddClass("oak"))]
    log.close()


def change(path, *statements):
    connection = sqlite3.connect(path)
    for name in ("only_grows", "nothing_leaves"):
        connection.execute(f"DROP TRIGGER IF EXISTS {name}")
    for statement in statements:
        connection.execute(statement)
    for sql in SCHEMA[1:]:
        connection.execute(sql)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE actions SET kind = 'explode' WHERE id = 3", r"action 3: Unknown action 'explode'"),
        ("UPDATE actions SET content = '{' WHERE id = 3", "action 3: its content is no JSON"),
        ("UPDATE actions SET content = '[1]' WHERE id = 3", "action 3: it must be an object"),
        ("UPDATE actions SET content = ' ' || content WHERE id = 3", "not as it was written"),
        ("DELETE FROM actions WHERE id = 3", "action 3 is missing"),
        ("UPDATE actions SET id = 99 WHERE id = 5", "action 5 is missing"),
        ("PRAGMA application_id = 7", "it is of another program"),
        ("PRAGMA user_version = 2", "it is of version 2, and this protofission reads 1"),
        ("CREATE TABLE more (x)", "its tables are others"),
        ("CREATE VIEW more AS SELECT 1", "its tables are others"),
    ],
)
def test_a_changed_log_is_one_sentence_that_names_the_file(tmp_path, statement, reason):
    path = written(tmp_path, random_log(1, 5))
    change(path, statement)
    before = path.read_bytes()
    with pytest.raises(InputError, match=reason) as caught:
        Workbench(StubMaterial(), ActionLog(tmp_path))
    assert str(caught.value).startswith(f"{path} cannot be used as a log (")
    assert str(caught.value).endswith("or move it away to begin with no actions.")
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (Label((60,), 0, "grid"), "action 1: There is no image 60"),
        (Label((0,), 7, "grid"), "action 1: There is no class 7"),
        (Undo(5), "action 1: There is no action that can be undone"),
    ],
)
def test_a_log_of_another_model_is_one_sentence(tmp_path, action, reason):
    path = written(tmp_path, [(1, action)])
    log = ActionLog(tmp_path)
    with pytest.raises(InputError, match=reason) as caught:
        Workbench(StubMaterial(), log)
    assert str(caught.value).startswith(f"{path} does not fit the model (")
    log.close()


@pytest.mark.parametrize("content", [b"no database" * 100, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_garbage_is_one_sentence_and_stays_as_it_is(tmp_path, content):
    path = file_of(tmp_path)
    path.parent.mkdir()
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(InputError, match="cannot be used as a log"):
            ActionLog(tmp_path, read_only=read_only)
    assert path.read_bytes() == content


def test_a_damaged_page_is_one_sentence(tmp_path):
    path = written(tmp_path, random_log(2, 300))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x07" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be used as a log"):
        ActionLog(tmp_path)


def test_damage_that_no_action_shows_is_found(tmp_path):
    path = written(tmp_path, random_log(2, 30))
    content = bytearray(path.read_bytes())
    pages = int.from_bytes(content[28:32], "big")
    content[28:32] = (pages + 1).to_bytes(4, "big")
    path.write_bytes(content + bytes(4096))  # a page that is nobody's
    with pytest.raises(InputError, match=r"cannot be used as a log \(it is damaged\)"):
        ActionLog(tmp_path)


class Interrupted:
    """A connection that is interrupted before it commits."""

    def __init__(self, connection):
        self.connection = connection

    def execute(self, text, *values):
        if text == "COMMIT":
            raise KeyboardInterrupt
        return self.connection.execute(text, *values)

    def rollback(self):
        self.connection.rollback()


def test_an_interrupted_action_is_not_kept_and_the_next_one_is(tmp_path):
    with ActionLog(tmp_path) as log:
        real = log._connection
        log._connection = Interrupted(real)
        with pytest.raises(KeyboardInterrupt):
            log.append(AddClass("fir"))
        log._connection = real
        assert log.append(AddClass("oak")) == 1
        assert list(log.actions()) == [(1, AddClass("oak"))]


def test_the_log_of_another_program_is_refused(tmp_path):
    path = file_of(tmp_path)
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    with pytest.raises(InputError, match="it is of another program"):
        ActionLog(tmp_path)


def test_a_file_that_a_kill_left_empty_is_begun_anew(tmp_path):
    path = file_of(tmp_path)
    path.parent.mkdir()
    path.touch()
    with ActionLog(tmp_path, read_only=True) as log:
        assert list(log.actions()) == []
    with ActionLog(tmp_path) as log:
        assert log.append(AddClass("fir")) == 1
        assert log._connection.execute("PRAGMA application_id").fetchone() == (APPLICATION,)


def test_links_and_pipes_are_refused(tmp_path):
    path = file_of(tmp_path)
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="it is a link, not a plain file"):
        ActionLog(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="it is a pipe, not a plain file"):
        ActionLog(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "workbench").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        ActionLog(tmp_path)


def test_an_action_that_is_too_long_is_refused_before_it_is_written(tmp_path, monkeypatch):
    with ActionLog(tmp_path) as log:
        monkeypatch.setattr("protofission.triage.workbench.log.LONGEST_CONTENT", 100)
        with pytest.raises(InputError, match="select fewer images"):
            log.append(Label(tuple(range(100)), 0, "grid"))
        assert list(log.actions()) == []


def test_a_closed_log_says_so(tmp_path):
    log = ActionLog(tmp_path)
    log.close()
    with pytest.raises(InputError, match="was closed"):
        log.append(AddClass("fir"))


def test_the_text_of_an_action_is_json_of_its_fields():
    assert action_text(Label((3, 1), None, "map")) == (
        "label",
        '{"images":[3,1],"class_id":null,"source":"map"}',
    )

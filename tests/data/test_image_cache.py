"""The cache of decoded images: used while nothing has changed, made again when anything has."""

import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pictures import encoded, noise, picture, write
from protofission.core.errors import InputError
from protofission.data.image_sets import ImageSet
from protofission.data.readers import decode as decoding
from protofission.data.readers import image_cache as caching
from protofission.data.readers import resumable_decoding
from protofission.data.readers.image_folders import load_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in range(4):
        picture(tmp_path / "data" / f"class {seed % 2}" / f"{seed}.png", seed)
    write(tmp_path / "data" / "class 0" / "bad.png", b"bad")
    return tmp_path / "data"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def load(folder: Path, store: Path, size: int = 8, channels: int = 3) -> tuple[ImageSet, bool]:
    images, report = load_folder(folder, size, channels, store)
    assert report.left_out == {"class 0/bad.png": report.left_out["class 0/bad.png"]}
    return images, report.from_cache


def entries(store: Path) -> list[Path]:
    return sorted(path for path in store.iterdir() if not path.name.startswith("."))


def test_images_are_decoded_once(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, cached = load(folder, store)
    assert not cached
    monkeypatch.setattr(resumable_decoding, "decode", pytest.fail)
    second, cached = load(folder, store)
    assert cached
    assert np.array_equal(first.pixels, second.pixels)
    assert first.paths == second.paths
    assert first.labels.tolist() == second.labels.tolist()


def test_an_entry_is_an_array_and_a_manifest(folder: Path, store: Path) -> None:
    images, _ = load(folder, store)
    (home,) = entries(store)
    assert {path.name for path in home.iterdir()} == {".lock", "pixels.npy", "manifest.json"}
    assert np.array_equal(np.load(home / "pixels.npy"), images.pixels)
    manifest = json.loads((home / "manifest.json").read_text())
    status = (folder / "class 0" / "0.png").stat()
    assert manifest["entries"][0] == ["class 0/0.png", status.st_size, status.st_mtime_ns]
    assert manifest["settings"]["height"] == 8


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda data: picture(data / "class 0" / "0.png", 50),
    "time": lambda data: os.utime(data / "class 0" / "0.png", ns=(1, 1)),
    "added": lambda data: picture(data / "class 1" / "9.png", 9),
    "removed": lambda data: (data / "class 1" / "3.png").unlink(),
    "renamed": lambda data: (data / "class 1" / "3.png").rename(data / "class 1" / "4.png"),
    "moved": lambda data: (data / "class 1" / "3.png").rename(data / "class 0" / "3.png"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_the_files_is_seen(folder: Path, store: Path, change: str) -> None:
    load(folder, store)
    CHANGES[change](folder)
    changed, cached = load(folder, store)
    assert not cached
    fresh, _ = load(folder, store.with_name("other"))
    assert np.array_equal(changed.pixels, fresh.pixels)
    assert (changed.paths, changed.labels.tolist()) == (fresh.paths, fresh.labels.tolist())
    assert load(folder, store)[1]


def test_other_settings_are_another_entry_and_both_stay(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(folder, store)
    assert load(folder, store, 7)[0].pixels.shape[2:] == (7, 7)
    assert load(folder, store, 8, 1)[0].pixels.shape[1] == 1
    assert len(entries(store)) == 3
    assert [load(folder, store, *s)[1] for s in ((8, 3), (7, 3), (8, 1))] == [True] * 3
    monkeypatch.setattr(decoding.PIL, "__version__", "99")
    assert not load(folder, store)[1]


def test_labels_are_not_cached(tmp_path: Path, store: Path) -> None:
    picture(tmp_path / "a.png", 1)
    for label in ("cat", "dog"):
        path = write(tmp_path / "list.csv", f"path,label\na.png,{label}\n".encode())
        images, report = load_folder(path, 8, cache=store)
        assert images.class_names == (label,)
    assert report.from_cache


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda home: flip(home / "pixels.npy", -100),
    "a flipped bit in the header": lambda home: flip(home / "pixels.npy", 30),
    "a cut array": lambda home: cut(home / "pixels.npy"),
    "no array": lambda home: (home / "pixels.npy").unlink(),
    "an empty array": lambda home: (home / "pixels.npy").write_bytes(b""),
    "another array": lambda home: np.save(home / "pixels.npy", np.zeros(4)),
    "a pickle": lambda home: np.save(home / "pixels.npy", np.array([print]), allow_pickle=True),
    "a cut manifest": lambda home: cut(home / "manifest.json"),
    "no manifest": lambda home: (home / "manifest.json").unlink(),
    "an empty manifest": lambda home: (home / "manifest.json").write_bytes(b""),
    "a list": lambda home: (home / "manifest.json").write_text("[]"),
    "null": lambda home: (home / "manifest.json").write_text("null"),
    "foreign bytes": lambda home: (home / "manifest.json").write_bytes(b"\xff\xfe"),
    "no outcomes": lambda home: edit(home, outcomes=[]),
    "odd outcomes": lambda home: edit(home, outcomes=[1, 2]),
    "another version": lambda home: edit(home, version=0),
    "a file in its place": lambda home: (shutil.rmtree(home), home.write_bytes(b"")),
}


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def edit(home: Path, **values: object) -> None:
    path = home / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_made_anew(folder: Path, store: Path, damage: str) -> None:
    expected = np.array(load(folder, store)[0].pixels)
    (home,) = entries(store)
    DAMAGES[damage](home)
    images, cached = load(folder, store)
    assert not cached
    assert np.array_equal(images.pixels, expected)
    assert load(folder, store)[1]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """200 images, some of which cannot be read: three blocks and a part of one."""
    for seed in range(200):
        picture(tmp_path / "many" / f"{seed:03}.png", seed)
    for place in (5, 70, 190):
        write(tmp_path / "many" / f"{place:03}.png", b"bad")
    return tmp_path / "many"


def made_of(store: Path) -> dict[str, bytes]:
    (home,) = entries(store)
    return {path.name: path.read_bytes() for path in home.iterdir()}


def interrupted(folder: Path, store: Path, at: int) -> Path:
    """The entry of an attempt that was stopped at that image."""

    def interrupt(done: int, total: int) -> None:
        if done == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_folder(folder, 8, cache=store, progress=interrupt)
    (home,) = entries(store)
    assert not (home / "manifest.json").exists()
    return home


def places_decoded(folder: Path, store: Path) -> list[int]:
    """The calls of progress on the way to a finished entry."""
    seen: list[int] = []
    load_folder(folder, 8, cache=store, progress=lambda done, total: seen.append(done))
    return seen


SPOILT: dict[str, tuple[Callable[[Path], object], int]] = {
    "nothing": (lambda home: None, 128),
    "a cut journal": (lambda home: cut(home / "blocks.jsonl"), 64),
    "no journal": (lambda home: (home / "blocks.jsonl").unlink(), 0),
    "a folder for a journal": (
        lambda home: ((home / "blocks.jsonl").unlink(), (home / "blocks.jsonl").mkdir()),
        0,
    ),
    "a pipe for a journal": (
        lambda home: ((home / "blocks.jsonl").unlink(), os.mkfifo(home / "blocks.jsonl")),
        0,
    ),
    "other lines": (lambda home: (home / "blocks.jsonl").write_text("[]\n[[1]]\n{"), 0),
    "deep lines": (lambda home: (home / "blocks.jsonl").write_text("[" * 10**5), 0),
    "a flipped bit in the first block": (lambda home: flip(home / "pixels.npy", 500), 0),
    "a flipped bit in the second": (lambda home: flip(home / "pixels.npy", 128 + 100 * 192), 64),
    "a flipped bit in the header": (lambda home: flip(home / "pixels.npy", 30), 128),
    "cut pixels": (lambda home: os.truncate(home / "pixels.npy", 128 + 100 * 192), 64),
    "no pixels": (lambda home: (home / "pixels.npy").unlink(), 0),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_an_interrupted_decoding_goes_on_with_what_is_sound(
    many: Path, store: Path, spoilt: str
) -> None:
    load_folder(many, 8, cache=store.with_name("whole"))
    home = interrupted(many, store, 150)
    spoil, kept = SPOILT[spoilt]
    spoil(home)
    seen = places_decoded(many, store)
    assert seen == list(range(kept or 1, 201))  # the first is what was there
    assert made_of(store) == made_of(store.with_name("whole"))


LIVES = """
import os, resource, signal, sys, time
from pathlib import Path
from protofission.data.readers.image_cache import load_decoded
from protofission.data.readers.decode import Decoding
from protofission.data.readers.file_listing import content_of, list_files
from protofission.core.errors import InputError
folder, store = map(Path, sys.argv[1:])
files = list_files(folder).files
counts = {}

def begin(kill_at=None, room=None, after=None):
    own, theirs = os.pipe()
    child = os.fork()
    if child:
        os.close(theirs)
        counts[child] = own
        return child
    def read(place):
        os.write(theirs, b"x")
        if place == kill_at:
            if after is not None:
                os.read(after, 1)
            os.kill(os.getpid(), signal.SIGKILL)
        return content_of(folder / files[place].path, 10**6)
    if room is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        load_decoded(str(folder), files, read, Decoding(8, 8), store, workers=1)
    except InputError as error:
        print(error, flush=True)
        os._exit(2)
    os._exit(0)

def end(child):
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(len(os.read(counts[child], 10**6)), status, flush=True)

def waits(child):
    return any("->" in line and f" {child} " in line for line in open("/proc/locks"))

for kill_at in (70, 75):
    end(begin(kill_at))
end(begin(room=128 + 150 * 192))
go, gone = os.pipe()
first = begin(180, after=go)
os.read(counts[first], 1)  # it is at work
second = begin()
while not waits(second):
    time.sleep(0.001)
os.write(gone, b"x")
end(first)
end(second)
"""


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="who waits is seen in /proc/locks")
def test_killed_again_and_again_by_turns_and_at_once_it_ends_in_the_same_bytes(
    many: Path, store: Path
) -> None:
    load_folder(many, 8, cache=store.with_name("whole"))
    command = [sys.executable, "-c", LIVES, str(many), str(store)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = done.stdout.splitlines()
    # Images that a life read, from the end of the last whole block on, and how it ended: twice
    # killed, once on a full disk, then two at once, of which the second waits and goes on.
    assert lines[:2] == ["71 -9", "12 -9"]
    assert lines[2].startswith("Cannot write decoded images")
    assert "(File too large): free some space" in lines[2]
    read, code = map(int, lines[3].split())
    assert code == 2
    assert 64 < read < 136  # two blocks are there
    assert lines[4:] == ["52 -9", "72 0"]
    assert made_of(store) == made_of(store.with_name("whole"))


def test_what_killed_processes_left_is_removed_in_time(folder: Path, store: Path) -> None:
    load(folder, store)
    (old,) = entries(store)
    for name in (".making-dead", "dead-half", "alive-half"):
        write(store / name / "pixels.npy", b"x")
    picture(folder / "class 0" / "0.png", 60)
    load(folder, store)
    assert old.exists()  # another process may be training on it
    past = time.time() - 30 * caching.DAY
    for path in (old, store / ".making-dead", store / "dead-half"):
        for file in (*path.iterdir(), path):
            os.utime(file, (past, past))
    picture(folder / "class 0" / "0.png", 61)
    load(folder, store)
    left = {path.name for path in store.iterdir()}
    assert not left & {old.name, ".making-dead", "dead-half"}
    assert "alive-half" in left


READ = """
import sys, time
from pathlib import Path
from protofission.data.readers.image_cache import load_decoded
from protofission.data.readers.decode import Decoding
from protofission.data.readers.file_listing import content_of, list_files
folder, store, go = map(Path, sys.argv[1:])
files = list_files(folder).files
print("ready", flush=True)
while not go.exists():
    time.sleep(0.001)
def read(place):
    with go.open("a") as count:
        count.write("x")
    return content_of(folder / files[place].path, 10**6)
print(load_decoded(str(folder), files, read, Decoding(8, 8), store).pixels.tobytes().hex())
"""


@pytest.mark.slow
def test_several_processes_at_once_do_no_harm(folder: Path, store: Path, tmp_path: Path) -> None:
    expected = load(folder, store)[0].pixels.tobytes().hex()
    (home,) = entries(store)
    flip(home / "pixels.npy", -1)
    command = [sys.executable, "-c", READ, str(folder), str(store), str(tmp_path / "go")]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    assert [reader.communicate()[0].strip() for reader in readers] == [expected] * 4
    assert (tmp_path / "go").read_text() == "x" * 5  # one of them read the files
    assert entries(store) == [home]
    assert load(folder, store)[1]


def test_memory_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    peaks = []
    for count in (20, 220):
        for number in range(count):
            write(tmp_path / str(count) / f"{number}.png", encoded(noise(2, 2, number)))
        tracemalloc.start()
        load_folder(tmp_path / str(count), 200, cache=tmp_path / "c", workers=2)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    all_of_them = 220 * 200 * 200 * 3
    assert peaks[1] - peaks[0] < all_of_them / 5


def test_a_large_array_is_checked_at_some_places(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(folder, store)
    (home,) = entries(store)
    monkeypatch.setattr(caching, "CHECKED_BYTES", 0)
    monkeypatch.setattr(caching, "CHECKED_IMAGES", 2)
    flip(home / "pixels.npy", -1)  # the last of four images is not among the two
    assert load(folder, store)[1]
    flip(home / "pixels.npy", -1 - 192)  # the last but one is
    assert not load(folder, store)[1]


@pytest.mark.parametrize("inside", ["", "class 0/cache"])
def test_the_cache_must_not_be_among_the_images(folder: Path, inside: str) -> None:
    with pytest.raises(InputError, match="lies in the folder of images"):
        load_folder(folder, 8, cache=folder / inside)


def test_a_cache_that_cannot_be_written_is_named(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "file", b"")
    with pytest.raises(InputError, match=r"Cannot write decoded images to .*file.*XDG_CACHE_HOME"):
        load_folder(folder, 8, cache=tmp_path / "file")


def test_another_cache_folder_is_named_as_the_refusal_says(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "full", b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "full"))
    with pytest.raises(InputError, match="set XDG_CACHE_HOME to the full path of another folder"):
        load_folder(folder, 8)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    load_folder(folder, 8)
    assert list((tmp_path / "elsewhere").glob("protofission/images/*/manifest.json"))


def test_there_is_at_least_one_worker(folder: Path, store: Path) -> None:
    with pytest.raises(InputError, match="workers = 0: give 1 or more"):
        load_folder(folder, 8, cache=store, workers=0)

"""Bundles as one .zip: the same bytes and predictions, and nothing taken from hostile ones."""

import io
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bundles import bundle_at
from pictures import picture
from protofission import InputError, load, predict
from protofission.triage.bundle import Bundle
from protofission.triage.bundle_files import CALIBRATION, MANIFEST, MODEL
from protofission.triage.bundle_zip import GROWTH, MOST_ENTRIES, ROOM, is_zip


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return bundle_at(tmp_path / "model")


def zipped(path: Path, entries: list[tuple[str | zipfile.ZipInfo, bytes]], how: int = 0) -> Path:
    """A .zip file of entries, which may stand twice."""
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


def test_a_zip_holds_the_bundle_in_the_same_bytes_everywhere(
    bundle: Bundle, tmp_path: Path
) -> None:
    first, second = tmp_path / "a.zip", tmp_path / "below" / "B.ZIP"
    bundle.save(first)
    load(first).save(second)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert archive.namelist() == [MANIFEST, MODEL, CALIBRATION]
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}
        assert {name: archive.read(name) for name in archive.namelist()} == bundle.files()
    load(str(second)).save(tmp_path / "again")
    assert load(tmp_path / "again").fingerprint == bundle.fingerprint
    bundle_at(tmp_path / "other", seed=1).save(first)  # another model's is replaced
    assert load(first).fingerprint != bundle.fingerprint


def test_predictions_of_a_zip_are_those_of_its_folder(bundle: Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "model.zip")
    for number in range(3):
        picture(tmp_path / "new" / f"{number}.png", number, side=8)
    rows = predict(tmp_path / "model.zip", tmp_path / "new")
    assert len(rows) == 3
    assert rows == predict(tmp_path / "model", tmp_path / "new")


def test_a_zip_that_others_compressed_is_read(bundle: Bundle, tmp_path: Path) -> None:
    entries = [(name, content) for name, content in bundle.files().items()]
    path = zipped(tmp_path / "a.zip", entries[::-1], zipfile.ZIP_DEFLATED)
    assert load(path).fingerprint == bundle.fingerprint


def link(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return entry


def encrypted(content: bytes) -> bytes:
    """With the flag of encryption on the first entry, in the directory."""
    place = content.index(b"PK\x01\x02") + 8
    return content[:place] + struct.pack("<H", 1) + content[place + 2 :]


HOSTILE: dict[str, Callable[[dict[str, bytes]], list[tuple[str | zipfile.ZipInfo, bytes]]]] = {
    r"its entry '\.\./bundle\.json' leads out of it": lambda files: [
        *files.items(),
        ("../bundle.json", b"x"),
    ],
    "its entry '/etc/passwd' leads out of it": lambda files: [*files.items(), ("/etc/passwd", b"")],
    r"its entry 'model\.safetensors' is a link": lambda files: [
        (MANIFEST, files[MANIFEST]),
        (link(MODEL), b"/etc/passwd"),
    ],
    r"its entry 'evil\.py' is no file of a model": lambda files: [*files.items(), ("evil.py", b"")],
    r"its entry 'model/' is no file of a model": lambda files: [("model/", b""), *files.items()],
    r"its entry 'bundle\.json' stands twice": lambda files: [*files.items(), (MANIFEST, b"{}")],
    r"bundle\.json is missing": lambda files: [(MODEL, files[MODEL])],
    r"model\.safetensors is not as it was saved": lambda files: [
        *{**files, MODEL: files[MODEL][:-1] + b"?"}.items()
    ],
    r"model\.safetensors has [\d,]+ bytes, and [\d,]+ are the most": lambda files: [
        *{**files, MODEL: files[MODEL] + bytes(2**19)}.items()
    ],
    f"it has {MOST_ENTRIES + 1} entries": lambda files: [
        (f"{number}", b"") for number in range(MOST_ENTRIES + 1)
    ],
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("reason", HOSTILE)
def test_what_is_not_of_a_bundle_is_refused(reason: str, bundle: Bundle, tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", HOSTILE[reason](bundle.files()))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=reason):
        load(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_bomb_is_refused_before_it_is_unpacked(bundle: Bundle, tmp_path: Path) -> None:
    files = {**bundle.files(), CALIBRATION: bytes(2**27)}
    path = zipped(tmp_path / "a.zip", [*files.items()], zipfile.ZIP_DEFLATED)
    assert path.stat().st_size * GROWTH + ROOM < 2**27
    with pytest.raises(InputError, match=r"unpacked it has 134,[\d,]+ bytes"):
        load(path)


def test_a_bomb_that_lies_about_its_size_is_not_unpacked_further(
    bundle: Bundle, tmp_path: Path
) -> None:
    """The directory says 1,000 bytes; the entry unpacks to 2^26."""
    files = {**bundle.files(), CALIBRATION: bytes(2**26)}
    path = zipped(tmp_path / "a.zip", [*files.items()], zipfile.ZIP_DEFLATED)
    size = struct.pack("<L", 2**26)
    content = path.read_bytes()
    assert content.count(size) == 2  # before the entry, and in the directory
    path.write_bytes(content.replace(size, struct.pack("<L", 1000)))
    with pytest.raises(InputError, match=r"calibration\.npy cannot be unpacked: Bad CRC-32"):
        load(path)


@pytest.mark.parametrize("keep", [0, 10, -1, -22])
def test_what_is_cut_is_refused(keep: int, bundle: Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "a.zip")
    content = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(content[:keep])
    with pytest.raises(InputError, match=r"a\.zip is not the \.zip of a model"):
        load(tmp_path / "a.zip")


def test_every_damaged_byte_is_harmless(bundle: Bundle, tmp_path: Path) -> None:
    """A changed byte is refused, or changes nothing that is used."""
    bundle.save(tmp_path / "a.zip")
    content = bytearray((tmp_path / "a.zip").read_bytes())
    random = np.random.default_rng(0)
    refused = 0
    for place in [*range(60), *random.integers(len(content), size=150), *range(-200, 0)]:
        changed = bytearray(content)
        changed[place] ^= 1 << int(random.integers(8))
        (tmp_path / "a.zip").write_bytes(changed)
        try:
            assert load(tmp_path / "a.zip").fingerprint == bundle.fingerprint
        except InputError:
            refused += 1
    assert refused > 200


def test_encrypted_entries_and_other_files_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "a.zip")
    (tmp_path / "a.zip").write_bytes(encrypted((tmp_path / "a.zip").read_bytes()))
    with pytest.raises(InputError, match="is encrypted"):
        load(tmp_path / "a.zip")
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("mine.txt", b"mine")
    (tmp_path / "mine.zip").write_bytes(other.getvalue())
    with pytest.raises(InputError, match="holds something else than a model: name a new file"):
        bundle.save(tmp_path / "mine.zip")
    assert (tmp_path / "mine.zip").read_bytes() == other.getvalue()
    with pytest.raises(InputError, match="does not exist"):
        load(tmp_path / "nothing.zip")


def test_a_folder_may_be_called_zip(bundle: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "folder.zip"
    folder.mkdir()
    assert not is_zip(folder)
    bundle.save(folder)
    assert (folder / MANIFEST).is_file()
    assert load(folder).fingerprint == bundle.fingerprint

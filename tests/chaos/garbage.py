"""Hostile content for the files that we or users write: JSON, lists, YAML, images, tensors."""

import contextlib
import hashlib
import io
import json
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos import damage
from chaos.lives import aside

HOSTILE = [
    *("null", "true", "-1", "0", "1", "2", "1.5", "-0.0", "1e308", "1e400", "-1e400", "NaN"),
    *("Infinity", "1" * 400, "9" * 5000, "18446744073709551616", "1e-320"),
    *('""', '"x"', '"../../etc/passwd"', '"/dev/zero"', '"a\\u0000b"', '"\\ud800"', '"\\u001b[2J"'),
    *('"1"', '"nan"', '"' + "x" * 100_000 + '"', "[]", "[[]]", "[null]", "{}", '{"a": 1, "a": 2}'),
    *("[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000, "[1, 2, 3]"),
]
"""Texts for the place of any JSON value."""
_DIGEST = "protofission_digest"
_MARK = '"the hostile value"'


def mutated_json(text: str, rng: random.Random) -> tuple[str, str]:
    """A JSON text with one thing in it changed, sealed anew where it has a seal; what was done."""
    content = json.loads(text)
    places = list(_places(content))
    if not places:
        return (hostile := rng.choice(HOSTILE)), f"replaced by {hostile[:40]}"
    holder, key = rng.choice(places)
    name, act = f"{key!r}"[:60], rng.randrange(8)
    if act == 0 and isinstance(holder, dict):
        del holder[key]
        return _sealed(json.dumps(content)), f"without {name}"
    if act == 1 and isinstance(holder, dict):
        old = holder[key]
        holder[key] = json.loads(_MARK)
        twice = f"{json.dumps(old)}, {json.dumps(key)}: {rng.choice(HOSTILE[:12])}"
        return json.dumps(content).replace(_MARK, twice), f"with {name} twice"
    if act == 2 and isinstance(holder, dict):
        holder["an unknown key"] = 1
        return _sealed(json.dumps(content)), f"with an unknown key beside {name}"
    if act == 3 and isinstance(holder[key], int | float):
        holder[key] = rng.choice(
            (-holder[key], holder[key] + 1, holder[key] * 1e6, str(holder[key]))
        )
        return _sealed(json.dumps(content)), f"with {name} = {holder[key]!r}"
    hostile = rng.choice(HOSTILE)
    holder[key] = json.loads(_MARK)
    return _sealed(json.dumps(content).replace(_MARK, hostile)), f"with {name} = {hostile[:40]}"


def _places(value: Any) -> Any:
    """All values inside a value, by what holds them."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _sealed(text: str) -> str:
    """The text with the seal that its content has, if it has one and can be read."""
    old = re.search(r'"seal": "([0-9a-f]{64})"', text)
    with contextlib.suppress(ValueError, RecursionError, TypeError):
        content = json.loads(text)
        if old and isinstance(content, dict):
            content.pop("seal", None)
            parts: Any = [content] if "digests" in content else content
            seal = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
            return text.replace(old[1], seal)
    return text


def mutate_json(path: Path, rng: random.Random) -> str:
    text, what = mutated_json(path.read_text(), rng)
    path.write_bytes(text.encode(errors="surrogatepass"))
    return what


def mutate_lines(path: Path, rng: random.Random) -> str:
    rows = path.read_text().splitlines()
    if not rows:
        return random_text(path, rng)
    place = rng.randrange(len(rows))
    rows[place], what = mutated_json(rows[place], rng)
    path.write_text("\n".join(rows) + "\n")
    return f"line {place} {what}"


def mutate_tensors(path: Path, rng: random.Random) -> str:
    """A safetensors file whose header says something else, with a digest that fits."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    about = header.get("__metadata__", {})
    texts = sorted(set(about) - {_DIGEST})
    if texts and rng.random() < 0.6:
        key = rng.choice(texts)
        about[key], what = mutated_json(about[key], rng)
        text, what = json.dumps(header), f"{key} {what}"
    else:
        text, what = mutated_json(json.dumps(header), rng)
    new = text.replace(f'"{_DIGEST}": ', f'"{_DIGEST}":').encode(errors="replace")
    path.write_bytes(_digested(struct.pack("<Q", len(new)) + new, content[8 + size :]))
    return f"header {what}"


def _digested(start: bytes, numbers: bytes) -> bytes:
    """A safetensors file with the digest that its content has, if it has one."""
    field = re.compile(rb'(?<="%s":")[0-9a-f]{32}(?=")' % _DIGEST.encode())
    blank = field.sub(b"0" * 32, start, count=1)
    digest = hashlib.blake2b(blank + numbers, digest_size=16).hexdigest().encode()
    return field.sub(digest, start, count=1) + numbers


def mutate_arrays(path: Path, rng: random.Random) -> str:
    """A .npz file with an array that is missing, or another."""
    import numpy as np

    with np.load(path) as found:
        arrays = dict(found)
    name = rng.choice(sorted(arrays))
    kinds: list[Callable[[], Any]] = [
        lambda: np.zeros(0),
        lambda: np.full(arrays[name].shape, np.nan),
        lambda: np.array("text"),
        lambda: arrays[name][None],
        lambda: -np.ones_like(arrays[name]),
        lambda: np.full(arrays[name].shape, 2**62),
        lambda: arrays[name].astype(np.complex64),
        lambda: arrays[name].reshape(-1)[:-1],
    ]
    place = rng.randrange(len(kinds) + 1)
    if place == len(kinds):
        del arrays[name]
    else:
        arrays[name] = kinds[place]()
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    path.write_bytes(content.getvalue())
    return f"with {name} {'missing' if place == len(kinds) else f'made array {place}'}"


def mutate_table(path: Path, rng: random.Random) -> str:
    """A Parquet list with other columns, of other types."""
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    kinds: list[Callable[[], Any]] = [
        lambda: pa.array(["labeled/0/0.png", "x", "labeled/1/1.png"]),
        lambda: pa.array([None, None, None], pa.string()),
        lambda: pa.array([1, 2, 3]),
        lambda: pa.array([1.5, float("nan"), float("inf")]),
        lambda: pa.array([b"\xff\0", b"", b"a"]),
        lambda: pa.array([["a"], [], None]),
        lambda: pa.array([{"a": 1}, None, {"a": 2}]),
        lambda: pa.array(["a", "b", "a"]).dictionary_encode(),
        lambda: pa.array(["a\0b", "\n", "/dev/zero"]),
        lambda: pa.array([0, 1, 2], pa.timestamp("ns")),
    ]
    names = rng.choices(["path", "path", "label", "label", "Path", "", "x"], k=rng.randint(1, 4))
    chosen = rng.choices(range(len(kinds)), k=len(names))
    rows = rng.choice((0, 3))

    def write() -> None:
        columns = [kinds[kind]().slice(0, rows) for kind in chosen]
        parquet.write_table(pa.Table.from_arrays(columns, names), path)

    aside(write, path.parent)
    return f"replaced by {rows} rows of {names!r} of kinds {chosen}"


def random_text(path: Path, rng: random.Random) -> str:
    pieces = [
        *("path,label\n", "path\n", "label,path,path\n", "a.png,cat\n", ",,,\n", '"', "\n", "\0"),
        *("\r", "é", "\udcff", "\x1b[31m", "methods: [orca]\n", "data: ", "- ", "{", "}", "[", "]"),
        *("seeds: 1\n", ": ", "*a", "&a ", "!!python/object:os.system ", "2001-01-01", "1e400"),
        *(
            ".nan",
            "? ",
            "|\n",
            "%YAML 9.9\n",
            "---\n",
            "\t",
            "labeled/0/0.png,0\n",
            "/dev/zero,x\n",
        ),
    ]
    text = "".join(rng.choices(pieces, k=rng.randint(1, 40)))
    if rng.random() < 0.1:
        text = rng.choice("[{-") * 20_000
    path.write_bytes(text.encode(errors="surrogateescape"))
    return f"replaced by {text[:60]!r}"


def mutate_text(path: Path, rng: random.Random) -> str:
    """A text file with a piece of it moved, doubled, or replaced."""
    text = path.read_text()
    place, end = sorted(rng.choices(range(len(text)), k=2))
    other = rng.choice(
        (text[place:end] * 2, "", "\0", "null", "-1", "[", ": ", "é\u202e", "'", ",")
    )
    path.write_text(text[:place] + other + text[end:])
    return f"{text[place:end][:30]!r} replaced by {other[:30]!r}"


def mutate_list(path: Path, rng: random.Random) -> str:
    """A list as CSV with other columns and cells; as hostile as a spreadsheet can be."""
    columns = rng.choices(["path", "label", "Path", "", "x", "label\0"], k=rng.randint(1, 4))
    cells = [
        "labeled/0/0.png",
        "",
        "..",
        "/",
        "/dev/zero",
        "x" * 5000,
        "a\nb",
        '"',
        "0",
        "nan",
        "-1",
    ]
    rows = [columns, *(rng.choices(cells, k=rng.randint(0, 5)) for _ in range(rng.randint(0, 6)))]
    path.write_text("\n".join(",".join(row) for row in rows))
    return f"replaced by a list of {columns!r}"


def mutate_image(path: Path, rng: random.Random) -> str:
    """A file with the name of an image."""
    content = path.read_bytes()
    made: dict[str, bytes] = {
        "no image": b"this is no image",
        "a JPEG head and noise": b"\xff\xd8\xff\xe0" + rng.randbytes(500),
        "a PNG head and noise": content[:33] + rng.randbytes(500),
        "a PNG of 2^31 pixels a side": content[:16] + b"\x7f\xff\xff\xff" * 2 + content[24:],
        "half": content[: len(content) // 2],
        "a GIF head": b"GIF89a" + rng.randbytes(40),
        "a TIFF head": b"II*\0" + rng.randbytes(60),
        "a WebP head": b"RIFF\x20\0\0\0WEBPVP8 " + rng.randbytes(60),
        "a byte changed": content[:-30] + rng.randbytes(1) + content[-29:],
    }
    what = rng.choice(sorted(made))
    path.write_bytes(made[what])
    return f"replaced by {what}"


BY_SUFFIX: dict[str, list[Callable[[Path, random.Random], str]]] = {
    ".json": [mutate_json],
    ".jsonl": [mutate_lines],
    ".rows": [mutate_lines],
    ".safetensors": [mutate_tensors],
    ".npz": [mutate_arrays],
    ".csv": [mutate_list, random_text, mutate_text],
    ".yaml": [random_text, mutate_text],
    ".parquet": [mutate_table],
    ".png": [mutate_image],
    ".onnx": [damage.overwrite, damage.random_bytes],
    ".npy": [damage.random_bytes, damage.lengthen],
}

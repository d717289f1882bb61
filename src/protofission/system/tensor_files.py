"""Safetensors files with a digest in their metadata, by which any change is seen.

The digest is of the whole file with zeros in the digest's place, so that a change of any bit is
seen: in the numbers, or in the names, shapes and texts of the header.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from protofission.core.errors import require
from protofission.system.json_files import as_type, parse_json

DIGEST = "protofission_digest"
OURS = {"card", "progress", DIGEST}
"""All keys of the metadata that we write; earlier versions wrote no digest."""

_SIZE = 16
_EMPTY = "0" * 2 * _SIZE
_FIELD = re.compile(rb'(?<="%s":")[0-9a-f]{%d}(?=")' % (DIGEST.encode(), 2 * _SIZE))


def pack_tensors(tensors: Mapping[str, Tensor], **metadata: str) -> bytes:
    """Pack tensors and texts into a safetensors file; the same values give the same bytes."""
    packed = {name: value.contiguous() for name, value in tensors.items()}
    header, numbers = _parts(save_tensors(packed, {**metadata, DIGEST: _EMPTY}))
    plain = json.loads(header)
    plain["__metadata__"] = dict(sorted(plain["__metadata__"].items()))  # their order varies
    text = json.dumps(plain, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    start = len(text).to_bytes(8, "little") + text
    return _FIELD.sub(_digest(start, numbers), start, 1) + numbers


def unpack_tensors(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Unpack the tensors, by name, and texts of a safetensors file; a digest is compared, if any.

    Raises:
        SafetensorError, InputError: it is no such file, or not as it was written.
    """
    tensors = dict(sorted(load_tensors(content).items()))  # their order varies
    texts = texts_of(content)
    if DIGEST in texts:
        header, numbers = _parts(content)
        blank = _FIELD.sub(_EMPTY.encode(), content[:8] + header, 1)
        require(texts[DIGEST].encode() == _digest(blank, numbers), "it is not as it was written.")
    return tensors, texts


def texts_of(content: bytes) -> dict[str, str]:
    """Read the texts that a safetensors file carries beside its tensors."""
    header = as_type(parse_json(bytes(_parts(content)[0])), dict[str, Any], "the header")
    return as_type(header.get("__metadata__", {}), dict[str, str], "__metadata__")


def _parts(content: bytes) -> tuple[bytes, memoryview]:
    """Split a file into its header and the numbers after it, which are not copied."""
    end = 8 + int.from_bytes(content[:8], "little")
    return content[8:end], memoryview(content)[end:]


def _digest(start: bytes, numbers: memoryview) -> bytes:
    found = hashlib.blake2b(start, digest_size=_SIZE)
    found.update(numbers)
    return found.hexdigest().encode()

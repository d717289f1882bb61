"""The journal of a store: a line of JSON for each finished block."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from protofission.core.errors import InputError
from protofission.core.records import ViewName
from protofission.data.store.manifest import Block, StorePlan
from protofission.system.json_files import as_type, parse_json
from protofission.system.plain_files import read_plain

JOURNAL = "blocks.jsonl"
MOST_JOURNAL_BYTES = 2**30
"""The size limit of a journal."""


class JournalEntry(NamedTuple):
    """A line of the journal: a finished block."""

    plan: str
    """The identity of the plan."""
    block: Block
    digests: dict[ViewName, str]
    """The digest of each view."""

    def line(self) -> bytes:
        """The entry as a line of JSON."""
        content = {"plan": self.plan, **self.block._asdict(), "digests": self.digests}
        return json.dumps(content).encode() + b"\n"


@dataclass(frozen=True)
class _JournalLine:
    """The JSON of a line."""

    plan: str
    part: str
    start: int
    stop: int
    digests: dict[str, str]


def read_journal(folder: Path) -> list[JournalEntry]:
    """Read the entries of the journal; lines that cannot be read are skipped."""
    try:
        lines = read_plain(folder / JOURNAL, MOST_JOURNAL_BYTES).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:  # the last line may be cut short
            entry = as_type(parse_json(line), _JournalLine, "")
        except InputError:
            continue
        block = Block(entry.part, entry.start, entry.stop)
        found.append(JournalEntry(entry.plan, block, cast(dict[ViewName, str], entry.digests)))
    return found


def finished_blocks(folder: Path, plan: StorePlan) -> dict[Block, dict[ViewName, str]]:
    """The blocks of a plan that the journal lists, with the digest of each view."""
    return {
        entry.block: entry.digests
        for entry in read_journal(folder)
        if entry.plan == plan.identity
        and plan.has(entry.block)
        and entry.digests.keys() == plan.parts[entry.block.part].views.keys()
    }

"""Processes of a launcher that meet, as those of torchrun do: the first is found through a file."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from protofission.system.json_files import read_json
from protofission.system.launch.launcher import LOOK_AGAIN
from protofission.system.whole_files import write_whole

LONGEST = 300.0
"""Seconds after which a process gives up that does not find the first one's file."""


@contextmanager
def meeting(file: Path, rank: int, size: int) -> Iterator[None]:
    """Set the variables of torchrun for one of several processes; at the end they have parted.

    Args:
        file: a new one, in a folder that all see; the first process writes its address to it.

    Raises:
        TimeoutError: the first process has not written it.
    """
    store = None
    if rank == 0:
        own = own_address()
        store = TCPStore(own, 0, is_master=True, wait_for_workers=False)
        write_whole(file, f'{{"address": "{own}", "port": "{store.port}"}}'.encode())
    found = _read(file)
    variables = {
        "MASTER_ADDR": found["address"],
        "MASTER_PORT": found["port"],
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "GROUP_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": "1",
        "TORCHELASTIC_RUN_ID": file.name,
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # of the first process, above
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        del store  # others ask it until they have met


def _read(file: Path) -> dict[str, str]:
    end = time.monotonic() + LONGEST
    while True:
        try:
            return read_json(file, dict[str, str])
        except FileNotFoundError:
            if time.monotonic() > end:
                raise TimeoutError(
                    f"the first process has not written {file}: every machine must see its folder"
                ) from None
            time.sleep(LOOK_AGAIN)


def own_address() -> str:
    """The address of this machine by which others reach it; nothing is sent to find it."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # an address of nobody
            return str(probe.getsockname()[0])
    except OSError:  # there is no network
        return "127.0.0.1"

"""Runs commands again and again and kills them after each piece of saved work; run as a script.

Python and torch are imported once: each life is a fork of this process that runs the real command
line, or several forks that are told their places as torchrun tells them. A life is killed by
SIGKILL only once it has saved something of its own, a state or a block of features, so that the
next one has something to go on with. Of several processes, all are killed, or one, after which the
others have to end by themselves.

Reads from each line of standard input, as JSON: folder, kills, processes and arguments. Answers
with a line of JSON: what was saved at each kill (steps, or blocks), where the lives after them
began (by their own word, or by the first block that they added), how many kills met a file that was
being written, and how many lives ended on a full disk.
"""

import json
import os
import random
import re
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

# What a life would import, before the forks.
import lightning_fabric  # noqa: F401
import scipy.optimize  # noqa: F401
import sklearn.cluster
import sklearn.datasets
import sklearn.metrics  # noqa: F401
import torch._dynamo  # noqa: F401

import protofission.training.run_console  # noqa: F401
from protofission.cli import main
from protofission.data.store.journal import JOURNAL
from protofission.system.partial_files import is_partial
from protofission.training.embed import MOST_IMAGES


@dataclass
class Lives:
    """A training or an embedding that is killed."""

    folder: Path
    processes: int
    arguments: list[str]
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    @property
    def said(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.said")

    @property
    def errors(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.errors")

    def begin(self, room: int | None = None) -> list[int]:
        """Fork the processes of a life, with room for files of so many bytes."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        self.said.write_text("")
        return [self._fork(rank, port, room) for rank in range(self.processes)]

    def _fork(self, rank: int, port: str, room: int | None) -> int:
        child = os.fork()
        if child:
            return child
        sys.stdin.close()
        sys.stdout = self.said.open("a", buffering=1)
        sys.stderr = self.errors.open("a", buffering=1)
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        if self.processes > 1:
            places = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "MASTER_PORT": port}
            sizes = {"WORLD_SIZE": self.processes, "LOCAL_WORLD_SIZE": self.processes}
            elastic = {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": port}
            os.environ |= {k: str(v) for k, v in (places | sizes | elastic).items()}
        sys.argv = ["protofission", *self.arguments]
        try:
            main()
        except SystemExit as ended:
            os._exit(int(ended.code or 0))
        except BaseException as error:
            print("Traceback:", repr(error), file=sys.stderr)
            os._exit(99)
        os._exit(0)

    @property
    def embeds(self) -> bool:
        return self.arguments[0] == "embed"

    def saved(self) -> int:
        """The step of the saved state, or the blocks of the journal; 0 if there are none."""
        try:
            name = JOURNAL if self.embeds else "state.safetensors"
            content = (self.folder / name).read_bytes()
        except FileNotFoundError:
            return 0
        if self.embeds:
            return content.count(b"\n")
        size = int.from_bytes(content[:8], "little")
        first, last = json.loads(content[8 : 8 + size])["step"]["data_offsets"]
        return int.from_bytes(content[8 + size + first : 8 + size + last], "little")

    def began(self, before: int) -> int:
        """Where the last life began: by its word, or by the block it added first."""
        if self.embeds:
            lines = (self.folder / JOURNAL).read_bytes().splitlines()
            return -(-int(json.loads(lines[before])["start"]) // MOST_IMAGES)
        found = re.search(r"Going on after step (\d+) of", self.said.read_text())
        return int(found[1]) if found else 0

    def kill(self, life: list[int], *, writing: bool) -> None:
        """Kill a life once it has saved a state, some of them while it writes the next."""
        before, pause = self.saved(), self.chance.uniform(0.0, 0.04)
        while self.saved() == before or self.began(before) != before:
            assert os.waitpid(life[0], os.WNOHANG)[0] == 0, "it ended before it could be killed"
            time.sleep(0.001)
        time.sleep(pause)
        some = self.chance.choice([life, life[:1], life[-1:]])
        if writing:
            some = life
            while not self.held_while_writing(life[0]):
                time.sleep(self.chance.uniform(0.0, 0.002))
        for member in some:
            os.kill(member, signal.SIGKILL)
        for member in life:  # whoever is left ends by itself, and says that another has ended
            status = os.waitstatus_to_exitcode(os.waitpid(member, 0)[1])
            assert status == (-signal.SIGKILL if member in some else 2), status

    def held_while_writing(self, member: int) -> bool:
        """Stop a process; let it go on unless it is writing a file."""
        os.kill(member, signal.SIGSTOP)
        _, status = os.waitpid(member, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it ended before it could be killed"
        if any(map(is_partial, self.folder.iterdir())):
            return True
        os.kill(member, signal.SIGCONT)
        return False

    def finish(self, kills: int) -> dict[str, object]:
        """Kill a command so many times, fill its disk some times, then let it come to its end."""
        saved, began, writing, full = [0], [], 0, 0
        for number in range(kills):
            if number % 4 == 2:
                ends = [os.waitpid(member, 0)[1] for member in self.begin(room=5000)]
                assert {os.waitstatus_to_exitcode(end) for end in ends} == {2}, "one sentence"
                full += 1
            self.kill(self.begin(), writing=number % 3 == 1 and not self.embeds)
            writing += any(map(is_partial, self.folder.iterdir()))
            began.append(self.began(saved[-1]))
            saved.append(self.saved())
        for member in self.begin():
            assert os.waitstatus_to_exitcode(os.waitpid(member, 0)[1]) == 0
        began.append(self.began(saved[-1]))
        return {"saved": saved, "began": began, "writing": writing, "full": full}


if __name__ == "__main__":
    for line in sys.stdin:
        wanted = json.loads(line)
        lives = Lives(Path(wanted["folder"]), wanted["processes"], wanted["arguments"])
        try:
            answer = lives.finish(wanted["kills"])
        except AssertionError as error:
            answer = {"failed": str(error)}
        print(json.dumps(answer), flush=True)

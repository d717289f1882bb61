"""A command that misbehaves once its input has changed, or, while it is killed, all the time."""

import subprocess
import sys
import time
from pathlib import Path


def misbehave(behavior: str) -> str:
    """Do what was planted; what is written then."""
    if behavior == "sentence":
        print("protofission: input.txt was changed: put it back.", file=sys.stderr)
        sys.exit(2)
    elif behavior == "traceback":
        raise RuntimeError("planted")
    elif behavior == "hang":
        time.sleep(1000)
    elif behavior == "child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    elif behavior == "litter":
        Path("litter.txt").write_text("left")
    elif behavior == "code":
        sys.exit(3)
    return "other bytes" if behavior == "other-bytes" else "good"


def go_on(behavior: str) -> None:
    """Write a journal line by line; one that forgets begins anew in each life."""
    journal = Path("journal")
    done = journal.read_text().count("\n") if journal.exists() and behavior == "remembers" else 0
    journal.write_text("line\n" * done)
    while done < 20:
        with journal.open("a") as file:
            file.write("line\n")
        done += 1
        time.sleep(0.05)
    journal.unlink()


def main() -> None:
    """Run as a subject of the campaign."""
    behavior, written = sys.argv[1], "good"
    if behavior in ("remembers", "forgets"):
        go_on(behavior)
    elif not Path("input.txt").is_file() or Path("input.txt").read_bytes() != b"as it was":
        written = misbehave(behavior)
    Path("out.txt").write_text(written)


if __name__ == "__main__":
    main()

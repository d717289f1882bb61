"""Without fcntl and its kin, as on Windows: what needs files is one sentence, the rest works."""

import subprocess
import sys
import textwrap

import pytest

LACKS = {
    "fcntl": "sys.modules['fcntl'] = None",
    "flags": "del os.O_NOFOLLOW, os.O_NONBLOCK, os.O_NOCTTY, signal.pthread_sigmask",
}


def run_without(what: str, code: str) -> subprocess.CompletedProcess[str]:
    """Python code in a process that lacks a part of POSIX."""
    begin = f"import os, signal, sys\n{LACKS[what]}\n"
    return subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("what", LACKS)
def test_a_verb_is_refused_in_a_sentence_and_help_and_the_methods_work(what: str) -> None:
    code = """
        from protofission.cli import main
        for line in ("show model", "predict model a.png", "label model", "fit --help"):
            sys.argv = ["protofission", *line.split()]
            try:
                main()
            except SystemExit as end:
                print("ended", end.code or 0)

        import torch
        from protofission import METHODS, FissionHead, WithFission, fission_loss
        labels = torch.arange(8) % 2
        head = FissionHead(num_features=4, num_classes=2, prototypes=3)
        output = head(torch.randn(8, 4))
        loss = fission_loss(
            lambda x: torch.nn.functional.cross_entropy(x, labels), output, labels
        )
        loss.backward()
        print("learned", len(METHODS) > 20, bool(loss.isfinite()))
    """
    done = run_without(what, code)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith(("ended", "learned"))]
    assert said == ["ended 2", "ended 2", "ended 2", "ended 0", "learned True True"]
    refused = done.stderr.splitlines()
    assert len(refused) == 3
    assert all("on Linux or macOS, on Windows in WSL" in line for line in refused)

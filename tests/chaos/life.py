"""One life of the command line; run as a script, or in a fork of the campaign."""

import atexit
import signal
import sys
import threading
import traceback

BLOCK = 16
"""Images of a block: few, so that a hundred images are several blocks."""


def make_small() -> None:
    """Let features and rows be computed in small blocks, by other processes without delay."""
    from protofission.training import embed
    from protofission.triage import prediction_blocks as predictor

    for module in (embed, predictor):
        setattr(module, "MOST_IMAGES", BLOCK)  # noqa: B010  (as modules have no types)
        setattr(module, "SHORT", -1.0)  # noqa: B010


def live() -> int:
    """Run the command line as the interpreter would, to its last handlers; the exit code."""
    from protofission.cli import main

    code = 0
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its work is done, and its last word said
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    make_small()
    from protofission.cli import main

    main()

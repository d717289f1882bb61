"""The command line `protofission VERB`: each verb parses, calls the library, prints.

Nothing here imports torch before a verb has been understood: help and refusals answer at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from cyclopts import App, CycloptsError

from protofission import __version__
from protofission.cli.arguments import name_tracker
from protofission.cli.bundle_verbs import pack, push
from protofission.cli.data_verbs import check, fetch, split
from protofission.cli.demo_verb import demo
from protofission.cli.embed_verb import embed
from protofission.cli.labels_verb import labels
from protofission.cli.list_verbs import methods, presets
from protofission.cli.refusals import (
    check_arguments,
    escape_unprintable,
    lacks_memory,
    print_error,
    refuse,
)
from protofission.cli.serve_verb import serve
from protofission.cli.shell_verbs import completion, doctor
from protofission.cli.suite_verbs import report, suite
from protofission.cli.training_verbs import pretrain, train, weights
from protofission.cli.triage_verbs import drift, export, fit, predict, show
from protofission.cli.workbench_verbs import label, next_
from protofission.core.errors import InputError

Verb = Callable[..., None]

SERVERS = (["label"], ["serve"])
"""Commands that run until they are stopped."""

app = App(
    name="protofission",
    help="Semi-supervised learning on pools that hold strangers, by Prototype Fission.",
    help_epilogue="Start with: protofission demo",
    version=__version__,
    help_format="plaintext",  # the list of verbs has no markup, whose parser takes long to import
    suppress_keyboard_interrupt=False,
)
data = App(name="data", help="Download data sets, and look at folders of images.")

TRIAGE: list[Verb] = [fit, predict, serve, show, drift, export, pack, push]
WORKBENCH: list[Verb] = [label, next_, labels]
TRAINING: list[Verb] = [embed, train, pretrain, weights]
EXPERIMENTS: list[Verb] = [demo, suite, report]
LISTS: list[Verb] = [presets, methods, split]
SHELL: list[Verb] = [completion, doctor]
DATA: list[Verb] = [fetch, check]

for verb in (*TRIAGE, *WORKBENCH, *TRAINING, *EXPERIMENTS, *LISTS, *SHELL):
    app.command(verb, help_format="markdown")
for verb in DATA:
    data.command(verb, help_format="markdown")
app.command(data)


class Termination(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


def terminate(*_: object) -> None:
    """Handle SIGTERM as Ctrl-C: worker processes end, and files are closed."""
    raise Termination


def main() -> None:
    """Run the command line; bad input is one sentence on standard error, with exit code 2."""
    escape_unprintable()
    # joblib looks for semaphores, which no verb needs, and warns where there is no room for them.
    os.environ.setdefault("JOBLIB_MULTIPROCESSING", "0")
    signal.signal(signal.SIGTERM, terminate)
    try:
        check_arguments(sys.argv[1:])
        app(name_tracker(sys.argv[1:]), exit_on_error=False, print_error=False)
    except (CycloptsError, InputError) as error:
        refuse(" ".join(str(error).split()))
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough; nothing is left to say
        sys.exit(1)
    except OSError as error:
        refuse(f"{error.filename or 'A file'}: {error.strerror or error}.")
    except (MemoryError, RuntimeError) as error:
        if lacks_memory(error):
            refuse("Out of memory: lower backbone.width, backbone.blocks or the batch sizes.")
        if str(error) == "Could not determine home directory.":  # pathlib's words
            refuse("A path begins with ~ and a name that is no user's here: write it out.")
        raise
    except KeyboardInterrupt as stop:
        goes_on = "; the same command goes on, train and pretrain with --resume"
        print_error(f"stopped{'' if sys.argv[1:2] in SERVERS else goes_on}.")
        sys.exit(128 + (signal.SIGTERM if isinstance(stop, Termination) else signal.SIGINT))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

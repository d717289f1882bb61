"""Sessions of onnxruntime: one thread on the CPU, quiet, their errors in a sentence."""

from __future__ import annotations

from typing import Any

from protofission.core.errors import InputError, printable
from protofission.models.encoders.base import reason_of


def open_session(runtime: Any, model: str | bytes, shown: str) -> Any:
    """Open a network, given as the path or the content of an .onnx file.

    Args:
        runtime: the module onnxruntime.
        shown: the name of the network in an error.

    Raises:
        InputError: it cannot be loaded.
    """
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # each process that embeds has one core
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # cores are shared
    options.log_severity_level = 4  # fatal errors only: they are raised anyway
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises what its parts raise
        raise InputError(
            f"{printable(shown)} cannot be loaded ({reason_of(error)}): export it again."
        ) from None

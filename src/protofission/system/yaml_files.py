"""YAML of untrusted files as plain values, which `json_files.as_type` gives a type."""

from __future__ import annotations

from typing import Any

import yaml

from protofission.core.errors import InputError, printable, require


def parse_yaml(content: bytes) -> Any:
    """Parse YAML without tags of Python and without aliases, which can stand for gigabytes.

    Raises:
        InputError: "it is no YAML: ...", for the caller to say of what.
    """
    try:
        events = yaml.parse(content, yaml.SafeLoader)
        aliases = any(isinstance(event, yaml.AliasEvent) for event in events)
        require(not aliases, "it refers to other places by *: write them out.")
        return yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"it is no YAML: {printable(str(error).splitlines()[0])}.") from None

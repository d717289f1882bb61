"""Pages from templates: everything that is filled in is escaped."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape


def render(name: str, **values: Any) -> str:
    """A template of this folder, filled in."""
    environment = Environment(
        loader=PackageLoader("protofission.report", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["code"] = code
    return environment.get_template(name).render(**values)


def code(text: str) -> Markup:
    """Text with its `names` set as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))

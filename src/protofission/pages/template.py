"""Pages from templates; what is filled in is escaped."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape


def render(name: str, **values: Any) -> str:
    """Fill in a template of the folder `templates`."""
    environment = Environment(
        loader=PackageLoader("protofission.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["code"] = code
    return environment.get_template(name).render(**values)


def code(text: str) -> Markup:
    """Escape text, and set its `names` as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))

"""The card of a bundle on the hub: README.md, made of its facts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from protofission.core.errors import quoted, require
from protofission.triage.bundle_card import card_lines

if TYPE_CHECKING:
    from protofission.triage.bundle import Bundle

LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")


def check_license(license: str | None) -> None:
    """Refuse what cannot be the name of a license on the hub."""
    require(
        license is None or LICENSE.fullmatch(license) is not None,
        f"{quoted(license or '')} is no name of a license on the hub: give one such as apache-2.0 "
        "or cc-by-4.0.",
    )


def hub_card(bundle: Bundle, repo: str, license: str | None = None) -> str:
    """Write the card: what the hub searches, how to use the model, and all of its facts.

    Facts are set as code, so that no name of a class can be read as markup.
    """
    facts = "\n".join(card_lines(bundle))
    longest = max((len(found) for found in re.findall("`+", facts)), default=0)
    fence = "`" * max(3, longest + 1)
    head = [
        "---",
        "library_name: protofission",
        "pipeline_tag: image-classification",
        *([] if license is None else [f'license: "{license}"']),
        "tags:",
        "- protofission",
        "- open-set-recognition",
        "- semi-supervised-learning",
        "---",
    ]
    text = f"""
# {repo}

A model of protofission. It gives an image a class, a probability, a sub-class and an ID score, and
accepts it, or rejects it as a stranger.

```sh
pip install "protofission[encoder,hub]"
protofission predict hf://{repo} images/ --out rows.csv
```

```python
import protofission

bundle = protofission.load("hf://{repo}")
print("\\n".join(bundle.card_screen()))
```

The encoder is not part of the files: the model names it, and refuses another one.

## Facts

{fence}text
{facts}
{fence}
"""
    return "\n".join(head) + text

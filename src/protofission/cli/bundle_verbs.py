"""The verbs that carry a model elsewhere: pack, push."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from protofission.cli.arguments import Flag, Model, OptionalText, in_a_folder
from protofission.cli.json_results import Json, gives_json
from protofission.core.errors import printable

Destination = Annotated[Path, Parameter(validator=in_a_folder)]


@gives_json("pack")
def pack(model: Model, out: Destination, /, *, json: Json = False) -> dict[str, Any]:
    """Write a model as one .zip file, or as a folder of its own, to carry it elsewhere.

    Classes, weights, threshold and card are in it; images, features, tables and the workbench are
    not. The bytes of a .zip depend on the model alone.

    For example:

        protofission pack model model.zip
        protofission predict model.zip new/ --out new.csv
        protofission pack hf://owner/name model.zip

    Parameters
    ----------
    out
        A .zip file, or a folder; that of another model is replaced.
    """
    from protofission.triage.bundle import load

    bundle = load(model)
    bundle.save(out)
    print(f"The model: {printable(str(out))}")
    return {"out": out, "fingerprint": bundle.fingerprint}


@gives_json("push")
def push(
    model: Model,
    address: str,
    /,
    *,
    public: Flag = False,
    license: OptionalText = None,
    message: OptionalText = None,
    json: Json = False,
) -> dict[str, Any]:
    """Upload a model to the Hugging Face hub, with a card made of its facts.

    Uploaded are classes, weights, held-out scores and the card, which may name files of yours;
    images, features and labels stay here. Log in before, by `hf auth login` or $HF_TOKEN. Needs:
    pip install "protofission[hub]".

    For example:

        protofission push model hf://owner/name
        protofission push model.zip hf://owner/name --public --license apache-2.0
        protofission predict hf://owner/name new/ --out new.csv

    Parameters
    ----------
    address
        hf://OWNER/NAME, or hf://OWNER/NAME@BRANCH; a repository that is missing is made.
    public
        Let everybody see it; by default it is private, and a public repository is refused.
    license
        Name of a license for the card, such as apache-2.0.
    message
        Message of the commit.
    """
    from protofission.triage.bundle import load

    done = load(model).push_to_hub(address, public=public, license=license, message=message)
    print(f"The model: {done.address} ({'private' if done.private else 'public'})")
    return asdict(done)

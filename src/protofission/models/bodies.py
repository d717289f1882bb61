"""What a head stands on, by name: a backbone for images, or an adapter for features."""

from __future__ import annotations

from protofission.core.errors import unknown
from protofission.models.adapters import ADAPTERS, Adapter, AdapterSpec
from protofission.models.backbones import BACKBONES, Backbone, BackboneSpec

Body = Backbone | Adapter
BodySpec = BackboneSpec | AdapterSpec

BODIES: dict[str, BodySpec] = {**BACKBONES, **ADAPTERS}


def body_named(name: str) -> BodySpec:
    """A backbone's or an adapter's specification by name."""
    if name not in BODIES:
        raise unknown("backbone", name, BODIES)
    return BODIES[name]

"""The description of a prediction server: an OpenAPI document, and a page that needs no script."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

from protofission import __version__
from protofission.triage.calibrated_model import DECISIONS

EXAMPLE_IMAGE = base64.b64encode(b"P6 1 1 255\nabc").decode()
"""The smallest image: one pixel, as a PNM file, in base64."""
REFUSALS = {
    "400": "The body cannot be read.",
    "401": "A token is wanted, and none or another was sent.",
    "403": "The Host or the Origin is another one.",
    "408": "The body came too slowly.",
    "413": "The body is too large, or has too many images.",
    "415": "The Content-Type holds no images.",
    "422": "None of the images can be used.",
    "429": "Too much waits: ask again after the seconds of Retry-After.",
    "503": "The server is stopping.",
    "504": "The time of the request is over.",
}
"""The statuses of refusals, with their meaning."""
TEXT = {"type": "string"}
NUMBER = {"type": ["number", "null"]}


def describe_server(card: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document, with examples of the model's own classes.

    Args:
        card: of the model.
    """
    reference = {"$ref": "#/components/schemas/"}
    pages = {
        "/model": ("The card of the model: classes, threshold, guarantee, limits.", "model", card),
        "/health": (
            "Whether the server lives and is ready; 503 while it stops. Needs no token.",
            "health",
            {"live": True, "ready": True},
        ),
    }
    paths: dict[str, Any] = {
        "/predict": {"post": _prediction(card)},
        **{
            path: {
                "get": {
                    "operationId": name,
                    "summary": words,
                    "responses": {"200": _content("The answer.", {"type": "object"}, example)},
                }
            }
            for path, (words, name, example) in pages.items()
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Counts and times in the text format of Prometheus.",
                "responses": {
                    "200": {"description": "Text.", "content": {"text/plain": {"schema": TEXT}}}
                },
            }
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "protofission serve",
            "version": __version__,
            "description": "Predicts images: class, probability, sub-class, ID score, decision.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(reference["$ref"]),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _prediction(card: dict[str, Any]) -> dict[str, Any]:
    first, limits = card["classes"][0], card["limits"]
    row = {
        "path": "a.jpg",
        "class": first["name"],
        "probability": 0.97,
        "subclass": first["subclasses"][0],
        "id_score": 1.25,
        "decision": "accept",
        "cluster": "",
        "error": "",
    }
    part = {"type": "string", "format": "binary"}
    binary = {"schema": {**part, "minLength": 1}}
    images = {"images": [{"name": "a.ppm", "content": EXAMPLE_IMAGE}]}
    form = {
        "type": "object",
        "required": ["image"],
        "properties": {"image": {"type": "array", "minItems": 1, "items": part}},
    }
    found = {"$ref": "#/components/schemas/Predictions"}
    answers = {
        "200": _content("A row for each image, in their order.", found, {"predictions": [row]})
    }
    for status, words in REFUSALS.items():
        error = {"$ref": "#/components/schemas/Error"}
        answers[status] = _content(words, error, {"error": words})
    return {
        "operationId": "predict",
        "summary": "Predict one image or many.",
        "description": f"At most {limits['images']:,} images and {limits['body_bytes']:,} bytes. "
        "An image that cannot be read is a row with an error; if none can, the status is 422.",
        "parameters": [
            {
                "name": "name",
                "in": "query",
                "schema": TEXT,
                "description": "Name of a single image, for its row.",
            }
        ],
        "requestBody": {
            "required": True,
            "content": {
                "image/*": binary,
                "application/octet-stream": binary,
                "multipart/form-data": {"schema": form},
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/Images"},
                    "example": images,
                },
            },
        },
        "responses": answers,
    }


def _schemas(place: str) -> dict[str, Any]:
    row = {
        "path": {**TEXT, "description": "Name of the image, as it was given."},
        "class": {**TEXT, "description": "The likeliest known class."},
        "probability": {**NUMBER, "description": "Of that class, if the image is of a known one."},
        "subclass": TEXT,
        "id_score": {**NUMBER, "description": "Higher is more like a known class."},
        "decision": {**TEXT, "enum": [*DECISIONS, ""]},
        "cluster": {**TEXT, "description": "Of an image that was not accepted, if it is in one."},
        "error": {**TEXT, "description": "Why the image cannot be read; empty if it can."},
    }
    content = {**TEXT, "contentEncoding": "base64"}
    image = {
        "type": "object",
        "required": ["content"],
        "properties": {"name": TEXT, "content": content},
    }
    return {
        "Row": {"type": "object", "required": list(row), "properties": row},
        "Predictions": {
            "type": "object",
            "required": ["predictions"],
            "properties": {"predictions": {"type": "array", "items": {"$ref": f"{place}Row"}}},
        },
        "Images": {
            "type": "object",
            "required": ["images"],
            "properties": {
                "images": {"type": "array", "minItems": 1, "items": {"anyOf": [content, image]}}
            },
        },
        "Error": {"type": "object", "required": ["error"], "properties": {"error": TEXT}},
    }


def _content(words: str, schema: dict[str, Any], example: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, "example": example}}
    return {"description": words, "content": content}


def describe_page(document: dict[str, Any]) -> str:
    """The document as a short page, for a person with a browser."""
    parts = []
    for path, methods in document["paths"].items():
        for method, entry in methods.items():
            words = f"{entry['summary']} {entry.get('description', '')}"
            parts.append(f"<h2><code>{method.upper()} {path}</code></h2><p>{escape(words)}</p>")
            if method == "post":
                rows = (
                    f"<tr><td>{status}</td><td>{escape(answer['description'])}</td></tr>"
                    for status, answer in entry["responses"].items()
                )
                parts.append(
                    "<pre>curl -H 'Content-Type: image/jpeg' --data-binary @a.jpg "
                    "http://127.0.0.1:8000/predict\n"
                    "curl -F image=@a.jpg -F image=@b.png http://127.0.0.1:8000/predict</pre>"
                    f"<table>{''.join(rows)}</table>"
                )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>protofission serve'
        "</title></head><body><h1>protofission serve</h1><p>Errors are JSON with one sentence. "
        f'All in detail: <a href="/openapi.json">openapi.json</a>.</p>{"".join(parts)}'
        "</body></html>"
    )

"""STEP, image by image: distances, neighbours and pairs in loops."""

from __future__ import annotations

Row = list[float]


def times(matrix: list[Row], row: Row) -> Row:
    return [sum(a * b for a, b in zip(line, row, strict=True)) for line in matrix]


def square(a: Row, b: Row) -> float:
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def covariance(rows: list[Row], ridge: float) -> list[Row]:
    n, width = len(rows), len(rows[0])
    mean = [sum(row[i] for row in rows) / n for i in range(width)]
    return [
        [
            sum((row[i] - mean[i]) * (row[j] - mean[j]) for row in rows) / n + ridge * (i == j)
            for j in range(width)
        ]
        for i in range(width)
    ]


def losses(
    rows: list[Row], whitening: list[Row], projection: list[Row], neighbours: int, margin: float
) -> dict[str, float]:
    """Keep over the nearest of each image, unzip over all ordered pairs."""
    white = [times(whitening, row) for row in rows]
    places = [times(projection, row) for row in rows]
    kept, pairs = [], []
    for i in range(len(rows)):
        others = [j for j in range(len(rows)) if j != i]
        nearest = sorted(others, key=lambda j: square(white[i], white[j]))[:neighbours]
        for n in nearest:
            kept.append(max(0.0, square(places[i], places[n]) - square(white[i], white[n])))
        pairs += [square(places[i], places[j]) / len(places[i]) for j in others]
    return {
        "keep": sum(kept) / len(kept),
        "unzip": max(0.0, margin - sum(pairs) / len(pairs)),
    }


def score(row: Row, projection: list[Row], centres: list[Row]) -> float:
    place = times(projection, row)
    return min(square(place, times(projection, centre)) for centre in centres) ** 0.5

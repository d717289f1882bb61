"""Near-duplicates one pair at a time."""

import math
import statistics


def slow_groups(rows: list[list[float]], ratio: float = 0.3, least: float = 0.25) -> list[int]:
    """Group numbers in the order of first members; equal rows count as one image."""
    different: list[list[float]] = []
    for row in rows:
        if row not in different:
            different.append(row)
    centers = _centers(different, ratio, least)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(centers[different.index(row)], len(numbers)) for row in rows]


def _centers(rows: list[list[float]], ratio: float, least: float) -> list[int]:
    units, number = _units(rows), len(rows)
    if number < 2:
        return list(range(number))

    def distance(i: int, j: int) -> float:
        return 1 - sum(a * b for a, b in zip(units[i], units[j], strict=True))

    rank = min(10, (number + 1) // 2, number - 1)
    away = [[distance(i, j) for j in range(number)] for i in range(number)]
    scales = [sorted(a for j, a in enumerate(away[i]) if j != i)[rank - 1] for i in range(number)]
    floor = least * statistics.median_low(scales)
    scales = [max(scale, floor) for scale in scales]
    near = [
        [j for j in range(number) if j != i and away[i][j] <= ratio * min(scales[i], scales[j])]
        for i in range(number)
    ]
    centers = [-1] * number
    for i in sorted(range(number), key=lambda i: (-len(near[i]), i)):
        if centers[i] == -1:
            for j in (i, *near[i]):
                centers[j] = i if centers[j] == -1 else centers[j]
    return centers


def _units(rows: list[list[float]]) -> list[list[float]]:
    columns = list(zip(*rows, strict=True))
    means = [statistics.fmean(column) for column in columns]
    deviations = [statistics.pstdev(column) for column in columns]
    smallest = 1e-3 * math.sqrt(statistics.fmean(d * d for d in deviations))
    scaled = [
        [(x - m) / max(d, smallest) for x, m, d in zip(row, means, deviations, strict=True)]
        if smallest
        else [0.0] * len(row)
        for row in rows
    ]
    lengths = [math.sqrt(sum(x * x for x in row)) or 1.0 for row in scaled]
    return [[x / length for x in row] for row, length in zip(scaled, lengths, strict=True)]

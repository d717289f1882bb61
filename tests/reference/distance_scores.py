"""OOD scores by distance, from lists of numbers; higher is more OOD."""

from __future__ import annotations

import math

Vector = list[float]
Matrix = list[list[float]]


def dot(one: Vector, other: Vector) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def minus(one: Vector, other: Vector) -> Vector:
    return [a - b for a, b in zip(one, other, strict=True)]


def mean(rows: Matrix) -> Vector:
    return [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]


def unit(row: Vector) -> Vector:
    length = math.sqrt(dot(row, row))
    return [a / length for a in row] if length else row


def unit_rows(rows: Matrix, fitted_to: Matrix) -> Matrix:
    """Rows standardized by the means and deviations of others, of length 1."""
    middle = mean(fitted_to)
    apart = [minus(row, middle) for row in fitted_to]
    scale = [math.sqrt(math.fsum(a * a for a in c) / len(c)) for c in zip(*apart, strict=True)]
    return [unit([a / s for a, s in zip(minus(row, middle), scale, strict=True)]) for row in rows]


def inverse(matrix: Matrix) -> Matrix:
    """Gauss-Jordan elimination with pivots."""
    size = len(matrix)
    work = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(work[r][i]))
        work[i], work[pivot] = work[pivot], work[i]
        work[i] = [a / work[i][i] for a in work[i]]
        for r in range(size):
            if r != i:
                work[r] = [a - work[r][i] * b for a, b in zip(work[r], work[i], strict=True)]
    return [row[size:] for row in work]


def gaussians(
    rows: Matrix, labels: list[int], shrinkage: float
) -> tuple[dict[int, Vector], Matrix]:
    """The means of the classes that have rows, and the inverse of the shrunk covariance."""
    means = {c: mean([r for r, y in zip(rows, labels, strict=True) if y == c]) for c in set(labels)}
    apart = [minus(row, means[y]) for row, y in zip(rows, labels, strict=True)]
    size, freedom = len(rows[0]), len(rows) - len(means)
    within = [
        [math.fsum(a[i] * a[j] for a in apart) / freedom for j in range(size)] for i in range(size)
    ]
    variance = math.fsum(within[i][i] for i in range(size)) / size
    shrunk = [
        [(1 - shrinkage) * within[i][j] + shrinkage * variance * (i == j) for j in range(size)]
        for i in range(size)
    ]
    return means, inverse(shrunk)


def mahalanobis(row: Vector, center: Vector, precision: Matrix) -> float:
    apart = minus(row, center)
    return dot(apart, [dot(line, apart) for line in precision])


def relative_mahalanobis(
    row: Vector, labeled: Matrix, labels: list[int], pool: Matrix, shrinkage: tuple[float, float]
) -> float:
    means, precision = gaussians(labeled, labels, shrinkage[0])
    background, wide = gaussians(pool, [0] * len(pool), shrinkage[1])
    nearest = min(mahalanobis(row, center, precision) for center in means.values())
    return nearest - mahalanobis(row, background[0], wide)


def neighbor_distance(row: Vector, labeled: Matrix, neighbors: int) -> float:
    cosines = sorted((dot(unit(row), unit(other)) for other in labeled), reverse=True)
    return 1 - cosines[min(neighbors, len(cosines)) - 1]


def logistic_gradient(weights: Vector, zeros: Matrix, ones: Matrix, ridge: float) -> Vector:
    """Of half the mean loss of each side plus ridge / 2 times the squares of all but the last."""
    slopes = [[ridge * w for w in weights[:-1]] + [0.0]]
    for rows, target in ((zeros, 0), (ones, 1)):
        for row in rows:
            prob = 1 / (1 + math.exp(-dot(weights, [*row, 1.0])))
            slopes.append([(prob - target) * a / (2 * len(rows)) for a in [*row, 1.0]])
    return [math.fsum(column) for column in zip(*slopes, strict=True)]


def quantile(values: Vector, share: float) -> float:
    """Linear between the ordered values."""
    ordered, place = sorted(values), share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def candidates(
    labeled: Matrix,
    labels: list[int],
    pool: Matrix,
    shrinkage: tuple[float, float],
    folds: int,
    keep: float,
) -> list[int]:
    """Places in the pool of what scores above a share of the labels, scored by other folds."""
    order = sorted(range(len(labels)), key=lambda place: (labels[place], place))
    kept = []
    for number in range(folds):
        own = order[number::folds]
        others = [place for place in order if place not in own]
        rows, classes = [labeled[p] for p in others], [labels[p] for p in others]
        kept += [relative_mahalanobis(labeled[p], rows, classes, pool, shrinkage) for p in own]
    threshold = quantile(kept, keep)
    scores = [relative_mahalanobis(row, labeled, labels, pool, shrinkage) for row in pool]
    return [place for place, score in enumerate(scores) if score > threshold]

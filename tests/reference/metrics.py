"""Metrics by counting: all permutations, all pairs, all thresholds."""

from __future__ import annotations

import math
from itertools import combinations, permutations

Counts = list[list[int]]


def contingency(labels: list[int], heads: list[int], classes: int, num_heads: int) -> Counts:
    return [
        [
            sum(1 for y, h in zip(labels, heads, strict=True) if (y, h) == (c, k))
            for k in range(num_heads)
        ]
        for c in range(classes)
    ]


def count_matches(counts: Counts) -> int:
    """The best one-to-one matching, by trying them all."""
    rows, columns = len(counts), len(counts[0]) if counts else 0
    if rows > columns:
        counts = [[counts[r][k] for r in range(rows)] for k in range(columns)]
        rows, columns = columns, rows
    return max(
        sum(counts[r][k] for r, k in enumerate(chosen))
        for chosen in permutations(range(columns), rows)
    )


def accuracy(labels: list[int], heads: list[int], seen: int, protocol: str) -> dict[str, float]:
    """Seen, novel and all, image by image. `orca` matches anything, `strict` across no border."""
    classes, num_heads = max([*labels, seen - 1]) + 1, max([*heads, seen - 1]) + 1
    pairs = list(zip(labels, heads, strict=True))
    novel = [(y, h) for y, h in pairs if y >= seen]
    seen_right = sum(y == h for y, h in pairs if y < seen)

    def most_right(images: list[tuple[int, int]]) -> int:
        if not images:
            return 0
        return count_matches(
            contingency([y for y, _ in images], [h for _, h in images], classes, num_heads)
        )

    if protocol == "orca":
        novel_right, all_right = most_right(novel), most_right(pairs)
    else:
        novel_right = most_right([(y, h) for y, h in novel if h >= seen])
        all_right = seen_right + novel_right
    return {
        "seen": ratio(seen_right, len(pairs) - len(novel)),
        "novel": ratio(novel_right, len(novel)),
        "all": ratio(all_right, len(pairs)),
    }


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def auroc(id_scores: list[float], ood_scores: list[float]) -> float:
    wins = sum((o > i) + 0.5 * (o == i) for o in ood_scores for i in id_scores)
    return wins / (len(id_scores) * len(ood_scores))


def aupr(id_scores: list[float], ood_scores: list[float]) -> float:
    """Step by step down the thresholds: the recall won times the precision there."""
    area = recall = 0.0
    for threshold in sorted({*id_scores, *ood_scores}, reverse=True):
        true = sum(s >= threshold for s in ood_scores)
        false = sum(s >= threshold for s in id_scores)
        area += (true / len(ood_scores) - recall) * true / (true + false)
        recall = true / len(ood_scores)
    return area


def fpr_at_tpr(id_scores: list[float], ood_scores: list[float], percent: int = 95) -> float:
    """Let in scores up to a threshold, the lowest that lets in that percentage of ID."""
    for threshold in sorted(id_scores):
        if 100 * sum(s <= threshold for s in id_scores) >= percent * len(id_scores):
            return sum(s <= threshold for s in ood_scores) / len(ood_scores)
    raise AssertionError("unreachable: the highest ID score lets in all ID")


def entropy(values: list[int]) -> float:
    shares = [values.count(v) / len(values) for v in set(values)]
    return -math.fsum(p * math.log(p) for p in shares)


def nmi(labels: list[int], heads: list[int]) -> float:
    n = len(labels)
    information = 0.0
    for y in set(labels):
        for h in set(heads):
            both = sum(1 for a, b in zip(labels, heads, strict=True) if (a, b) == (y, h))
            if both:
                information += both / n * math.log(both * n / (labels.count(y) * heads.count(h)))
    average = (entropy(labels) + entropy(heads)) / 2
    return information / average if average else 1.0


def ari(labels: list[int], heads: list[int]) -> float:
    """From the four kinds of pairs of images: together or apart, by class and by head."""
    both = only_class = only_head = neither = 0
    for a, b in combinations(range(len(labels)), 2):
        same_class, same_head = labels[a] == labels[b], heads[a] == heads[b]
        both += same_class and same_head
        only_class += same_class and not same_head
        only_head += same_head and not same_class
        neither += not same_class and not same_head
    top = 2 * (both * neither - only_class * only_head)
    bottom = (both + only_class) * (only_class + neither)
    bottom += (both + only_head) * (only_head + neither)
    return top / bottom if bottom else 1.0


def usage_entropies(usage: Counts) -> list[float]:
    """Of the slots of each class that any image is of."""
    found = []
    for row in usage:
        shares = [n / sum(row) for n in row if n] if sum(row) else []
        if shares:
            found.append(-math.fsum(p * math.log(p) for p in shares))
    return found


def effective_slots(usage: Counts) -> float:
    found = [math.exp(h) for h in usage_entropies(usage)]
    return math.fsum(found) / len(found)


def dead_slots(usage: Counts) -> int:
    return sum(row.count(0) for row in usage if sum(row))


def slot_cosine(prototypes: list[list[list[float]]]) -> float:
    """Mean over classes and ordered pairs of different slots."""
    found = []
    for slots in prototypes:
        for i, a in enumerate(slots):
            for j, b in enumerate(slots):
                if i != j:
                    inner = math.fsum(x * y for x, y in zip(a, b, strict=True))
                    found.append(inner / (math.hypot(*a) * math.hypot(*b)))
    return math.fsum(found) / len(found)

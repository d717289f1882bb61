"""The numbers of the paper's tables, by row and data set."""

from __future__ import annotations

from pathlib import Path

from protofission.experiments.suite import Published


def _fractions(rows: dict[str, dict[str, tuple[float, float, float]]]) -> Published:
    """(seen, novel, all) in percent by ORCA's protocol, as the paper prints them, as shares."""
    names = ("seen", "novel_orca", "all_orca")
    return {
        (row, dataset): {name: value / 100 for name, value in zip(names, numbers, strict=True)}
        for row, panels in rows.items()
        for dataset, numbers in panels.items()
    }


def _table_1() -> Published:
    datasets = ("cifar10", "cifar100", "imagenet100")
    rows = {
        "fixmatch": ((71.5, 50.4, 49.5), (39.6, 23.5, 20.3), (65.8, 36.7, 34.9)),
        "ds3l": ((77.6, 45.3, 40.2), (55.1, 23.7, 24.0), (71.2, 32.5, 30.8)),
        "cgdl": ((72.3, 44.6, 39.7), (49.3, 22.5, 23.5), (67.3, 33.8, 31.9)),
        "dtc": ((53.9, 39.5, 38.3), (31.3, 22.9, 18.3), (25.6, 20.8, 21.3)),
        "rankstats": ((86.6, 81.0, 82.9), (36.4, 28.4, 23.1), (47.3, 28.7, 40.3)),
        "simclr-kmeans": ((58.3, 63.4, 51.7), (28.6, 21.1, 22.3), (39.0, 35.7, 36.9)),
        "orca, as its authors report it": (
            (88.2, 90.4, 89.7),
            (66.9, 43.0, 48.1),
            (89.1, 72.1, 77.8),
        ),
        "orca": ((88.1, 87.7, 87.8), (66.5, 41.0, 46.6), (89.4, 69.1, 75.5)),
        "orca+pf": ((88.6, 88.8, 88.7), (66.0, 41.3, 47.9), (90.0, 74.4, 79.6)),
    }
    return _fractions(
        {row: dict(zip(datasets, numbers, strict=True)) for row, numbers in rows.items()}
    )


TABLE_1 = _table_1()
"""tab:ood; `orca` as the paper's authors trained it."""

ABLATION = _fractions(
    {
        "full": {"cifar10": (88.60, 88.81, 88.74), "cifar100": (65.99, 41.34, 47.92)},
        "without prototypes": {
            "cifar10": (88.06, 87.71, 87.82),
            "cifar100": (66.45, 40.98, 46.59),
        },
        "without L_cst": {"cifar10": (88.02, 77.34, 76.04), "cifar100": (70.93, 35.72, 40.22)},
        "without L_div": {"cifar10": (87.80, 88.51, 88.27), "cifar100": (65.53, 38.81, 45.87)},
    }
)
"""tab:ablation."""


def published_on(numbers: Published, datasets: tuple[str, ...]) -> Published:
    """The numbers on some data sets, by name or by the folder of a store."""
    panels = {Path(dataset).name for dataset in datasets}
    return {place: values for place, values in numbers.items() if place[1] in panels}

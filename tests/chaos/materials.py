"""What commands read: images, lists, stores, models and runs, whole or left by a killed process."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from chaos.lives import aside
from chaos.stage import Material, Stage, lines, steps

ENCODER = ("--encoder", "simclr-cifar10")


def options(**more: object) -> tuple[str, ...]:
    """The options of a training of a few steps."""
    small: dict[str, object] = {
        "recipe.epochs": 3,
        "recipe.steps_per_epoch": 4,
        "recipe.labeled_batch": 8,
        "recipe.unlabeled_batch": 16,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return tuple(part for key, value in small.items() for part in ("--set", f"{key}={value}"))


ON_IMAGES = options(backbone__width=4)
TRAIN = ("train", "orca+pf", *ON_IMAGES, "--save-every", "0", "--out", "run")
TRAIN_STORE = (
    *("train", "orca+pf", "--store", "store", *options()),
    *("--save-every", "0", "--out", "run"),
)
PRETRAIN = (
    *("pretrain", "--preset", "digits", *ON_IMAGES, "--save-every", "0"),
    *("--out", "simclr"),
)
EMBED = (
    *("embed", "labeled", *ENCODER, "--weak", "2", "--strong", "1", "--processes", "1"),
    *("--out", "store"),
)
FIT = ("fit", "labeled", "pool", *ENCODER, "--steps", "10", "--processes", "1", "--out", "model")
PREDICT = ("predict", "model", "new", "--processes", "1", "--out", "rows.csv")
DEMO = ("demo", "--methods", "orca", "orca+pf", *ON_IMAGES, "--out", "demo")
SUITE = ("suite", "own.yaml", "--workers", "1", "--out", "suites")
YAML = """title: A small suite
data: [store]
seeds: 1
options: [recipe.epochs=2, recipe.steps_per_epoch=3, recipe.labeled_batch=8,
  recipe.unlabeled_batch=16]
methods:
  - orca
  - {row: two, method: orca+pf, options: [head.prototypes=2]}
compare: [[two, orca]]
quantities: [all_strict, auc]
"""
JOURNAL = lines("blocks.jsonl")
ROWS = lines(".rows.*.rows", head=1)


def draw_images(stage: Stage) -> None:
    """Digits as PNG files: 0 to 3 in class folders, 0 to 5 as a pool and as new images."""
    digits = load_digits()
    counts = dict.fromkeys(range(10), 0)
    rows = []
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        counts[label] += 1
        if label < 4 and counts[label] <= 20:
            name = f"labeled/{label}/{number}.png"
            rows.append((name, label))
        elif label < 6 and counts[label] <= 32:
            name = f"pool/{number}.png"
        elif label < 6 and counts[label] <= 42:
            name = f"new/{number}.png"
        else:
            continue
        _write_image(stage.work / name, pixels)
    with (stage.work / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *rows])
    (stage.work / "own.yaml").write_text(YAML)


def _write_image(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    grey = (pixels / 16 * 255).astype(np.uint8)
    Image.fromarray(grey).resize((16, 16)).save(path)


def draw_encoder(stage: Stage) -> None:
    """A convolution as an .onnx file."""
    from onnx import TensorProto, helper, numpy_helper

    kernel = np.random.default_rng(0).normal(size=(5, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["images", "kernel"], ["maps"]),
            helper.make_node("GlobalAveragePool", ["maps"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["features"]),
        ],
        "net",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ("n", 3, 8, 8))],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (stage.work / "net.onnx").write_bytes(made.SerializeToString())


def _ran(*arguments: str, keeps: tuple[str, ...], needs: tuple[str, ...] = ()) -> Material:
    def make(stage: Stage) -> None:
        stage.run(*arguments)

    return Material(make, keeps, needs)


def _run_suite(stage: Stage) -> None:
    stage.run(*SUITE, alone=True)


def write_list(stage: Stage) -> None:
    """The list of labeled images as a Parquet file."""
    from pyarrow import csv as tables  # type: ignore[import-untyped]
    from pyarrow import parquet

    aside(lambda: parquet.write_table(tables.read_csv("list.csv"), "list.parquet"), stage.work)


MATERIALS: dict[str, Material] = {
    "images": Material(draw_images, ("labeled", "pool", "new", "list.csv", "own.yaml")),
    "onnx": Material(draw_encoder, ("net.onnx",)),
    "list": Material(write_list, ("list.parquet",), ("images",)),
    "store": _ran(*EMBED, keeps=("store",), needs=("images",)),
    "cache": _ran(*EMBED, keeps=("cache",), needs=("images",)),
    "model": _ran(*FIT, keeps=("model",), needs=("images",)),
    "run": _ran(*TRAIN, keeps=("run",)),
    "simclr": _ran(*PRETRAIN, keeps=("simclr",)),
    "packed": _ran(
        *("weights", "simclr", "--out", "packed.safetensors"),
        keeps=("packed.safetensors",),
        needs=("simclr",),
    ),
    "split": _ran("split", "orca", "--out", "orca.json", keeps=("orca.json",)),
    "half-run": Material(lambda s: s.cut(*TRAIN, saved=steps, at=5), ("run",)),
    "half-store-run": Material(
        lambda s: s.cut(*TRAIN_STORE, saved=steps, at=5), ("run",), ("store",)
    ),
    "half-store": Material(lambda s: s.cut(*EMBED, saved=JOURNAL, at=2), ("store",), ("images",)),
    "half-fit": Material(
        lambda s: s.cut(*FIT, saved=JOURNAL, at=4), (".model.fitting",), ("images",)
    ),
    "half-rows": Material(
        lambda s: s.cut(*PREDICT, saved=ROWS, at=2), (".rows.csv.rows",), ("images", "model")
    ),
    "half-demo": Material(lambda s: s.cut(*DEMO, saved=steps, at=15), ("demo",)),
    "suites": Material(_run_suite, ("suites",), ("images", "store")),
}

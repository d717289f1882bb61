"""The table of `csv_table` as Parquet; texts have the escapes of predictions."""

from __future__ import annotations

from typing import Any

from protofission.system.optional_libraries import import_optional
from protofission.triage.prediction_table import GROUP, escape_text
from protofission.triage.workbench.exports.csv_table import EXPORT_COLUMNS, cells_of
from protofission.triage.workbench.exports.export_format import ExportFormat, ExportTask


def write(task: ExportTask) -> None:
    """Write the table, GROUP rows at a time."""
    arrow = import_optional("pyarrow", "parquet", "A Parquet file")
    parquet = import_optional("pyarrow.parquet", "parquet", "A Parquet file")
    numbers = {
        "row": arrow.int64(),
        "none_of_these": arrow.bool_(),
        "probability": arrow.float32(),
        "id_score": arrow.float32(),
    }
    kinds = [numbers.get(column, arrow.string()) for column in EXPORT_COLUMNS]
    schema = arrow.schema(zip(EXPORT_COLUMNS, kinds, strict=True))
    images = task.images.images
    with parquet.ParquetWriter(task.place, schema) as writer:
        for start in range(0, len(images), GROUP):
            rows = [cells_of(i, task.path_of(i)) for i in images[start : start + GROUP]]
            arrays = [
                arrow.array([_cell(value) for value in column], kind)
                for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _cell(value: Any) -> Any:
    return escape_text(value) if isinstance(value, str) else value


PARQUET = ExportFormat(
    "Parquet",
    "The table of the CSV as a Parquet file, in which numbers are numbers.",
    write,
    ".parquet",
)

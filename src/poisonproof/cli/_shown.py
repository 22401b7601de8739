"""The rows of a data file as a reader knows them: cells and pictures, not encoded features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.cli._data import TrainedModel
from poisonproof.cli._text import verbosity
from poisonproof.datasets import CheckedRows, Schema
from poisonproof.datasets.image_rows import read_image_rows
from poisonproof.datasets.reading import read_raw
from poisonproof.datasets.rows import RawRows
from poisonproof.progress import make_progress
from poisonproof.schema import ArrayColumn, ImageColumn, NumberColumn, TableSchema, TextColumn

if TYPE_CHECKING:
    from poisonproof.report import Samples

__all__ = ["shown_samples"]


def shown_samples(
    trained: TrainedModel, rows: CheckedRows, image_shape: tuple[int, int, int] | None
) -> Samples:
    """Return how to show the rows that a model was asked about.

    Parameters
    ----------
    trained : TrainedModel
        With a schema, its file is read again for the cells that the schema encoded.
    rows : CheckedRows
        The rows, encoded.
    image_shape : tuple (channels, height, width), optional
        Show the numbers of a row as an image.
    """
    from poisonproof.report import make_samples

    if trained.table is None or image_shape is not None:
        return make_samples(rows.X, names=trained.feature_names, image_shape=image_shape)
    return _declared(trained.table, rows)


def _declared(table: TableSchema, rows: CheckedRows) -> Samples:
    from poisonproof.report import CellSamples, make_samples

    first = table.columns[0]
    if isinstance(first, ImageColumn):
        raw = read_image_rows(
            rows.path,
            first,
            table.limits,
            labelled=rows.labels is not None,
            progress=make_progress(verbosity()),
        )
        return make_samples(raw.X[_positions(raw, rows)])
    if isinstance(first, ArrayColumn):
        raw = read_raw(rows.path, Schema(samples=first.name, limits=table.limits))
        return make_samples(raw.X[_positions(raw, rows)])
    numbers = [column.name for column in table.columns if isinstance(column, NumberColumn)]
    texts = [column.name for column in table.columns if not isinstance(column, NumberColumn)]
    columns = Schema(
        features=numbers, texts=texts, others="ignore", text_numbers=True, limits=table.limits
    )
    raw = read_raw(rows.path, columns)
    which = _positions(raw, rows)
    cells: dict[str, Any] = {name: raw.X[which, i] for i, name in enumerate(numbers)}
    cells |= {
        name: [column[i] for i in which] for name, column in zip(texts, raw.texts, strict=True)
    }
    ordered = {column.name: cells[column.name] for column in table.columns}
    written = {column.name for column in table.columns if isinstance(column, TextColumn)}
    return CellSamples(ordered, written)


def _positions(raw: RawRows, rows: CheckedRows) -> NDArray[np.intp]:
    """Return where the checked rows are among all that were read."""
    position = {place: index for index, place in enumerate(raw.places)}
    return np.array([position[place] for place in rows.places.tolist()], dtype=np.intp)

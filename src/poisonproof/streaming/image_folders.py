"""Folders of image files: one file is one row, its folder is its label."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from poisonproof.datasets.image_rows import count_images, image_parts
from poisonproof.datasets.tables import plain_schema
from poisonproof.exceptions import InvalidInputError
from poisonproof.schema import ImageColumn, TableSchema
from poisonproof.streaming.chunks import Chunk, RowSource, rows_per_chunk
from poisonproof.streaming.encoding import encoded_chunks

__all__ = ["ImageRows"]


@dataclass(frozen=True)
class ImageRows(RowSource):
    """Images in ``CLASS/`` below a folder, read and resized as a schema says.

    Parameters
    ----------
    path : path
        The folder.
    schema : TableSchema
        A frozen schema of kind "images".

    Guarantee
    ---------
    What an image becomes depends on its own file and the schema. A file that is no image is
    rejected alone.

    Examples
    --------
    >>> from poisonproof.schema import freeze_schema
    >>> image = ImageColumn(name="image", height=8, width=8)
    >>> about = {"label": "folder", "classes": ("cat", "dog"), "kind": "images"}
    >>> source = ImageRows("photos", freeze_schema(TableSchema(columns=(image,), **about)))
    """

    path: str | os.PathLike[str]
    schema: TableSchema
    _part: tuple[int, int] | None = field(default=None, repr=False)

    @cached_property
    def _span(self) -> tuple[int, int]:
        """Which of the files are read, in the order of their names."""
        return (0, count_images(Path(self.path))) if self._part is None else self._part

    @property
    def total(self) -> int:
        """The number of files."""
        first, last = self._span
        return last - first

    def split(self, n_parts: int) -> Sequence[RowSource]:
        """Return sources of some of the files each."""
        first, last = self._span
        parts = np.array_split(np.arange(first, last), min(n_parts, max(1, last - first)))
        spans = [(int(part[0]), int(part[-1]) + 1) if len(part) else (0, 0) for part in parts]
        return [replace(self, _part=span) for span in spans]

    def chunks(
        self, chunk_bytes: int, *, allow_missing: bool, invalid_rows: str
    ) -> Iterator[Chunk]:
        """Yield all images that are not held out."""
        self.schema.require_frozen()
        column = self.schema.columns[0]
        if not isinstance(column, ImageColumn):
            raise InvalidInputError(
                f"ImageRows reads folders of images, but the schema is of kind "
                f"{self.schema.kind}. Use DeclaredRows."
            )
        plain = plain_schema(self.schema, labelled=True, grouped=False)
        plain = replace(plain, allow_missing=allow_missing)
        pixels = int(np.prod(column.shape))
        step = rows_per_chunk(chunk_bytes, max(pixels, 8 * column.n_features))
        path = Path(self.path)
        for raw in image_parts(path, column, self.schema.limits, step, *self._span):
            amount = len(raw.places) + len(raw.problems)
            yield from encoded_chunks(
                raw, self.schema, plain, path, chunk_bytes, amount, invalid_rows
            )

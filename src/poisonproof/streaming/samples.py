"""Samples in files that are read from the middle: arrays as they are, frames as Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.partition.frames import is_pandas
from poisonproof.streaming.arrow_frames import to_frame

__all__ = ["ArrayFiles", "FrameFiles", "SampleFiles", "sample_files"]

PIECE = 1 << 22
"""Bytes that are brought into order at a time."""


class SampleFiles(ABC):
    """How the samples of a training set are written to files."""

    @abstractmethod
    def n_bytes(self, X: Any) -> int:
        """Return about how much memory samples take."""

    @abstractmethod
    def write(self, path: Path, parts: list[Any], order: NDArray[np.intp]) -> None:
        """Write the samples of all parts together, in the order given; the list is used up."""

    @abstractmethod
    def read(self, path: Path, start: int, stop: int) -> Any:
        """Return consecutive samples of a file."""

    @abstractmethod
    def fits(self, X: Any) -> bool:
        """Whether samples have the type of those before."""


@dataclass(frozen=True)
class ArrayFiles(SampleFiles):
    """Numbers, row after row."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def n_bytes(self, X: Any) -> int:
        """Return the size of the array."""
        return int(X.nbytes)

    def write(self, path: Path, parts: list[Any], order: NDArray[np.intp]) -> None:
        """Gather and write some rows at a time."""
        whole, filled = np.empty((len(order), *self.shape), self.dtype), 0
        while parts:  # each part goes before the next is copied
            part = parts.pop(0)
            whole[filled : filled + len(part)] = part
            filled += len(part)
        step = max(1, PIECE // max(1, self._row_bytes))
        with path.open("xb") as file:  # a new file: no link can lead elsewhere
            for start in range(0, len(order), step):
                np.take(whole, order[start : start + step], axis=0).tofile(file)

    def read(self, path: Path, start: int, stop: int) -> NDArray[Any]:
        """Read a stretch of the file."""
        count = (stop - start) * int(np.prod(self.shape))
        flat = np.fromfile(path, self.dtype, count, offset=start * self._row_bytes)
        return flat.reshape(stop - start, *self.shape)

    def fits(self, X: Any) -> bool:
        """Whether dtype and shape are the same."""
        return isinstance(X, np.ndarray) and (X.dtype, X.shape[1:]) == (self.dtype, self.shape)

    @property
    def _row_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape))


@dataclass(frozen=True)
class FrameFiles(SampleFiles):
    """Data frames as Arrow files of one record batch."""

    schema: Any

    def n_bytes(self, X: Any) -> int:
        """Return the size of the columns."""
        return int(X.memory_usage(index=False, deep=True).sum())

    def write(self, path: Path, parts: list[Any], order: NDArray[np.intp]) -> None:
        """Join, order and write the frames."""
        import pyarrow as pa

        tables = [pa.Table.from_pandas(part, self.schema, preserve_index=False) for part in parts]
        whole = pa.concat_tables(tables).take(pa.array(order)).combine_chunks()
        with path.open("xb") as sink, pa.ipc.new_file(sink, whole.schema) as file:
            file.write_table(whole, max_chunksize=max(1, len(whole)))

    def read(self, path: Path, start: int, stop: int) -> Any:
        """Map the file and copy a stretch of it."""
        import pyarrow as pa

        with pa.memory_map(str(path)) as source:
            file = pa.ipc.open_file(source)
            batches = [file.get_batch(i) for i in range(file.num_record_batches)]
            table = pa.Table.from_batches(batches, file.schema)
            return to_frame(table.slice(start, stop - start))

    def fits(self, X: Any) -> bool:
        """Whether the columns are the same; a source checks their types."""
        return is_pandas(X) and list(X.columns) == self.schema.names


def sample_files(X: Any) -> SampleFiles:
    """Return how samples like `X` are kept."""
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        return ArrayFiles(X.dtype, X.shape[1:])
    raise InvalidInputError(
        f"A source must yield arrays of numbers, or say how else samples are kept. Got "
        f"{type(X).__name__}."
    )

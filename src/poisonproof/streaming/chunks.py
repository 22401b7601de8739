"""Pieces of a source: as many rows as fit in a small share of the memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poisonproof.datasets import RowProblem
from poisonproof.exceptions import InvalidInputError
from poisonproof.extras import needing
from poisonproof.streaming.samples import SampleFiles

__all__ = ["Chunk", "RowSource", "open_file", "rows_per_chunk"]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some consecutive rows of a source.

    Attributes
    ----------
    X : array or DataFrame of m samples
    y : array of shape (m,)
        Labels.
    groups, sample_weight : array of shape (m,) or None
    where : str
        The file and its rows, for error messages.
    amount : int
        How far it brings the reader, in the unit of `RowSource.total`.
    problems : tuple of RowProblem
        Rows that were left out because they do not fit.
    """

    X: Any
    y: Any
    groups: Any
    sample_weight: Any
    where: str
    amount: int
    problems: tuple[RowProblem, ...] = ()


class RowSource(ABC):
    """Labelled rows that are read piece by piece, as often as one likes."""

    @property
    @abstractmethod
    def total(self) -> int:
        """The sum of the amounts of all chunks: rows, or bytes where rows are not counted."""

    @abstractmethod
    def chunks(
        self, chunk_bytes: int, *, allow_missing: bool, invalid_rows: str
    ) -> Iterator[Chunk]:
        """Yield all rows once.

        Parameters
        ----------
        chunk_bytes : int
            About how much memory the samples of a chunk may take.
        allow_missing : bool
            Whether members take missing values.
        invalid_rows : {"raise", "drop"}
            What to do with a row that does not fit.
        """

    def sample_files(self) -> SampleFiles | None:
        """Return how samples are kept on disk; None for arrays, which say it themselves."""
        return None

    def split(self, n_parts: int) -> Sequence[RowSource]:
        """Return at most `n_parts` sources that hold these rows together, for worker processes."""
        return [self]


def rows_per_chunk(chunk_bytes: int, row_bytes: int) -> int:
    """Return how many rows a chunk has.

    >>> rows_per_chunk(2**24, 160)
    104857
    """
    return max(256, chunk_bytes // max(1, row_bytes))


@contextmanager
def open_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file whose row groups are read as they are asked for.

    Raises
    ------
    InvalidInputError
        If the file is not Parquet, or turns out to be damaged within the block.
    """
    with needing("pyarrow", "data"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    try:
        # A buffer per column instead of whole row groups: these may be as large as the file.
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        first = str(error).strip().splitlines()[0]
        raise InvalidInputError(f"{path} is not a readable Parquet file: {first}") from error

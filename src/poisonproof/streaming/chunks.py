"""Pieces of a source: as many rows as fit in a small share of the memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from poisonproof.datasets import RowProblem
from poisonproof.exceptions import InvalidRowsError
from poisonproof.streaming.samples import SampleFiles

__all__ = ["Chunk", "RowSource", "rejection", "rows_per_chunk"]


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


def rejection(where: object, problems: Sequence[RowProblem], invalid_rows: str) -> Iterator[Chunk]:
    """Yield a chunk without rows that counts what was left out, or raise `InvalidRowsError`."""
    if problems and invalid_rows == "raise":
        raise InvalidRowsError(
            f"{where}: {problems[0].place}: {problems[0].reason}. Correct it, or leave out what "
            "cannot be read: invalid_rows='drop'."
        )
    if problems:
        yield Chunk((), (), None, None, str(where), 0, tuple(problems))


def rows_per_chunk(chunk_bytes: int, row_bytes: int) -> int:
    """Return how many rows a chunk has.

    >>> rows_per_chunk(2**24, 160)
    104857
    """
    return max(1, chunk_bytes // max(1, row_bytes))

"""Matrix products whose bits depend on nothing but the two rows that meet.

A BLAS product adds its terms in an order that depends on the shapes of the matrices and on where
a row lies in them, so in floating point the neighbours of a row can change its bits. Sums of
integers below 2^24 (float32) or 2^53 (float64) have no rounding, hence no order. Rows are
therefore rounded once, each by itself, to integers short enough for every product to be exact;
from then on tiles, threads, memory limits and BLAS libraries only schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError

Precision = Literal["single", "double"]

# Longest integer row: by Cauchy-Schwarz no partial sum of a product of two rows exceeds the
# product of their lengths, so lengths up to 2^12 and 2^26 keep them within 2^24 and 2^52.
_LONGEST: dict[str, float] = {"single": 2.0**12, "double": 2.0**26}
_DTYPE: dict[str, type[np.floating[Any]]] = {"single": np.float32, "double": np.float64}
_CHUNK = 1024


@dataclass(frozen=True)
class ExactRows:
    """Rows of integers, each with a power of two.

    Attributes
    ----------
    values : ndarray of shape (n, d), float32 or float64, or (g, n, d) for g stacks of rows
        Integers of Euclidean length at most 2^12 (float32) or 2^26 (float64).
    exponents : ndarray of shape (n,), int32, or (g, n)
        Row j stands for ``values[j] * 2.0 ** exponents[j]``.
    """

    values: NDArray[Any]
    exponents: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.exponents)

    def __getitem__(self, rows: Any) -> ExactRows:
        return ExactRows(self.values[rows], self.exponents[rows])

    @property
    def scales(self) -> NDArray[np.float64]:
        """The value of one unit of each row, shape (n,)."""
        scales: NDArray[np.float64] = np.ldexp(1.0, self.exponents)
        return scales

    def square_lengths(self) -> NDArray[np.float64]:
        """Return the squared lengths of the integer rows, exactly, shape (n,)."""
        blocks = np.split(self.values, range(_CHUNK, len(self), _CHUNK))
        exact = (block.astype(np.float64) for block in blocks)
        return np.concatenate([np.einsum("ij,ij->i", block, block) for block in exact])

    def floats(self) -> NDArray[np.float64]:
        """Return the rows the integers stand for, float64 of shape (n, d)."""
        rows: NDArray[np.float64] = np.ldexp(
            self.values.astype(np.float64), self.exponents[:, np.newaxis]
        )
        return rows


def exact_rows(X: Any, precision: Precision = "double") -> ExactRows:
    """Round every row of `X` to integers, each by itself.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Finite numbers.
    precision : {"single", "double"}
        "double" keeps 25 bits of a row's length, as many as float32 keeps of a number, and
        multiplies in float64. "single" keeps 11 bits and multiplies in float32, twice as fast.
        Integers that fit are kept as they are.

    Returns
    -------
    ExactRows
        The rounded rows.

    Guarantee
    ---------
    Row j of the result is a function of ``X[j]``, d and `precision` alone.

    Examples
    --------
    >>> import numpy as np
    >>> rows = exact_rows(np.array([[1.0, 2.0], [0.1, 0.0], [0.0, 0.0]]))
    >>> rows.floats()[0]
    array([1., 2.])
    >>> float(abs(rows.floats()[1, 0] - 0.1)) < 2**-28
    True
    """
    if precision not in _LONGEST:
        raise InvalidInputError(f"precision must be 'single' or 'double', but is {precision!r}.")
    X = np.asarray(X)
    n, d = X.shape
    # Rounding moves a row by at most sqrt(d) / 2; the row must still fit afterwards.
    room = _LONGEST[precision] - np.sqrt(d)
    if room < _LONGEST[precision] / 2:
        raise InvalidRowsError(
            f"Rows of {d} columns are too wide for precision={precision!r}, which holds up to "
            f"{int(_LONGEST[precision] ** 2 / 4)}. Use precision='double' or fewer columns."
        )
    values = np.empty((n, d), dtype=_DTYPE[precision])
    exponents = np.empty(n, dtype=np.int32)
    for start in range(0, n, _CHUNK):
        stop = min(start + _CHUNK, n)
        values[start:stop], exponents[start:stop] = _round(
            np.ascontiguousarray(X[start:stop], dtype=np.float64), room
        )
    return ExactRows(values, exponents)


def _round(block: NDArray[np.float64], room: float) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Scale each row by a power of two to a length in (room / 2, room] and round it."""
    largest = np.abs(block).max(axis=1, initial=0.0)
    if not np.isfinite(largest).all():
        raise InvalidRowsError(
            "X contains NaN or infinity, or values so large that products of them overflow; every "
            "value must be finite. Drop or fill those rows, or scale the features."
        )
    first = np.frexp(largest)[1]
    block = np.ldexp(block, -first[:, np.newaxis])
    # A sum along the contiguous axis of one row: the same additions wherever the row lies.
    length = np.sqrt(np.add.reduce(block * block, axis=1))
    mantissa, power = np.frexp(length / room)
    # frexp gives [1/2, 1) * 2^power, so dividing by 2^power leaves a length below `room`.
    np.ldexp(block, -power[:, np.newaxis], out=block)
    np.rint(block, out=block)
    block += 0.0  # one zero
    exponents = np.where(mantissa > 0, first + power, 0).astype(np.int32)
    return block, exponents


def exact_product(left: ExactRows, right: ExactRows) -> NDArray[Any]:
    """Return the integer inner products of all pairs, shape (len(left), len(right)).

    Entry (i, j) times ``left.scales[i] * right.scales[j]`` is the inner product of the rows
    they stand for.

    Guarantee
    ---------
    No rounding happens, so entry (i, j) is a function of ``left[i]`` and ``right[j]`` alone.

    Assumes
    -------
    The BLAS behind NumPy adds products of entries, in any order, in the precision of its input: it
    neither emulates float32 by shorter numbers nor adds rows before multiplying (Strassen).
    """
    product: NDArray[Any] = left.values @ right.values.swapaxes(-1, -2)
    return product

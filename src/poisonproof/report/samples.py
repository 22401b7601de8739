"""Test rows as a reader sees them: a thumbnail, a text, or a few named values."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from poisonproof.exceptions import InvalidInputError, needing

_MOST_VALUES = 10
_MOST_CHARACTERS = 400
_LONGEST_SIDE = 96
_COLOUR_CHANNELS = 3


@dataclass(frozen=True)
class Sample:
    """One test row, ready to be shown.

    Attributes
    ----------
    image : str
        A PNG as a ``data:`` address.
    text : str
        A text, shortened.
    values : tuple of (str, str)
        Names and values of the first few features.
    more : int
        Features that are not shown.
    """

    image: str = ""
    text: str = ""
    values: tuple[tuple[str, str], ...] = ()
    more: int = 0


class Samples(Protocol):
    """A test set whose rows can be shown."""

    def __len__(self) -> int: ...

    def show(self, row: int) -> Sample:
        """Return one row."""


class SomeSamples:
    """Some rows of a test set, by their numbers in it."""

    def __init__(self, samples: Samples, rows: NDArray[np.intp]) -> None:
        self._samples, self._rows = samples, rows

    def __len__(self) -> int:
        return len(self._rows)

    def show(self, row: int) -> Sample:
        """Return one row."""
        return self._samples.show(int(self._rows[row]))


class TextSamples:
    r"""Texts, cut after 400 characters; characters without a shape are made visible.

    Examples
    --------
    >>> TextSamples(["free\x00 money"]).show(0).text
    'free␀ money'
    """

    def __init__(self, texts: Sequence[object]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def show(self, row: int) -> Sample:
        """Return one text."""
        return Sample(text=visible(str(self._texts[row]), _MOST_CHARACTERS))


class TableSamples:
    """Rows of numbers or cells, with the names of their columns where they have any."""

    def __init__(self, X: Any, names: Sequence[str] | None = None) -> None:
        self._X: Any = X.tocsr() if hasattr(X, "tocsr") else X
        self._names = names if names is not None else getattr(X, "columns", None)

    def __len__(self) -> int:
        return int(self._X.shape[0])

    def show(self, row: int) -> Sample:
        """Return the first few values of a row; of a sparse row, those that are not zero."""
        if hasattr(self._X, "tocsr"):
            cells = self._X[row]
            columns, values = cells.indices, cells.data
        else:
            cells = self._X.iloc[row] if hasattr(self._X, "iloc") else self._X[row]
            values = np.asarray(cells, dtype=object).ravel()
            columns = np.arange(len(values))
        shown = tuple(
            (self._name(int(column)), visible(_cell(value), 60))
            for column, value in zip(columns[:_MOST_VALUES], values[:_MOST_VALUES], strict=True)
        )
        return Sample(values=shown, more=len(values) - len(shown))

    def _name(self, column: int) -> str:
        return f"feature {column}" if self._names is None else visible(str(self._names[column]), 40)


class CellSamples:
    """Rows of a table whose columns are declared: texts as texts, everything else as values.

    Parameters
    ----------
    columns : mapping of str to sequence
        The cells of every column, each of length n.
    texts : collection of str
        Columns to show as text.

    Examples
    --------
    >>> samples = CellSamples({"subject": ["free money"], "links": [7.0]}, texts={"subject"})
    >>> samples.show(0).text, samples.show(0).values
    ('free money', (('links', '7'),))
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]], texts: Collection[str] = ()) -> None:
        self._columns = columns
        self._texts = [name for name in columns if name in texts]
        self._values = [name for name in columns if name not in texts]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def show(self, row: int) -> Sample:
        """Return the texts of a row and the first few of its other cells."""
        texts = [(name, str(self._columns[name][row] or "")) for name in self._texts]
        parts = [text if len(texts) == 1 else f"{name}: {text}" for name, text in texts]
        shown = self._values[:_MOST_VALUES]
        return Sample(
            text=visible(" | ".join(parts), _MOST_CHARACTERS),
            values=tuple(
                (visible(name, 40), visible(_cell(self._columns[name][row]), 60)) for name in shown
            ),
            more=len(self._values) - len(shown),
        )


class ImageSamples:
    """Images as small PNG pictures.

    Parameters
    ----------
    X : ndarray of shape (n, ...)
        Pixels; each row is reshaped.
    shape : tuple of int
        (channels, height, width), with 1 or 3 channels.

    Examples
    --------
    >>> ImageSamples(np.arange(16.0).reshape(1, 16), (1, 4, 4)).show(0).image[:22]
    'data:image/png;base64,'
    """

    def __init__(self, X: NDArray[Any], shape: tuple[int, int, int]) -> None:
        channels, height, width = shape
        if channels not in (1, _COLOUR_CHANNELS):
            raise InvalidInputError(f"An image has 1 or 3 channels, not {channels}.")
        pixels = np.asarray(X)
        if pixels[0].size != channels * height * width:
            raise InvalidInputError(
                f"A row has {pixels[0].size} values, but an image of shape "
                f"{channels}x{height}x{width} has {channels * height * width}."
            )
        self._X, self._shape = pixels, shape
        self._low, self._high = _range(pixels)

    def __len__(self) -> int:
        return len(self._X)

    def show(self, row: int) -> Sample:
        """Return one picture."""
        with needing("pillow", "report"):
            from PIL import Image
        scaled = (self._X[row].astype(np.float64) - self._low) / (self._high - self._low)
        levels = np.rint(255 * np.clip(np.nan_to_num(scaled), 0, 1)).astype(np.uint8)
        pixels = levels.reshape(self._shape)
        picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
        picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
        buffer = io.BytesIO()
        picture.save(buffer, format="png", optimize=True)
        return Sample(image=f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}")


def make_samples(
    X: Any, *, names: Sequence[str] | None = None, image_shape: tuple[int, int, int] | None = None
) -> Samples:
    """Choose how to show the rows of a test set.

    Parameters
    ----------
    X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
        Samples.
    names : sequence of str, optional
        Names of the features.
    image_shape : tuple (channels, height, width), optional
        Every row is an image of this shape. Arrays of shape (n, height, width) and
        (n, channels, height, width) are images in any case.
    """
    if image_shape is not None:
        return ImageSamples(X, image_shape)
    if sparse.issparse(X) or hasattr(X, "iloc"):
        return TableSamples(X, names)
    array = np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
    if array.ndim == 1:
        return TextSamples(array.tolist())
    if array.ndim == 3:
        return ImageSamples(array, (1, *array.shape[1:]))
    if array.ndim == 4 and array.shape[1] in (1, _COLOUR_CHANNELS):
        return ImageSamples(array, array.shape[1:])
    if array.ndim == 2 and array.shape[1] == 1 and isinstance(array[0, 0], str):
        return TextSamples(array[:, 0].tolist())
    return TableSamples(array, names)


def visible(text: str, most: int) -> str:
    r"""Return a text without invisible control characters, shortened to `most` characters.

    Control characters and those that turn the direction of writing could make a row look like
    another one.

    >>> visible("a\u202eb", 9), visible("abcdef", 4)
    ('a·b', 'abc…')
    """
    shortened = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(_visible_character(character) for character in shortened)


def _visible_character(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return " " if character in "\t\n\r" else chr(0x2400 + code)
    if 0x7F <= code < 0xA0 or code in _INVISIBLE or 0xD800 <= code < 0xE000:
        return "·"
    return character


_INVISIBLE = frozenset(
    [*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF]
)


def _cell(value: object) -> str:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "missing"
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value)


def _range(pixels: NDArray[Any]) -> tuple[float, float]:
    if pixels.dtype == np.uint8:
        return 0.0, 255.0
    finite = pixels[np.isfinite(pixels)] if pixels.dtype.kind == "f" else pixels
    low = min(0.0, float(finite.min(initial=0)))
    high = float(finite.max(initial=0))
    return low, high if high > low else low + 1.0

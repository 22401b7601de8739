"""Test rows as a reader sees them: a thumbnail, a text, or a few named values."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from poisonproof.data.value_text import escaped
from poisonproof.exceptions import InvalidInputError, needing

_MOST_VALUES = 10
_MOST_CHARACTERS = 400
_LONGEST_SIDE = 96
_COLOUR_CHANNELS = 3


@dataclass(frozen=True)
class Sample:
    """One test row to show: a PNG as ``data:`` address, a text, or the first few named values."""

    image: str = ""
    text: str = ""
    values: tuple[tuple[str, str], ...] = ()
    more: int = 0


@dataclass(frozen=True)
class Samples:
    """A test set whose rows can be shown: `show` returns the `Sample` of a row number."""

    n_rows: int
    show: Callable[[int], Sample]

    def __len__(self) -> int:
        return self.n_rows

    def only(self, rows: NDArray[np.intp]) -> Samples:
        """Return some of the rows, by their numbers."""
        return Samples(len(rows), lambda row: self.show(int(rows[row])))


def make_samples(
    X: Any, *, names: Sequence[str] | None = None, image_shape: tuple[int, int, int] | None = None
) -> Samples:
    r"""Choose how to show the rows of a test set.

    Parameters
    ----------
    X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
        Samples.
    names : sequence of str, optional
        Names of the features.
    image_shape : tuple (channels, height, width), optional
        Every row is an image of this shape. Arrays of shape (n, height, width) and
        (n, channels, height, width) are images in any case.

    Examples
    --------
    >>> make_samples(["free\x00 money"]).show(0).text
    'free\\x00 money'
    >>> make_samples(np.arange(16.0).reshape(1, 16), image_shape=(1, 4, 4)).show(0).image[:22]
    'data:image/png;base64,'
    """
    if image_shape is not None:
        return _images(np.asarray(X), image_shape)
    if sparse.issparse(X) or hasattr(X, "iloc"):
        return _table(X, names)
    array = np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
    if array.ndim == 3:
        return _images(array, (1, *array.shape[1:]))
    if array.ndim == 4 and array.shape[1] in (1, _COLOUR_CHANNELS):
        return _images(array, array.shape[1:])
    texts = array.ravel()
    if array.ndim == 1 or (array.shape[1:] == (1,) and isinstance(texts[0], str)):
        return cell_samples({"text": texts}, {"text"})
    return _table(array.reshape(len(array), -1), names)


def cell_samples(columns: Mapping[str, Any], texts: Collection[str] = ()) -> Samples:
    """Return rows of declared columns: `texts` as texts, everything else as values.

    Examples
    --------
    >>> samples = cell_samples({"subject": ["free money"], "links": [7.0]}, texts={"subject"})
    >>> samples.show(0).text, samples.show(0).values
    ('free money', (('links', '7'),))
    """
    written = [name for name in columns if name in texts]
    others = [name for name in columns if name not in texts]

    def show(row: int) -> Sample:
        parts = [(name, str(columns[name][row] or "")) for name in written]
        lines = [text if len(parts) == 1 else f"{name}: {text}" for name, text in parts]
        return _values([(name, columns[name][row]) for name in others], visible(" | ".join(lines)))

    return Samples(len(next(iter(columns.values()))), show)


def _table(X: Any, names: Sequence[str] | None) -> Samples:
    """Return rows of numbers; of a sparse row, those that are not zero."""
    known = names if names is not None else getattr(X, "columns", None)
    known = [f"feature {i}" for i in range(X.shape[1])] if known is None else list(map(str, known))
    is_sparse = sparse.issparse(X)
    if not is_sparse:
        columns = np.asarray(X, dtype=object).T if hasattr(X, "iloc") else X.T
        return cell_samples(dict(zip(known, columns, strict=True)))
    rows = X.tocsr()

    def show(row: int) -> Sample:
        cells = rows[row]
        return _values([(known[i], v) for i, v in zip(cells.indices, cells.data, strict=True)])

    return Samples(rows.shape[0], show)


def _values(cells: list[tuple[str, Any]], text: str = "") -> Sample:
    shown = tuple(
        (visible(name, 40), visible(_cell(cell), 60)) for name, cell in cells[:_MOST_VALUES]
    )
    return Sample(text=text, values=shown, more=len(cells) - len(shown))


def _images(pixels: NDArray[Any], shape: tuple[int, ...]) -> Samples:
    """Return images as small PNG pictures; each row is reshaped to (channels, height, width)."""
    if shape[0] not in (1, _COLOUR_CHANNELS):
        raise InvalidInputError(f"An image has 1 or 3 channels, not {shape[0]}.")
    if pixels[0].size != np.prod(shape):
        raise InvalidInputError(
            f"A row has {pixels[0].size} values, but an image of shape "
            f"{'x'.join(map(str, shape))} has {np.prod(shape)}."
        )
    low, high = _range(pixels)

    def show(row: int) -> Sample:
        with needing("pillow", "report"):
            from PIL import Image
        scaled = (pixels[row].astype(np.float64) - low) / (high - low)
        levels = np.rint(255 * np.clip(np.nan_to_num(scaled), 0, 1)).astype(np.uint8)
        image = levels.reshape(shape)
        picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
        picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
        buffer = io.BytesIO()
        picture.save(buffer, format="png", optimize=True)
        content = base64.b64encode(buffer.getvalue()).decode()
        return Sample(image=f"data:image/png;base64,{content}")

    return Samples(len(pixels), show)


def _range(pixels: NDArray[Any]) -> tuple[float, float]:
    if pixels.dtype == np.uint8:
        return 0.0, 255.0
    finite = pixels[np.isfinite(pixels)] if pixels.dtype.kind == "f" else pixels
    low = min(0.0, float(finite.min(initial=0)))
    high = float(finite.max(initial=0))
    return low, high if high > low else low + 1.0


def visible(text: str, most: int = _MOST_CHARACTERS) -> str:
    r"""Return a text on one line of at most `most` characters; what could hide is spelt out.

    >>> visible("a\u202eb", 9), visible("abcdef", 4)
    ('a\\u202eb', 'abc…')
    """
    shortened = text if len(text) <= most else f"{text[: most - 1]}…"
    return escaped(shortened.translate(dict.fromkeys(map(ord, "\t\n\r"), " ")))


def _cell(value: object) -> str:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "missing"
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value)

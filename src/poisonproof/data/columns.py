"""Columns of a table: what a cell may hold, what a missing one means, how it becomes numbers."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.files import cache_folder

if TYPE_CHECKING:
    from poisonproof.features.base import FrozenTransformer
    from poisonproof.features.images import ImageMap


@dataclass(eq=False, repr=False)
class Reasons(dict[int, str]):
    """Reasons for rejecting rows, by row number; those of a single cell stand in `cells`.

    A cell that does not fit rejects its row, or, for members that each see some columns alone, it
    is missing.

    Attributes
    ----------
    cells : dict of (int, str) to str
        By row number and name of the column.
    """

    cells: dict[tuple[int, str], str] = field(default_factory=dict)

    def by_row(self) -> dict[int, str]:
        """Return the first reason of every row, where a cell that does not fit rejects its row."""
        found = dict(self)
        for (row, _), why in self.cells.items():
            found.setdefault(row, why)
        return found

    def add(self, other: Reasons) -> None:
        """Add the reasons of another source; what was there stays."""
        for row, why in other.items():
            self.setdefault(row, why)
        for cell, why in other.cells.items():
            self.cells.setdefault(cell, why)


MAX_FEATURES = 2**20
"""The largest number of features that one column may become."""


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """A column of the source.

    Parameters
    ----------
    name : str
        What the source calls it.

    Attributes
    ----------
    type : str
        What the schema file calls this kind of column.
    plain : bool
        Whether cells are numbers as programs write them. All others are read as texts.
    """

    name: str

    type: ClassVar[str]
    plain: ClassVar[bool] = False
    _called: ClassVar[str] = "column"
    _if_set: ClassVar[tuple[str, ...]] = ()
    """Keys that a schema file names only where they are set."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """The number of features that a cell becomes."""

    @abstractmethod
    def encode(self, cells: Any, reasons: Reasons) -> NDArray[Any]:
        """Return the features of every row, shape (n, d), and add why cells do not fit.

        Row i is a function of cell i and the column. Cells are float64 of shape (n,) for numbers
        (NaN if empty), text or None for categories, texts and dates, numbers of shape (n, ...) for
        arrays and images.
        """

    def to_json(self) -> dict[str, Any]:
        """Return the column as it stands in a schema file."""
        default = {field.name: field.default for field in fields(self)}
        values = {
            key: value
            for key, value in asdict(self).items()
            if key not in self._if_set or value != default[key]
        }
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
        return {"name": self.name, "type": self.type, **plain}

    def _refuse(self, message: str) -> InvalidInputError:
        return InvalidInputError(f"Column {self.name!r} of the schema: {message}")

    def _reject(self, rows: NDArray[np.bool_], why: str, reasons: Reasons) -> None:
        for row in np.flatnonzero(rows).tolist():
            reasons.cells.setdefault((row, self.name), f"{self._called} {self.name!r} {why}")

    def _reject_cell(self, row: int, cell: str, why: str, reasons: Reasons) -> None:
        message = f"{self._called} {self.name!r}: {cell[:40]!r} is {why}"
        reasons.cells.setdefault((row, self.name), message)

    def _check_choice(self, key: str, value: object, allowed: tuple[str, ...]) -> None:
        if value not in allowed:
            raise self._refuse(f"{key} is one of {', '.join(allowed)}. Got {value!r}.")

    def _parse(
        self,
        cells: Sequence[str | None],
        read: Callable[[str], float],
        what: str,
        reasons: Reasons,
    ) -> NDArray[np.float64]:
        """Return what each cell says, NaN for empty ones and for those that are rejected."""
        values = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            try:
                values[row] = np.nan if cell is None else read(cell)
            except ValueError:
                self._reject_cell(row, str(cell), what, reasons)
        return values

    def _check_count(self, key: str, value: object, largest: int) -> None:
        if type(value) is not int or not 1 <= value <= largest:
            raise self._refuse(f"{key} is an integer from 1 to {largest:,}. Got {value!r}.")


NUMBER_FORMATS: Mapping[str, tuple[str, str]] = {
    "1234.5": ("", "."),
    "1,234.5": (",", "."),
    "1234,5": ("", ","),
    "1.234,5": (".", ","),
    "1 234,5": (" ", ","),
    "1 234.5": (" ", "."),
    "1'234.5": ("'", "."),
}
"""Marks between thousands and before the fraction, by an example."""


@dataclass(frozen=True, kw_only=True)
class NumberColumn(Column):
    """A number: ``(cell - center) / scale``, both declared.

    Parameters
    ----------
    name : str
    missing : {"reject", "nan"} or float
        An empty cell rejects its row, stays missing (for members that take missing values), or
        becomes this number, with a second feature that says so.
    center, scale : float
        Constants. Computed from the untrusted rows they would tie all members together.
    unit : str
        A text that may stand before or behind the number, such as ``%`` or ``$``. It is left out:
        ``12.5 %`` is 12.5.
    format : str
        How numbers are written, as one of `NUMBER_FORMATS`; empty for ``-1234.5`` and ``1e-9``.

    Examples
    --------
    >>> NumberColumn(name="length", missing=0.0).n_features
    2
    >>> NumberColumn(name="price", unit="$", format="1,234.5").number("-$1,250.50")
    -1250.5
    """

    type: ClassVar[str] = "number"
    _if_set: ClassVar[tuple[str, ...]] = ("unit", "format")

    missing: str | float = "reject"
    center: float = 0.0
    scale: float = 1.0
    unit: str = ""
    format: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.missing, str):
            self._check_choice("missing", self.missing, ("reject", "nan"))
        for key in ("missing", "center", "scale"):
            value = getattr(self, key)
            if isinstance(value, str) and key == "missing":
                continue
            if type(value) not in (int, float) or not math.isfinite(value):
                raise self._refuse(f"{key} must be a finite number. Got {value!r}.")
            object.__setattr__(self, key, float(value))
        if self.scale <= 0:
            raise self._refuse(f"scale must be above 0. Got {self.scale!r}.")
        self._check_choice("format", self.format, ("", *NUMBER_FORMATS))
        if not isinstance(self.unit, str) or re.search(r"[\d.,+-]|^\s|\s$", self.unit):
            raise self._refuse(f"unit is a text without digits, such as %. Got {self.unit!r}.")
        object.__setattr__(self, "plain", not (self.unit or self.format))

    @property
    def point(self) -> str:
        """The decimal point of the declared format."""
        return NUMBER_FORMATS[self.format or "1234.5"][1]

    def number(self, cell: str) -> float:
        """Return a cell as a number, NaN if it is empty; anything else raises ValueError."""
        text = cell.strip() if self.plain else re.sub(r"\s", " ", cell).strip()
        if self.plain or not text:
            return cell_number(text)
        sign = text[:1] if text[0] in "+-" else ""
        text = text.removeprefix(sign).removeprefix(self.unit).removesuffix(self.unit).strip()
        if not sign and text[:1] in ("+", "-"):  # $-5, where -$5 is read as well
            sign, text = text[0], text[1:]
        mark, point = NUMBER_FORMATS[self.format or "1234.5"]
        if not _digits(mark, point).fullmatch(text):
            raise ValueError(f"{_shown(cell)} is not a number")
        return float(sign + text.replace(mark, "").replace(point, "."))

    def parse(self, cells: Sequence[str | None], reasons: Reasons) -> NDArray[np.float64]:
        """Return cells that were read as text as numbers, NaN where they are empty or none."""
        return self._parse(cells, self.number, "not a number", reasons)

    @property
    def n_features(self) -> int:
        """One, and another one where missing cells are filled."""
        return 1 if isinstance(self.missing, str) else 2

    def encode(self, cells: NDArray[np.float64], reasons: Reasons) -> NDArray[np.float64]:
        """Center and scale; fill missing cells if so declared."""
        with np.errstate(over="ignore", invalid="ignore"):
            values = (cells - self.center) / self.scale
        self._reject(np.isinf(values), "is infinite or too large for a float64", reasons)
        missing = np.isnan(cells)
        if self.missing == "reject":
            self._reject(missing, "is missing", reasons)
        if isinstance(self.missing, str):
            return values[:, np.newaxis]
        values[missing] = (self.missing - self.center) / self.scale
        return np.column_stack([values, missing])


def cell_number(cell: str) -> float:
    """Return a cell as a number, NaN if it is empty; anything else raises ValueError."""
    text = cell.strip()
    if not text:
        return math.nan
    if not text.isascii() or "_" in text:  # float would read '1_000' and other alphabets' digits
        raise ValueError(f"{_shown(cell)} is not a number")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{_shown(cell)} is not a number") from None


def _shown(cell: str) -> str:
    return repr(cell) if len(cell) <= 40 else f"{cell[:40]!r}..."


@cache
def _digits(thousands: str, decimal: str) -> re.Pattern[str]:
    """Return how numbers are written without sign and exponent."""
    mark, point = re.escape(thousands), re.escape(decimal)
    whole = rf"(?:\d{{1,3}}(?:{mark}\d{{3}})+|\d+)" if thousands else r"\d+"
    return re.compile(rf"{whole}(?:{point}\d*)?|{point}\d+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class CategoryColumn(Column):
    """One of a declared list of texts: one feature each, 1 for the one that the cell holds.

    Parameters
    ----------
    name : str
    categories : tuple of str
        The declared texts, compared exactly.
    unknown, missing : {"other", "reject"}
        What another text, and an empty cell, does: it becomes the category "other", one more
        feature, or rejects its row.

    Examples
    --------
    >>> CategoryColumn(name="country", categories=("DE", "FR")).n_features
    3
    """

    type: ClassVar[str] = "category"

    categories: tuple[str, ...]
    unknown: str = "other"
    missing: str = "other"

    def __post_init__(self) -> None:
        names = tuple(self.categories) if isinstance(self.categories, (list, tuple)) else ()
        if not names or not all(isinstance(name, str) and name for name in names):
            raise self._refuse(f"categories is a list of texts. Got {self.categories!r}.")
        if len(set(names)) < len(names):
            raise self._refuse("a category is listed twice.")
        object.__setattr__(self, "categories", names)
        self._check_choice("unknown", self.unknown, ("other", "reject"))
        self._check_choice("missing", self.missing, ("other", "reject"))

    @property
    def has_other(self) -> bool:
        """Whether there is a feature for everything that is not listed."""
        return "other" in (self.unknown, self.missing)

    @property
    def n_features(self) -> int:
        """One per category, and one for the rest."""
        return len(self.categories) + self.has_other

    def encode(self, cells: Sequence[str | None], reasons: Reasons) -> NDArray[np.float64]:
        """Return a one for each row, in the column of its category."""
        index = positions(self.categories)
        other = len(self.categories)
        hot = np.zeros((len(cells), other + 1))
        for row, cell in enumerate(cells):
            position = other if cell is None else index.get(cell, other)
            hot[row, position] = 1.0
            if cell is not None and position == other and self.unknown == "reject":
                self._reject_cell(row, cell, "not one of the declared categories", reasons)
        if self.missing == "reject":
            self._reject(_empty(cells), "is missing", reasons)
        return hot if self.has_other else hot[:, :other]


@dataclass(frozen=True, kw_only=True)
class TextColumn(Column):
    """A text, as hashed n-grams or by a sentence-embedding model that the user has.

    Parameters
    ----------
    name : str
    missing : {"empty", "reject"}
        An empty cell is the empty text, or rejects its row.
    encoder : {"ngrams", "sentences"}
        Hashed n-grams, or the model in the folder `model`.
    size : int
        Features: columns of the hash, or the length of the model's vectors.
    analyzer : {"char_wb", "char", "word"}
    shortest, longest : int
        Lengths of the n-grams.
    model : str
        Folder of a sentence-transformers model; empty for n-grams.
    digest : str
        SHA-256 over the files of that folder, filled in when the schema is proposed.
    """

    type: ClassVar[str] = "text"

    missing: str = "empty"
    encoder: str = "ngrams"
    size: int = 1024
    analyzer: str = "char_wb"
    shortest: int = 3
    longest: int = 5
    model: str = ""
    digest: str = ""

    def __post_init__(self) -> None:
        self._check_choice("missing", self.missing, ("empty", "reject"))
        self._check_choice("encoder", self.encoder, ("ngrams", "sentences"))
        self._check_choice("analyzer", self.analyzer, ("char_wb", "char", "word"))
        self._check_count("size", self.size, MAX_FEATURES)
        self._check_count("longest", self.longest, 50)
        self._check_count("shortest", self.shortest, self.longest)
        if not isinstance(self.model, str) or not isinstance(self.digest, str):
            raise self._refuse("model is a folder and digest its SHA-256, both texts.")
        if (self.encoder == "sentences") != bool(self.model and self.digest):
            raise self._refuse("model and digest belong to the encoder 'sentences' alone.")

    @property
    def n_features(self) -> int:
        """The declared size."""
        return self.size

    def encode(self, cells: Sequence[str | None], reasons: Reasons) -> NDArray[np.float32]:
        """Return the features that the map makes of the texts."""
        if self.missing == "reject":
            self._reject(_empty(cells), "is missing", reasons)
        texts = np.empty(len(cells), dtype=object)
        texts[:] = [cell or "" for cell in cells]
        return np.asarray(self.feature_map().transform(texts), dtype=np.float32)

    def feature_map(self) -> FrozenTransformer:
        """Return the map from texts to features, which learns nothing."""
        from poisonproof.features.texts import HashedNGrams, SentenceEmbedding

        if self.encoder == "sentences":
            return SentenceEmbedding(self.model, n_features=self.size, digest=self.digest)
        return HashedNGrams(
            self.size, analyzer=self.analyzer, ngram_range=(self.shortest, self.longest)
        )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


PARTS: Mapping[str, tuple[str, int]] = {"hour": ("h", 24), "weekday": ("D", 7), "month": ("M", 12)}
"""Parts of a date, in units of NumPy, and how many there are of each."""

FORMAT_FIELDS = set("YmdHMSfyz")
"""Letters that a format may hold: those that mean the same in every language."""


def days_of(text: str, written: str = "") -> float:
    """Return the days from 1970 to a date or time, in ISO 8601 or as `written`; without a zone UTC.

    >>> days_of("1970-01-02"), days_of("2.1.1970", "%d.%m.%Y")
    (1.0, 1.0)
    """
    text = text.strip()
    moment = datetime.strptime(text, written) if written else datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) / timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class DateColumn(Column):
    """A date or time: days since `origin`, by `scale`, both declared.

    Parameters
    ----------
    name : str
    missing : {"reject", "nan"} or str
        An empty cell rejects its row, stays missing (for members that take missing values), or
        becomes this date, with a second feature that says so.
    origin : str
        A date.
    scale : float
        Days.
    format : str
        The format of the cells, as ``%m/%d/%Y``; empty for ISO 8601. `origin` and `missing` are
        always ISO 8601.
    parts : tuple of {"hour", "weekday", "month"}
        Further features, in UTC. Hours and months are points on a circle, two features each, so
        that 23 is next to 0; weekdays are seven features, one of which is 1.

    Examples
    --------
    >>> DateColumn(name="opened", origin="2020-01-01", missing="2020-06-01").n_features
    2
    >>> DateColumn(name="opened", parts=("hour", "weekday")).n_features
    10
    """

    type: ClassVar[str] = "date"
    _if_set: ClassVar[tuple[str, ...]] = ("format", "parts")

    missing: str = "reject"
    origin: str = "2000-01-01"
    scale: float = 365.25
    format: str = ""
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in ("origin", "missing"):
            value = getattr(self, key)
            if key == "missing" and value in ("reject", "nan"):
                continue
            try:
                days_of(value)
            except (TypeError, ValueError, AttributeError):
                words = "a date like 2020-01-31" + (", reject or nan" if key == "missing" else "")
                raise self._refuse(f"{key} is {words}. Got {value!r}.") from None
        if type(self.scale) not in (int, float) or not 0 < self.scale < math.inf:
            raise self._refuse(f"scale is a number of days above 0. Got {self.scale!r}.")
        object.__setattr__(self, "scale", float(self.scale))
        letters = re.findall("%(.?)", self.format) if isinstance(self.format, str) else ["?"]
        once, whole = set(letters), any({"m", "d", year} <= set(letters) for year in "Yy")
        if self.format != "" and (not whole or once - FORMAT_FIELDS or len(once) < len(letters)):
            raise self._refuse(
                "format has %Y (or %y), %m and %d, for times also %H, %M, %S, %f and %z, each "
                f"once, such as %m/%d/%Y. Got {self.format!r}."
            )
        parts = tuple(self.parts) if isinstance(self.parts, (list, tuple)) else ("?",)
        if not set(parts) <= set(PARTS) or len(set(parts)) < len(parts):
            raise self._refuse(f"parts is a list of {', '.join(PARTS)}. Got {self.parts!r}.")
        object.__setattr__(self, "parts", parts)

    def number(self, cell: str) -> float:
        """Return the days from 1970 to a cell; anything but a date raises ValueError."""
        return days_of(cell, self.format)

    @property
    def fills(self) -> bool:
        """Whether a declared date takes the place of missing ones."""
        return self.missing not in ("reject", "nan")

    @property
    def n_features(self) -> int:
        """One, those of the parts, and another one where missing cells are filled."""
        return 1 + sum(7 if part == "weekday" else 2 for part in self.parts) + self.fills

    def encode(self, cells: Sequence[str | None], reasons: Reasons) -> NDArray[np.float64]:
        """Count days from the origin; fill missing cells if so declared."""
        what = f"not a date such as {datetime(2020, 1, 31).strftime(self.format or '%Y-%m-%d')}"
        days = self._parse(cells, self.number, what, reasons)
        missing = _empty(cells)
        if self.missing == "reject":
            self._reject(missing, "is missing", reasons)
        if self.fills:
            days[missing] = days_of(self.missing)
        values = (days - days_of(self.origin)) / self.scale
        parts = [_date_part(days, part) for part in self.parts]
        return np.column_stack([values, *parts, *([missing] if self.fills else [])])


def _date_part(days: NDArray[np.float64], part: str) -> NDArray[np.float64]:
    """Return the features of a part of each date, NaN where there is none."""
    unit, n_parts = PARTS[part]
    # Days are rounded: a millisecond more, and ten o'clock does not become nine.
    seconds = np.floor(np.nan_to_num(days) * 86_400 + 1e-3).astype(np.int64)
    count = seconds.astype("datetime64[s]").astype(f"datetime64[{unit}]").astype(np.int64)
    turns = [2 * math.pi * step / n_parts for step in range(n_parts)]
    circle = np.array([(math.cos(turn), math.sin(turn)) for turn in turns])
    # Day 0 was a Thursday; weeks begin on Monday. A table: the same bits for equal cells.
    found = np.eye(7)[(count + 3) % 7] if part == "weekday" else circle[count % n_parts]
    return np.where(np.isnan(days)[:, np.newaxis], np.nan, found)


LARGEST_SIDE = 4096
"""The largest height and width to which images are resized."""


@dataclass(frozen=True, kw_only=True)
class ArrayColumn(Column):
    """The samples of an npz file: one array of numbers per row.

    Parameters
    ----------
    name : str
        Name of the array in the file.
    shape : tuple of int
        Shape of one sample.
    values : {"float64", "uint8"}
        Which numbers are allowed: all, or integers from 0 to 255.
    missing : {"reject", "nan"}
        What a NaN in a sample does: it rejects its row, or stays.
    """

    type: ClassVar[str] = "array"
    _called: ClassVar[str] = "array"

    shape: tuple[int, ...]
    values: str = "float64"
    missing: str = "reject"

    def __post_init__(self) -> None:
        sides = tuple(self.shape) if isinstance(self.shape, (list, tuple)) else ()
        if not sides or not all(type(side) is int and side > 0 for side in sides):
            raise self._refuse(f"shape is a list of positive numbers. Got {self.shape!r}.")
        object.__setattr__(self, "shape", sides)
        self._check_count("the product of shape", math.prod(sides), 2**31)
        self._check_choice("values", self.values, ("float64", "uint8"))
        self._check_choice("missing", self.missing, ("reject", "nan"))

    @property
    def n_features(self) -> int:
        """The numbers of a sample."""
        return math.prod(self.shape)

    def numbers(self, cells: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of a sample in a row, NaN for each that the array may not hold."""
        flat = cells.reshape(len(cells), self.n_features)
        if self.values == "uint8":
            if flat.dtype == np.uint8:
                return flat
            with np.errstate(invalid="ignore"):
                good = (flat >= 0) & (flat <= 255) & (np.trunc(flat) == flat)
            return np.where(good, flat, np.nan)
        values = flat.astype(np.float64)
        values[np.isinf(values)] = np.nan
        return values

    def encode(self, cells: NDArray[Any], reasons: Reasons) -> NDArray[Any]:
        """Return the numbers of a sample in a row, of the declared type."""
        if self.values == "uint8":
            found = self.numbers(cells)
            bad = np.isnan(found) if found.dtype.kind == "f" else np.zeros((1, 1), dtype=np.bool_)
            if bad.any():
                why = "holds something other than integers from 0 to 255"
                self._reject(np.asarray(bad.any(axis=1)), why, reasons)
                found = np.where(bad, 0, found)
            return found.astype(np.uint8, copy=False)
        values = cells.reshape(len(cells), self.n_features).astype(np.float64)
        bad = np.isinf(values) if self.missing == "nan" else ~np.isfinite(values)
        self._reject(np.asarray(bad.any(axis=1)), "holds NaN or infinity", reasons)
        return values


@dataclass(frozen=True, kw_only=True)
class ImageColumn(Column):
    """The images of a folder with one folder per class.

    Parameters
    ----------
    name : str
        What messages call it.
    height, width : int
        Every image is resized to this, bilinear.
    gray : bool
        One gray channel instead of three colours.
    encoder : {"pixels", "orientations", "network"}
        The pixels from 0 to 255, colours first, or histograms of the directions of edges, a fixed
        map that suits closed-form members, or the network in the file `model`.
    cell : int
        Side of the squares in which directions are counted.
    model : str
        A file with a network that was trained on other data; empty without one.
    digest : str
        SHA-256 of that file, filled in when the schema is proposed.
    size : int
        Features that the network returns; 0 without one.
    """

    type: ClassVar[str] = "image"
    _if_set: ClassVar[tuple[str, ...]] = ("model", "digest", "size")

    height: int
    width: int
    gray: bool = False
    encoder: str = "pixels"
    cell: int = 4
    model: str = ""
    digest: str = ""
    size: int = 0

    def __post_init__(self) -> None:
        self._check_count("height", self.height, LARGEST_SIDE)
        self._check_count("width", self.width, LARGEST_SIDE)
        self._check_choice("encoder", self.encoder, ("pixels", "orientations", "network"))
        self._check_count("cell", self.cell, LARGEST_SIDE)
        if not isinstance(self.gray, bool):
            raise self._refuse(f"gray is true or false. Got {self.gray!r}.")
        if not isinstance(self.model, str) or not isinstance(self.digest, str):
            raise self._refuse("model is a file and digest its SHA-256, both texts.")
        if (self.encoder == "network") != bool(self.model and self.digest and self.size):
            raise self._refuse("model, digest and size belong to the encoder 'network' alone.")
        if self.encoder == "network":
            self._check_count("size", self.size, MAX_FEATURES)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the pixels: (height, width) if gray, else (3, height, width)."""
        return (self.height, self.width) if self.gray else (3, self.height, self.width)

    @property
    def n_features(self) -> int:
        """The number of pixels, or of what the map makes of them."""
        if self.encoder == "pixels":
            return math.prod(self.shape)
        if self.encoder == "network":
            return self.size
        channels = 1 if self.gray else 3
        blank = np.zeros((1, self.height, self.width, channels))
        return int(self.feature_map().transform(blank).shape[1])

    def encode(self, cells: NDArray[np.uint8], reasons: Reasons) -> NDArray[Any]:
        """Return the pixels in a row, or what the map makes of them."""
        if self.encoder == "pixels":
            return cells.reshape(len(cells), self.n_features)
        last = cells if self.gray else np.moveaxis(cells, 1, -1)
        return np.asarray(self.feature_map().transform(last))

    def feature_map(self) -> ImageMap:
        """Return the fixed map of images with colours last."""
        from poisonproof.features.images import OrientationHistogram
        from poisonproof.features.networks import NetworkFeatures

        shape = (self.height, self.width, 1 if self.gray else 3)
        if self.encoder == "network":
            return NetworkFeatures(
                self.model,
                digest=self.digest,
                image_shape=shape,
                cache=cache_folder() / "features",
                n_jobs=-1,
                verbose=int(find_spec("rich") is not None),
            )
        return OrientationHistogram(cell=self.cell, image_shape=shape)


TRUTH_VALUES = ({"False", "false", "FALSE", "0"}, {"True", "true", "TRUE", "1"})
"""Texts for false and true: in spreadsheets, as pandas writes them, and of a truth value."""


def positions(names: Sequence[str]) -> dict[str, int]:
    """Return where each text stands in a list; truth values by any of their texts.

    Whether a frame holds them as truth values or as texts is decided by all rows of the column.

    >>> positions(["no", "yes"]), positions(["False", "True", "unknown"])["1"]
    ({'no': 0, 'yes': 1}, 1)
    """
    index = {name: position for position, name in enumerate(names)}
    pairs = [same & set(index) for same in TRUTH_VALUES]
    of_both = len(index) == 2 and all(pairs)
    if not of_both and not {"0", "1"}.isdisjoint(index):  # numbers, or 0 and 1 among others
        return index
    known = ((same, pair) for same, pair in zip(TRUTH_VALUES, pairs, strict=True) if len(pair) == 1)
    return index | {text: index[min(pair)] for same, pair in known for text in same}


def _empty(cells: Sequence[str | None]) -> NDArray[np.bool_]:
    return np.array([cell is None for cell in cells], dtype=np.bool_)


# Columns by name, and from the entries of a schema file.


def number_columns(names: Iterable[str]) -> tuple[NumberColumn, ...]:
    """Return columns of numbers that are taken as they stand and may be missing.

    >>> number_columns(["age"])[0].missing
    'nan'
    """
    return tuple(NumberColumn(name=name, missing="nan") for name in names)


COLUMN_TYPES: Mapping[str, type[Column]] = {
    "number": NumberColumn,
    "category": CategoryColumn,
    "text": TextColumn,
    "date": DateColumn,
    "array": ArrayColumn,
    "image": ImageColumn,
}


def parse_column(entry: object) -> Column:
    """Return the column that an entry of a schema file describes."""
    if isinstance(entry, dict) and "name" not in entry:
        check_keys(entry, ("name",), ("name",), "a column")
    if not isinstance(entry, dict) or not isinstance(entry["name"], str):
        raise InvalidInputError(f"A column of the schema needs a name. Got {str(entry)[:80]}.")
    options = dict(entry)
    kind = COLUMN_TYPES.get(str(options.pop("type", None)))
    if kind is None:
        check_keys(entry, ("name", "type"), ("type",), f"column {entry['name']!r}")
        raise InvalidInputError(
            f"Column {entry['name']!r} of the schema: type is one of {', '.join(COLUMN_TYPES)}. "
            f"Got {entry.get('type')!r}."
        )
    keys = {field.name: field.default is MISSING for field in fields(kind)}
    needed = [key for key, without_default in keys.items() if without_default]
    check_keys(entry, ("type", *keys), needed, f"column {entry['name']!r}")
    return kind(**options)


def check_keys(
    entry: Mapping[str, object], known: Collection[str], needed: Iterable[str], what: str
) -> None:
    """Raise for a key of a schema file that is not known, or that is needed and is not there."""
    for key in sorted(set(entry) - set(known)):
        close = get_close_matches(key, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(known))}."
        raise InvalidInputError(f"the key {key[:80]!r} of {what} is not known; {hint}")
    if absent := [key for key in needed if key not in entry]:
        raise InvalidInputError(f"the key {absent[0]!r} of {what} is missing.")

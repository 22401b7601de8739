"""Blocks of features, and the partitioner of a grid: one cell for each partition and block.

A block is a set of columns, pixels or words that was fixed before any row was seen. A row falls
into one cell of every block, and brings that block's features alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition.canonical import CANONICAL_FORM, sample_digests
from poisonproof.partition.containers import is_sparse, n_rows, stacked, take_rows
from poisonproof.partition.contributors import PARTITIONERS, GroupPartitioner
from poisonproof.partition.partitioned import PartitionedData, Weights
from poisonproof.partition.partitioners import ContentHash, Partitioner

OUTER = ("rows", "features")
_KINDS = {
    "columns": "column",
    "lattice": "pixel",
    "bands": "pixel",
    "pixels": "pixel",
    "words": "word",
}
"""Ways to make blocks, and what one feature is called."""

_LISTED = 6
"""Blocks that are named in a sentence."""

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """A division of features into blocks, fixed before any row is seen.

    Parameters
    ----------
    n_blocks : int
        Number of blocks, B.
    kind : {"columns", "lattice", "bands", "pixels", "words"}
        ``"columns"``: columns, dealt out by a hash of their number. ``"lattice"``: pixels of the
        same place in every cell of a grid over the image, so that each block is a small image.
        ``"bands"``: neighbouring rows of the image, for patches. ``"pixels"``: pixels, dealt out by
        a hash. ``"words"``: the words of a text, by a hash of the word.
    declared : tuple of tuples of int, optional
        The columns of every block, by number, in place of a hash.
    widths : tuple of int, optional
        How many numbers each column became, where a schema encoded it. By default one.
    image_shape : tuple of int, optional
        Height, width and perhaps channels of an image.
    channels_first : bool
        Whether a row holds one channel after the other, instead of one pixel after the other.
    ngram : int
        Words that are one feature: n neighbours.

    Guarantee
    ---------
    Block j of a sample depends on the features of block j of that sample alone.

    Examples
    --------
    >>> Blocks(n_blocks=4, kind="lattice", image_shape=(4, 4)).split(np.arange(16)[None])[1]
    array([[ 1,  3,  9, 11]])
    >>> Blocks(n_blocks=2, kind="words").split(["click here and win a prize"])
    [['here win a prize'], ['click and']]
    """

    n_blocks: int
    kind: str = "columns"
    declared: tuple[tuple[int, ...], ...] | None = None
    widths: tuple[int, ...] | None = None
    image_shape: tuple[int, ...] | None = None
    channels_first: bool = False
    ngram: int = 1

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InvalidInputError(f"Blocks are of {', '.join(_KINDS)}. Got {self.kind!r}.")
        for name in ("n_blocks", "ngram"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidInputError(f"{name} is an integer of at least 1. Got {value!r}.")
        for name in ("widths", "image_shape"):  # as JSON has them
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(map(int, value)))
        if self.declared is not None:
            object.__setattr__(self, "declared", tuple(tuple(map(int, b)) for b in self.declared))
        if self.kind == "words":
            return
        sides = self.widths if self.kind == "columns" else self.image_shape
        if not sides or min(sides) < 1 or (self.kind != "columns" and len(sides) not in (2, 3)):
            raise InvalidInputError(
                f"Blocks of {self.kind} need the widths of all columns, or the height and width of "
                f"the image and perhaps its channels. Got {sides!r:.80}."
            )
        if self.declared is not None:
            chosen = [column for block in self.declared for column in block]
            known = len(set(chosen)) == len(chosen) and set(chosen) <= set(range(len(sides)))
            if not known or len(self.declared) != self.n_blocks or not all(self.declared):
                raise InvalidInputError(
                    f"declared lists columns of 0 to {len(sides) - 1}, each once, for each of "
                    f"{self.n_blocks} blocks. Got {self.declared!r:.80}."
                )

    @property
    def n_features(self) -> int | None:
        """Numbers of a row that these are blocks of; None for texts."""
        if self.kind == "words":
            return None
        return sum(self.widths or ()) if self.kind == "columns" else prod(self.image_shape or ())

    @property
    def feature(self) -> str:
        """What one feature is called: column, pixel or word."""
        if self.kind == "words" and self.ngram > 1:
            return f"sequence of {self.ngram} words"
        return _KINDS[self.kind]

    def features(self, number: int) -> str:
        """Return what so many features are called."""
        first, _, rest = self.feature.partition(" ")
        return f"{first}{'' if number == 1 else 's'} {rest}".strip()

    @property
    def whole(self) -> str:
        """What the features together are called: row, image or text."""
        return {"column": "row", "pixel": "image"}.get(self.feature, "text")

    def __str__(self) -> str:
        how = self.kind if self.kind in ("lattice", "bands") else "by a hash"
        how = "declared" if self.declared is not None else how
        if self.image_shape is not None:
            how += f", image of {' x '.join(map(str, self.image_shape))}"
        return f"{self.n_blocks:,} of {self.features(2)} ({how})"

    @property
    def columns(self) -> NDArray[np.intp]:
        """The columns of each block, shape (B, width); -1 fills up those that have fewer."""
        return _columns(self)

    def split(self, X: Any) -> list[Any]:
        """Return the samples as each block sees them: B containers of as many rows as `X`."""
        if self.kind == "words":
            parts = [_by_block(str(text), self.n_blocks, self.ngram) for text in X]
            return [[part[j] for part in parts] for j in range(self.n_blocks)]
        if is_sparse(X):
            return [_sparse_block(X, chosen) for chosen in self.columns]
        table = np.asarray(X).reshape(n_rows(X), -1)
        if table.dtype.kind == "O":  # in which numbers came
            table = table.astype(np.float64)
        found = []
        for chosen in self.columns:
            part = table[:, chosen]
            part[:, chosen < 0] = 0
            found.append(np.ascontiguousarray(part))
        return found

    def touched_by_patch(self, side: int) -> int:
        """Return how many blocks a square patch of `side` pixels can touch at most."""
        shape = self.image_shape
        if shape is None:
            raise InvalidInputError("Only blocks of pixels have patches.")
        height, width, channels = (*shape, 1)[:3]
        owner = np.full(height * width * channels, -1)
        for block, chosen in enumerate(self.columns):
            owner[chosen[chosen >= 0]] = block
        grid = owner[_places(self)[:, :, 0]]
        side_y, side_x = min(side, height), min(side, width)
        windows = np.lib.stride_tricks.sliding_window_view(grid, (side_y, side_x))
        flat = np.sort(windows.reshape(-1, side_y * side_x), axis=1)
        return int((np.diff(flat, axis=1) != 0).sum(axis=1).max()) + 1


@lru_cache(maxsize=8)
def _columns(blocks: Blocks) -> NDArray[np.intp]:
    groups = _groups(blocks)
    width = max(map(len, groups))
    table = np.full((len(groups), width), -1, dtype=np.intp)
    for block, group in enumerate(groups):
        table[block, : len(group)] = group
    table.setflags(write=False)
    return table


def _places(blocks: Blocks) -> NDArray[np.intp]:
    """Return where every pixel and channel stands in a row, shape (height, width, channels)."""
    assert blocks.image_shape is not None
    height, width, channels = (*blocks.image_shape, 1)[:3]
    order = np.arange(height * width * channels)
    if blocks.channels_first:
        return order.reshape(channels, height, width).transpose(1, 2, 0)
    return order.reshape(height, width, channels)


def _groups(blocks: Blocks) -> list[list[int]]:
    """Return the columns of every block; of a lattice also the gaps at the border, as -1."""
    B = blocks.n_blocks
    if blocks.kind == "columns":
        widths = blocks.widths or ()
        starts = np.concatenate([[0], np.cumsum(widths)]).astype(int).tolist()
        chosen = blocks.declared or _dealt(len(widths), B)
        return [[c for i in block for c in range(starts[i], starts[i + 1])] for block in chosen]
    places = _places(blocks)
    height, width, channels = places.shape
    if blocks.kind == "bands":
        rows = -(-height // B)
        places = np.pad(places, ((0, rows * B - height), (0, 0), (0, 0)), constant_values=-1)
        return [band.tolist() for band in places.reshape(B, -1)]
    if blocks.kind == "pixels":
        table = places.reshape(-1, channels)
        return [table[sorted(block)].ravel().tolist() for block in _dealt(len(table), B)]
    down, across = lattice_steps(B)
    pad = ((0, -height % down), (0, -width % across), (0, 0))
    places = np.pad(places, pad, constant_values=-1)
    return [places[y::down, x::across].ravel().tolist() for y in range(down) for x in range(across)]


def lattice_steps(n_blocks: int) -> tuple[int, int]:
    """Return the steps of a lattice of so many blocks, down and across: as near as they can be."""
    down = next(step for step in range(isqrt(n_blocks), 0, -1) if n_blocks % step == 0)
    return down, n_blocks // down


def _dealt(n: int, n_blocks: int) -> list[list[int]]:
    """Deal out n features in the order of a hash of their numbers."""

    def digest(number: int) -> bytes:
        return hashlib.sha256(f"poisonproof.block1 {number}".encode()).digest()

    order = sorted(range(n), key=digest)
    return [sorted(order[block::n_blocks]) for block in range(n_blocks)]


def _sparse_block(X: Any, chosen: NDArray[np.intp]) -> Any:
    present = chosen[chosen >= 0]
    part = X[:, present]
    part.resize((part.shape[0], len(chosen)))
    return part


@lru_cache(maxsize=2**18)
def _block_of(word: str, n_blocks: int) -> int:
    digest = hashlib.sha256(f"poisonproof.word1 {word}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:16], "little") % n_blocks


def _by_block(text: str, n_blocks: int, ngram: int) -> list[str]:
    """Return the words of a text that belong to each block, in their order."""
    words = _WORD.findall(text.lower())
    if ngram > 1:
        words = ["_".join(words[i : i + ngram]) for i in range(len(words) - ngram + 1)]
    found: list[list[str]] = [[] for _ in range(n_blocks)]
    for word in words:
        found[_block_of(word, n_blocks)].append(word)
    return [" ".join(some) for some in found]


@dataclass(frozen=True, kw_only=True)
class Grid(Partitioner):
    """Puts every block of a row into a cell: partition i of k and block j of B.

    Cell ``j * k + i`` holds block j of the rows of partition i.

    Parameters
    ----------
    base : Partitioner
        The partition of a row, by its whole content or by its contributor.
    blocks : Blocks
        The blocks of features.
    outer : {"rows", "features"}
        Which election comes last. With ``"features"`` and a content hash every block has
        partitions of its own, by that block's content: a feature that is changed in all rows then
        moves no row in any other block.
    takes_missing : bool
        Whether members take missing cells. If not, a row with one in a block has no cell there.
    """

    base: Partitioner
    blocks: Blocks
    outer: str = "rows"
    takes_missing: bool = False

    name: ClassVar[str] = "grid"

    def __post_init__(self) -> None:
        base, blocks = self.base, self.blocks
        if isinstance(base, Mapping):  # as JSON has them
            options = {key: v for key, v in base.items() if key != "canonical_form"}
            base = PARTITIONERS[options.pop("name")](**options)
            object.__setattr__(self, "base", base)
        if isinstance(blocks, Mapping):
            object.__setattr__(self, "blocks", Blocks(**blocks))
        object.__setattr__(self, "n_partitions", base.n_partitions)
        super().__post_init__()
        if self.outer not in OUTER:
            raise InvalidInputError(f"outer is 'rows' or 'features'. Got {self.outer!r}.")
        if not base.rowwise:
            raise GuaranteeError(
                f"{type(base).__name__} places a row by what other rows hold, so a changed feature "
                "could move all rows. Use partitioner='content' or 'group'."
            )
        if self.outer == "features" and not isinstance(base, (ContentHash, GroupPartitioner)):
            raise GuaranteeError(
                f"With outer='features' rows are partitioned block by block, which "
                f"{type(base).__name__} does not do. Use partitioner='content' or 'group'."
            )

    @property
    def n_blocks(self) -> int:  # type: ignore[override]
        """Into how many blocks a row is cut, B."""
        return self.blocks.n_blocks

    @property
    def certifies(self) -> Mapping[str, int]:  # type: ignore[override]
        """As `base` does: in every block one unit touches as many partitions."""
        return self.base.certifies

    @property
    def unit(self) -> str:  # type: ignore[override]
        """What the attacker's budget of rows counts."""
        return self.base.unit

    @property
    def by_group(self) -> bool:  # type: ignore[override]
        """Whether `groups` decide the partition."""
        return self.base.by_group

    @property
    def hint(self) -> Mapping[str, str]:  # type: ignore[override]
        """What `base` says."""
        return self.base.hint

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each whole row; `cut` finds the cells of its blocks."""
        return self.base.assign(X, groups)

    def placeable(self, X: Any, groups: Any = None) -> NDArray[np.bool_]:
        """Return which rows have a partition."""
        return self.base.placeable(X, groups)

    def spec(self) -> dict[str, Any]:
        """Return everything that decides the cells, as JSON."""
        blocks = {key: v for key, v in dataclasses.asdict(self.blocks).items() if v is not None}
        return {
            "name": self.name,
            "canonical_form": CANONICAL_FORM,
            "n_partitions": self.k,
            "base": self.base.spec(),
            "blocks": blocks,
            "outer": self.outer,
            "takes_missing": self.takes_missing,
        }

    def usable(self, part: Any) -> NDArray[np.bool_]:
        """Return which samples, as one block sees them, its members can be asked about."""
        if self.blocks.kind == "words":
            return np.array([bool(text) for text in part], dtype=np.bool_)
        if not self.takes_missing and is_sparse(part):
            found = np.ones(n_rows(part), dtype=np.bool_)
            table = part.tocoo()
            found[table.row[~np.isfinite(table.data)]] = False
            return found
        numbers = isinstance(part, np.ndarray) and part.dtype.kind == "f"
        if self.takes_missing or not numbers:
            return np.ones(n_rows(part), dtype=np.bool_)
        return np.asarray(np.isfinite(part).all(axis=1))

    def cut(
        self, X: Any, y: NDArray[np.int64], groups: Any, sample_weight: Weights
    ) -> PartitionedData:
        """Cut rows into cells: each becomes as many rows as it has blocks, one after the other."""
        by_content = self.outer == "features" and not self.by_group
        whole = None if by_content else self.base.assign(X, groups)
        parts, rows, cells = [], [], []
        for block, seen in enumerate(self.blocks.split(X)):
            here = np.flatnonzero(self.usable(seen))
            part = seen if len(here) == len(y) else take_rows(seen, here)
            places = self.base.assign(part) if whole is None else whole[here]
            parts.append(part)
            rows.append(here)
            cells.append(places + block * self.k)
        tall, origin = stacked(parts), np.concatenate(rows)
        return PartitionedData.build(
            tall,
            y[origin],
            np.concatenate(cells),
            sample_digests(tall),
            self.k * self.n_blocks,
            sample_weight=None if sample_weight is None else sample_weight[origin],
            origin=origin,
        )

    def n_rows(self, sizes: NDArray[np.intp]) -> int:
        """Return how many rows the cells come from: those of the block that has most."""
        return int(self._by_block(sizes).sum(axis=1).max())

    def _by_block(self, sizes: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.asarray(sizes).reshape(self.blocks.n_blocks, self.k)

    def thin_blocks(self, sizes: NDArray[np.intp]) -> list[str]:
        """Say which blocks have few of the rows, or these in few partitions."""
        table, n_rows, said = self._by_block(sizes), self.n_rows(sizes), []
        rows, empty = table.sum(axis=1), (table == 0).sum(axis=1)
        few = 2 * rows < n_rows
        if few.any():
            counts = _span(rows[few])
            said.append(
                f"{_named(few)} {'has' if few.sum() == 1 else 'have'} {counts} of {n_rows:,} rows: "
                f"in the others a {self.blocks.feature} of the block is missing or does not fit."
            )
        crowded = ~few & (2 * empty > self.k) & (rows >= self.k)
        if crowded.any():
            said.append(
                f"In {_named(crowded).lower()} most rows fall into few partitions: "
                f"{_span(empty[crowded])} of {self.k:,} partitions have none. Use a stable key: "
                "partitioner='group' (--partitioner group --groups COLUMN)."
            )
        return said


def _named(which: NDArray[np.bool_]) -> str:
    """Return blocks by their numbers: ``"Blocks 3, 4 and 2 more"``."""
    numbers = np.flatnonzero(which).tolist()
    first = [str(number) for number in numbers[:_LISTED]]
    more = [f"{len(numbers) - _LISTED} more"] if len(numbers) > _LISTED else []
    *head, last = first + more
    return f"Block{'s' * (len(numbers) > 1)} " + " and ".join(filter(None, [", ".join(head), last]))


def _span(counts: NDArray[np.intp]) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


SAVED: Mapping[str, type[Partitioner]] = {**PARTITIONERS, Grid.name: Grid}
"""All partitioners of a saved model, by name."""

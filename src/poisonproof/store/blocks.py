"""Blocks: one file for a number of members, or for one that is very large.

Members and the rows of partitions are stored alike: an `Item` is what belongs to one partition,
as named arrays and a few JSON values. A block never has to be understood to be copied, so
replacing one member rewrites the bytes of its neighbours as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from poisonproof.exceptions import StoreError
from poisonproof.strict import Buffer, decode_tensors, encode_tensors, strict_json

BLOCK_BYTES = 2**20
"""Small items share a file until it is this large."""

LARGEST_BLOCK = 2**26
"""No block grows beyond this by another item."""

_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Item:
    """What a store keeps for one partition: its member, or its rows.

    Attributes
    ----------
    index : int
        Number of the partition.
    partition, digest : str
        Digests of the partition's rows, and of the content: of the member, or of the rows.
    about : mapping
        JSON values that belong to the arrays.
    tensors : mapping of str to ndarray
        The arrays; views of a file, if the item was read from one.
    """

    index: int
    partition: str
    digest: str
    about: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class BlockEntry:
    """A block in the manifest: the name of its file, its size, and whose items it holds."""

    name: str
    n_bytes: int
    items: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON values."""
        return {"name": self.name, "bytes": self.n_bytes, "items": list(self.items)}

    @classmethod
    def from_json(cls, value: Any) -> BlockEntry:
        """Read an entry, or raise `ValueError`."""
        if not isinstance(value, dict) or set(value) != {"name", "bytes", "items"}:
            raise ValueError("a block needs name, bytes and items")
        name, size, items = value["name"], value["bytes"], value["items"]
        if not is_content_name(name):
            raise ValueError(f"{str(name)[:80]!r} is not the name of a block")
        if type(size) is not int or not 0 < size < 2**62:
            raise ValueError(f"{str(size)[:80]!r} is not the size of a block")
        if not isinstance(items, list) or not all(type(i) is int and i >= 0 for i in items):
            raise ValueError("the items of a block are numbers of partitions")
        return cls(name, size, tuple(items))


def content_name(data: Buffer) -> str:
    """Return the name of a file with this content.

    >>> content_name(b"")[:12]
    '0e5751c026e5'
    """
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def is_content_name(name: Any) -> bool:
    """Whether `name` could be the name of a content: 64 hexadecimal digits and nothing else."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def encode_block(items: Sequence[Item]) -> bytes:
    """Return the file that holds `items`; equal items give equal bytes."""
    about = [
        {
            "index": item.index,
            "partition": item.partition,
            "digest": item.digest,
            "about": dict(item.about),
            "names": sorted(item.tensors),
        }
        for item in items
    ]
    tensors = {
        f"{item.index}/{name}": array for item in items for name, array in item.tensors.items()
    }
    text = json.dumps(about, sort_keys=True, allow_nan=False)
    return encode_tensors(tensors, {"about": text})


def decode_block(data: Buffer, name: str) -> dict[int, Item]:
    """Return the items of a block by their index; `name` says what is read if it is damaged."""
    tensors, about = decode_tensors(data, name)
    entries = strict_json(about.get("about", ""), name)
    if not isinstance(entries, list):
        raise StoreError(f"{name} is damaged: it lists no items.")
    items: dict[int, Item] = {}
    for entry in entries:
        if not _is_entry(entry) or entry["index"] in items:
            raise StoreError(f"{name} is damaged: an item in it is not described.")
        index = entry["index"]
        own = {key: tensors.pop(f"{index}/{key}", None) for key in entry["names"]}
        if any(array is None for array in own.values()):
            raise StoreError(f"{name} is damaged: item {index} lacks arrays.")
        items[index] = Item(index, entry["partition"], entry["digest"], entry["about"], own)  # type: ignore[arg-type]
    if tensors:
        raise StoreError(f"{name} is damaged: it holds arrays that belong to no item.")
    return items


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and set(entry) == {"index", "partition", "digest", "about", "names"}
        and type(entry["index"]) is int
        and isinstance(entry["partition"], str)
        and isinstance(entry["digest"], str)
        and isinstance(entry["about"], dict)
        and isinstance(entry["names"], list)
        and all(isinstance(name, str) for name in entry["names"])
    )


def n_bytes(item: Item) -> int:
    """Return how much room the arrays of an item take."""
    return sum(array.nbytes for array in item.tensors.values())


def small_and_large(items: Iterable[Item]) -> tuple[list[Item], list[Item]]:
    """Return the items that share a file, and those that have one each."""
    found: tuple[list[Item], list[Item]] = [], []
    for item in items:
        found[n_bytes(item) >= BLOCK_BYTES].append(item)
    return found


def packed(indices: Iterable[int], get: Callable[[int], Item]) -> Iterator[list[Item]]:
    """Group items into blocks, in the order of `indices`; `get` returns one.

    A block is closed at `BLOCK_BYTES`, or at sixteen times its largest item if that is more, up
    to `LARGEST_BLOCK`: thousands of networks must not take thousands of files to be mapped.
    """
    block: list[Item] = []
    size = largest = 0
    for index in indices:
        block.append(get(index))
        room = n_bytes(block[-1])
        size, largest = size + room, max(largest, room)
        if size >= min(max(BLOCK_BYTES, 16 * largest), LARGEST_BLOCK):
            yield block
            block, size, largest = [], 0, 0
    if block:
        yield block

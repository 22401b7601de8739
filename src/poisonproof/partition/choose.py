"""Partitioners by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from poisonproof.exceptions import InvalidInputError
from poisonproof.partition.base import Partitioner
from poisonproof.partition.content_hash import ContentHash
from poisonproof.partition.group_hash import GroupHash
from poisonproof.partition.pixel_sum import PixelSum
from poisonproof.partition.sorted_index import SortedIndex

__all__ = ["PARTITIONERS", "make_partitioner", "partitioner_from_specification"]

PARTITIONERS: Mapping[str, type[Partitioner]] = {
    cls.name: cls for cls in (ContentHash, PixelSum, SortedIndex, GroupHash)
}


def make_partitioner(
    partitioner: str | Partitioner, n_partitions: int | None = None
) -> Partitioner:
    """Return a partitioner with its number of partitions.

    Parameters
    ----------
    partitioner : {"content", "pixel_sum", "sorted", "group"} or Partitioner
        The rule. An instance must leave its number of partitions open or agree with `n_partitions`.
    n_partitions : int, optional
        The number of partitions, k; left out, that of the instance.

    Raises
    ------
    InvalidInputError
        If the name is unknown, or the two numbers of partitions differ.

    Examples
    --------
    >>> make_partitioner("content", 50)
    ContentHash(n_partitions=50)
    """
    if isinstance(partitioner, str) and partitioner in PARTITIONERS:
        partitioner = PARTITIONERS[partitioner]()
    if not isinstance(partitioner, Partitioner):
        raise InvalidInputError(
            f"partitioner must be one of {', '.join(map(repr, PARTITIONERS))} or a Partitioner, "
            f"but it is {partitioner!r}."
        )
    if n_partitions is None:
        n_partitions = partitioner.k
    if partitioner.n_partitions not in {None, n_partitions}:
        raise InvalidInputError(
            f"n_partitions is {n_partitions}, but the partitioner makes "
            f"{partitioner.n_partitions} partitions. Give the number once, or twice the same."
        )
    return dataclasses.replace(partitioner, n_partitions=n_partitions)


def partitioner_from_specification(specification: Mapping[str, Any]) -> Partitioner:
    """Return the partitioner that a saved specification describes.

    Examples
    --------
    >>> partitioner_from_specification(SortedIndex(n_partitions=7).specification())
    SortedIndex(n_partitions=7, channels='first')
    """
    name = str(specification.get("name"))
    if name not in PARTITIONERS:
        known = ", ".join(map(repr, PARTITIONERS))
        raise InvalidInputError(f"A saved partitioner is one of {known}, but {name!r} came.")
    return PARTITIONERS[name].from_specification(specification)

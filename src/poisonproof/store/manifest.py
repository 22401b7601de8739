"""The manifest: what a model is, as JSON with a versioned schema.

The file holds exactly one text for one content (sorted keys, no choice of spaces), and in it a
fingerprint of everything that decides a vote or a certificate. Where things lie in the store
(blocks) is not part of the fingerprint: an updated model has the fingerprint of one
trained from scratch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from poisonproof.exceptions import StoreError
from poisonproof.store.blocks import BlockEntry
from poisonproof.strict import strict_json

FORMAT = "poisonproof-model"
VERSION = 2
MANIFEST = "manifest.json"
_LARGEST_K = 2**31 - 1
_NOTHING = BlockEntry("", 0, ())


@dataclass(frozen=True)
class Manifest:
    """Everything about a model but its arrays.

    Attributes
    ----------
    model : dict
        Classifier, parameters, classes, partitioner, learner, digests of the templates.
    environment : dict
        Software and CPU that trained the members.
    spec : str
        Digest of everything besides its partition that a member is a function of.
    partition_sizes, partition_digests : list
        Rows of each partition, counted and digested.
    family : str
        Which code turns arrays into members.
    member_digests : list of str
        One digest per member.
    failures : dict of int to str
        Why members abstain whose learner raised.
    shared, shared_arrays : dict, BlockEntry or None
        What all members have in common.
    templates : BlockEntry
        The file with the unfitted estimator and the feature map.
    members, rows : tuple of BlockEntry
        Where the members and, if they are kept, the training rows lie.
    keeps_data : bool
        Whether the training rows are in the store.
    notes : dict
        What decides nothing: dropped rows.
    pending : dict or None
        An update that is written but whose superseded files may still exist.
    """

    model: dict[str, Any]
    environment: dict[str, Any]
    spec: str
    partition_sizes: list[int]
    partition_digests: list[str]
    family: str
    shared: dict[str, Any]
    member_digests: list[str]
    failures: dict[int, str]
    templates: BlockEntry = _NOTHING
    members: tuple[BlockEntry, ...] = ()
    rows: tuple[BlockEntry, ...] = ()
    shared_arrays: BlockEntry | None = None
    keeps_data: bool = False
    notes: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, Any] | None = None

    @property
    def k(self) -> int:
        """The number of partitions."""
        return len(self.partition_digests)

    @cached_property
    def data_fingerprint(self) -> str:
        """A digest of the training set: of what every partition holds."""
        return json_digest([self.partition_sizes, self.partition_digests])

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything that decides a vote or a certificate."""
        return json_digest(
            {
                "format": [FORMAT, VERSION],
                "model": self.model,
                "environment": self.environment,
                "spec": self.spec,
                "data": self.data_fingerprint,
                "family": self.family,
                "shared": self.shared,
                "shared_arrays": self.shared_arrays and self.shared_arrays.name,
                "members": self.member_digests,
            }
        )

    @cached_property
    def objects(self) -> dict[str, int]:
        """Name and size of every file the manifest refers to."""
        return {entry.name: entry.n_bytes for entry in self.entries()}

    def entries(self) -> Iterable[BlockEntry]:
        """Return every block."""
        shared = () if self.shared_arrays is None else (self.shared_arrays,)
        return (self.templates, *shared, *self.members, *self.rows)

    def to_bytes(self) -> bytes:
        """Return the one text of this manifest."""
        return canonical_json(
            {
                "format": FORMAT,
                "version": VERSION,
                "fingerprint": self.fingerprint,
                "data_fingerprint": self.data_fingerprint,
                "model": self.model,
                "environment": self.environment,
                "spec": self.spec,
                "partitions": {"sizes": self.partition_sizes, "digests": self.partition_digests},
                "members": {
                    "family": self.family,
                    "shared": self.shared,
                    "shared_arrays": self.shared_arrays and self.shared_arrays.to_json(),
                    "digests": self.member_digests,
                    "failures": {str(i): text for i, text in self.failures.items()},
                    "blocks": [entry.to_json() for entry in self.members],
                },
                "rows": [entry.to_json() for entry in self.rows] if self.keeps_data else None,
                "templates": self.templates.to_json(),
                "notes": self.notes,
                "pending": self.pending,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Manifest:
        """Read a manifest, or raise `StoreError`; `name` says which file it is."""
        raw = strict_json(data, name)
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise StoreError(f"{name} does not describe a poisonproof model.")
        if raw.get("version") != VERSION or type(raw["version"]) is not int:
            raise StoreError(
                f"{name} has format version {str(raw.get('version'))[:40]!r}; this version of "
                f"poisonproof reads version {VERSION}."
            )
        try:
            manifest = _parsed(raw)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{name} is damaged: {str(error)[:200]}.") from error
        if manifest.to_bytes() != data:
            raise StoreError(
                f"{name} is damaged or was edited: its text is not the one its content has, or "
                "its fingerprint is another."
            )
        return manifest


def _parsed(raw: dict[str, Any]) -> Manifest:
    partitions, members, rows = raw["partitions"], raw["members"], raw["rows"]
    shared = members["shared_arrays"]
    manifest = Manifest(
        model=_typed(raw["model"], dict, "model"),
        environment=_typed(raw["environment"], dict, "environment"),
        spec=_typed(raw["spec"], str, "spec"),
        partition_sizes=_typed(partitions["sizes"], list, "partitions.sizes"),
        partition_digests=_typed(partitions["digests"], list, "partitions.digests"),
        family=_typed(members["family"], str, "members.family"),
        shared=_typed(members["shared"], dict, "members.shared"),
        member_digests=_typed(members["digests"], list, "members.digests"),
        failures={int(i): _typed(t, str, "failure") for i, t in members["failures"].items()},
        templates=BlockEntry.from_json(raw["templates"]),
        members=tuple(map(BlockEntry.from_json, _typed(members["blocks"], list, "blocks"))),
        rows=() if rows is None else tuple(map(BlockEntry.from_json, _typed(rows, list, "rows"))),
        shared_arrays=None if shared is None else BlockEntry.from_json(shared),
        keeps_data=rows is not None,
        notes=_typed(raw["notes"], dict, "notes"),
        pending=None if raw["pending"] is None else _typed(raw["pending"], dict, "pending"),
    )
    _check_counts(manifest)
    return manifest


def _typed(value: Any, kind: type, name: str) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")
    return value


def _check_counts(manifest: Manifest) -> None:
    """Raise `ValueError` unless every list speaks of the same partitions."""
    k = manifest.k
    sizes, digests = manifest.partition_sizes, manifest.member_digests
    if not 1 <= k <= _LARGEST_K or not k == len(sizes) == len(digests):
        raise ValueError(
            f"numbers of partitions differ: {k} digests, {len(sizes)} sizes, {len(digests)} members"
        )
    if not all(type(size) is int and 0 <= size < 2**62 for size in sizes):
        raise ValueError("sizes of partitions are integers")
    if not all(isinstance(d, str) for d in (*digests, *manifest.partition_digests)):
        raise ValueError("digests are text")
    if any(not 0 <= index < k for index in manifest.failures):
        raise ValueError("a failure names a member that does not exist")
    everyone = list(range(k))
    if sorted(i for entry in manifest.members for i in entry.items) != everyone:
        raise ValueError("the blocks of members do not hold every member once")
    if manifest.keeps_data and sorted(i for e in manifest.rows for i in e.items) != everyone:
        raise ValueError("the blocks of rows do not hold every partition once")


def canonical_json(value: Any) -> bytes:
    r"""Return the one text of a JSON value.

    >>> canonical_json({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}\n'
    """
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return f"{text}\n".encode()


def json_digest(value: Mapping[str, Any] | list[Any]) -> str:
    """Return the SHA-256 of a JSON value's one text."""
    return hashlib.sha256(canonical_json(value)).hexdigest()

"""What an update did, for whoever asked for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from poisonproof.estimators.saving import member_law
from poisonproof.estimators.training_rows import (
    HeldRows,
    Rows,
    TrainingRows,
    TrainingSet,
    check_training_rows,
    find_rows,
    missing_rows,
)
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.members.member import Ensemble
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import kind_of, stacked
from poisonproof.partition.partitioned import (
    PartitionedData,
    Shard,
    gathered,
    partition_data,
    row_keys,
)
from poisonproof.store.fingerprint import differences
from poisonproof.store.manifest import json_digest
from poisonproof.store.stored_ensemble import StoredEnsemble
from poisonproof.store.training_run import TrainingRun
from poisonproof.store.writing import FolderWriter


@dataclass(frozen=True)
class Retrained:
    """One member that was trained again: digests of its rows and of itself, before and after."""

    member: int
    rows_before: str
    rows_after: str
    member_before: str
    member_after: str


@dataclass(frozen=True)
class Receipt:
    """The account of one update.

    Attributes
    ----------
    added, removed : tuple of str
        The rows that came and went: the SHA-256 digest of the sample, as `sample_digests` makes
        it, a colon and the label. Whoever has a row can find it here; whoever can guess it can
        check the guess.
    retrained : tuple of Retrained
        Every member whose partition changed; no other member did.
    n_members : int
        The number of all members, k.
    fingerprint_before, fingerprint_after : str or None
        Fingerprints of the stored model; None for a model that is not in a store.

    Examples
    --------
    >>> Receipt((), ("ab12:7",), (), 50).sentences()[0]
    '0 rows added, 1 row removed; 0 of 50 members trained again.'
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    retrained: tuple[Retrained, ...]
    n_members: int
    fingerprint_before: str | None = None
    fingerprint_after: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the receipt as JSON values."""
        return asdict(self) | {
            "added": list(self.added),
            "removed": list(self.removed),
            "retrained": [asdict(entry) for entry in self.retrained],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Receipt:
        """Read what `to_json` returned."""
        return cls(
            tuple(value["added"]),
            tuple(value["removed"]),
            tuple(Retrained(**entry) for entry in value["retrained"]),
            value["n_members"],
            value["fingerprint_before"],
            value["fingerprint_after"],
        )

    def sentences(self) -> list[str]:
        """Return the receipt in words."""
        words = [
            f"{_rows(self.added)} added, {_rows(self.removed)} removed; "
            f"{len(self.retrained):,} of {self.n_members:,} members trained again."
        ]
        if self.fingerprint_after is not None:
            words.append(f"Fingerprint before: {self.fingerprint_before}")
            words.append(f"Fingerprint after:  {self.fingerprint_after}")
        return words


def _rows(rows: Sequence[str]) -> str:
    return f"{len(rows):,} row" + ("" if len(rows) == 1 else "s")


# Adding and removing training rows: which partitions change, and what they hold then.


@dataclass(frozen=True)
class Change:
    """What an update will do, before anything is done.

    Attributes
    ----------
    added, removed : tuple of str
        Digests of the samples that come and go.
    retrain : list of int
        Partitions whose members are trained again.
    data : PartitionedData
        At least the rows of those partitions, as they will be.
    rows : TrainingSet
        The whole training set as it will be.
    partition_digests : list of str
        Digests of all partitions as they will be.
    features : bool
        Whether the feature map is to be fitted again, on `data`.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    retrain: list[int]
    data: PartitionedData
    rows: TrainingSet
    partition_digests: list[str]
    features: bool = False


@dataclass(frozen=True)
class AskedRows:
    """Checked rows of an update, with their partitions if those depend on the row alone."""

    rows: TrainingRows
    digests: NDArray[np.uint8]
    places: NDArray[np.int64] | None

    @property
    def placed(self) -> NDArray[np.int64]:
        """The partitions of the rows."""
        assert self.places is not None
        return self.places

    def shard(self, index: int) -> Shard:
        """Return the rows that fall into one partition."""
        mine = np.flatnonzero(self.placed == index)
        weight = self.rows.sample_weight
        return Shard.build(
            _safe_indexing(self.rows.X, mine),
            self.rows.y[mine],
            None if weight is None else weight[mine],
            self.digests[mine],
        )

    def names(self) -> tuple[str, ...]:
        """Return what a receipt calls the rows: digest of the sample, and label."""
        labels = self.rows.classes[self.rows.y].tolist()
        pairs = zip(self.digests, labels, strict=True)
        return tuple(f"{digest.tobytes().hex()}:{label}" for digest, label in pairs)


def training_set(classifier: Any, data: Any) -> TrainingSet:
    """Return the rows `classifier` was trained on: those it has, or those given as `data`."""
    if data is None:
        if classifier.rows_ is None:
            raise InvalidInputError(
                "this model was saved without its training rows, so nobody can tell what its "
                "partitions hold. Give them: update(..., data=(X, y)); or save models with "
                "keep_data=True."
            )
        held: TrainingSet = classifier.rows_
        return held
    rows = check_training_rows(classifier, *Rows.parse(data, "data"), classes=classifier.classes_)
    partitioned = partition_data(
        rows.X,
        rows.y,
        classifier.partitioner_,
        groups=rows.groups,
        sample_weight=rows.sample_weight,
    )
    others = [
        index
        for index, (found, known) in enumerate(
            zip(partitioned.partition_digests(), classifier.partition_digests_, strict=True)
        )
        if found != known
    ]
    if others:
        raise InvalidInputError(
            f"data is not what the model was trained on: {len(others)} of {len(partitioned)} "
            f"partitions hold other rows, partition {others[0]} for one. Nothing changed."
        )
    return HeldRows(partitioned)


def plan_update(classifier: Any, add: Any, remove: Any, data: Any = None) -> Change:
    """Find out what an update will change; nothing is changed yet.

    Raises
    ------
    InvalidRowsError
        If a row to remove is not in the training set.
    """
    if add is None and remove is None:
        raise InvalidInputError("update needs rows to add, rows to remove, or both.")
    rows = training_set(classifier, data)
    new, gone = asked_rows(classifier, add, "add"), asked_rows(classifier, remove, "remove")
    for asked, name in ((new, "add"), (gone, "remove")):
        if asked is not None and (asked.rows.sample_weight is not None) != rows.weighted:
            had = "with" if rows.weighted else "without"
            raise InvalidInputError(
                f"the model was fitted {had} sample_weight, so `{name}` must come {had} it too."
            )
    if classifier.partitioner_.rowwise and not classifier._features_see_all_rows():
        return _local_change(classifier, rows, new, gone)
    return _global_change(classifier, rows, new, gone)


def asked_rows(classifier: Any, asked: Any, name: str) -> AskedRows | None:
    """Check the rows of `add` or `remove`."""
    if asked is None:
        return None
    rows = check_training_rows(classifier, *Rows.parse(asked, name), classes=classifier.classes_)
    partitioner = classifier.partitioner_
    places = partitioner.assign(rows.X, groups=rows.groups) if partitioner.rowwise else None
    return AskedRows(rows, sample_digests(rows.X), places)


def _local_change(
    classifier: Any, rows: TrainingSet, new: AskedRows | None, gone: AskedRows | None
) -> Change:
    """Change the partitions the rows fall into, and read no other."""
    asked = [some for some in (new, gone) if some is not None]
    touched = np.unique(np.concatenate([some.placed for some in asked])).tolist()
    before = {index: rows.shard(index) for index in touched}
    kept = before if gone is None else _without(before, gone)
    after = kept if new is None else _with(kept, new)
    digests = list(classifier.partition_digests_)
    known = list(digests)
    for index, shard in after.items():
        digests[index] = shard.digest()
    retrain = [index for index in touched if digests[index] != known[index]]
    changed = {index: after[index] for index in retrain}
    later = rows.changed(changed)
    return Change(
        () if new is None else new.names(),
        () if gone is None else gone.names(),
        retrain,
        gathered(_with_company(changed, later), len(digests)),
        later,
        digests,
    )


def _with(shards: Mapping[int, Shard], new: AskedRows) -> dict[int, Shard]:
    """Put the rows of `new` into their partitions."""
    arrivals = set(new.placed.tolist())
    return {
        index: shard.joined(new.shard(index)) if index in arrivals else shard
        for index, shard in shards.items()
    }


def _without(shards: Mapping[int, Shard], gone: AskedRows) -> dict[int, Shard]:
    """Take the rows of `gone` out of their partitions, one copy each."""
    weight = gone.rows.sample_weight
    wanted = row_keys(gone.digests, gone.rows.y, weight)
    kept = dict(shards)
    missing: list[int] = []
    for index, shard in shards.items():
        mine = np.flatnonzero(gone.placed == index)
        found, absent = find_rows(shard.keys(), wanted[mine])
        missing += mine[absent].tolist()
        kept[index] = shard.take(np.delete(np.arange(len(shard)), found))
    if missing:
        raise missing_rows(missing, len(wanted))
    return kept


def _with_company(shards: dict[int, Shard], rows: TrainingSet) -> dict[int, Shard]:
    """Add a partition that has rows, if none of `shards` has: it tells what a sample looks like."""
    if any(len(shard) for shard in shards.values()):
        return shards
    others = np.flatnonzero(rows.sizes)
    if not len(others):
        raise InvalidRowsError("an update cannot remove every row. Nothing changed.")
    company = int(others[0])
    return shards | {company: rows.shard(company)}


def _global_change(
    classifier: Any, rows: TrainingSet, new: AskedRows | None, gone: AskedRows | None
) -> Change:
    """Change a training set of which every partition may depend on every sample."""
    before = rows.whole()
    X, y, weight, digests = before.X, before.y, before.sample_weight, before.digests
    places = before.assignment
    if gone is not None:
        keys = row_keys(digests, y, weight)
        wanted = row_keys(gone.digests, gone.rows.y, gone.rows.sample_weight)
        if gone.places is not None:
            # Under GroupHash the same sample and label of another contributor is another row.
            keys, wanted = _placed(keys, places), _placed(wanted, gone.places)
        found, absent = find_rows(keys, wanted)
        if absent.any():
            raise missing_rows(np.flatnonzero(absent).tolist(), len(wanted))
        keep = np.delete(np.arange(len(y)), found)
        X, y, digests, places = _safe_indexing(X, keep), y[keep], digests[keep], places[keep]
        weight = None if weight is None else weight[keep]
    if new is not None:
        X = stacked([X, new.rows.X])
        y = np.concatenate([y, new.rows.y])
        digests = np.concatenate([digests, new.digests])
        if new.places is not None:
            places = np.concatenate([places, new.places])
        if weight is not None and new.rows.sample_weight is not None:
            weight = np.concatenate([weight, new.rows.sample_weight])
    if not classifier.partitioner_.rowwise:
        places = classifier.partitioner_.assign(X)
    after = PartitionedData.build(X, y, places, digests, len(before), sample_weight=weight)
    return _compared(classifier, before, after, new, gone)


def _compared(
    classifier: Any,
    before: PartitionedData,
    after: PartitionedData,
    new: AskedRows | None,
    gone: AskedRows | None,
) -> Change:
    if after.n_rows == 0:
        raise InvalidRowsError("an update cannot remove every row. Nothing changed.")
    if not np.array_equal(sample_digests(after.X), after.digests):
        raise InvalidRowsError(
            "the training rows were changed in place after they were fitted, or cannot be held in "
            "one container with the added rows. Fit again."
        )
    features = classifier._features_depend_on(before, after)
    digests = after.partition_digests()
    changed = [i for i, d in enumerate(classifier.partition_digests_) if d != digests[i]]
    return Change(
        () if new is None else new.names(),
        () if gone is None else gone.names(),
        list(range(len(after))) if features else changed,
        after,
        HeldRows(after),
        digests,
        features,
    )


def _placed(keys: NDArray[np.void], partitions: NDArray[np.int64]) -> NDArray[np.void]:
    """Add the partition to what identifies a row."""
    table = np.column_stack(
        [
            np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1),
            partitions.astype(">i8").view(np.uint8).reshape(len(keys), -1),
        ]
    )
    return np.ascontiguousarray(table).view(f"V{table.shape[1]}").ravel()


# Carrying out an update: train what changes, and account for it.


def request_digest(added: Sequence[str], removed: Sequence[str]) -> str:
    """Return what identifies an update, from the names of its rows."""
    return json_digest([sorted(added), sorted(removed)])


def asked_digest(classifier: Any, add: Any, remove: Any) -> str:
    """Return what identifies an update that is asked for."""
    asked = asked_rows(classifier, add, "add"), asked_rows(classifier, remove, "remove")
    added, removed = (() if rows is None else rows.names() for rows in asked)
    return request_digest(added, removed)


def apply_change(classifier: Any, change: Change, writer: FolderWriter | None = None) -> Receipt:
    """Train the members that change; if anything fails the classifier stays as it was.

    With a `writer`, members are in the store as soon as they are finished.
    """
    _require_same_container(classifier, change)
    state = dict(vars(classifier))
    before = classifier.ensemble_.digests_of(change.retrain), classifier.partition_digests_
    try:
        if change.features:
            classifier.features_ = classifier._fit_features(change.data)
        classifier._remember(change.rows, change.partition_digests)
        if not change.features:
            require_same_law(classifier)
        classifier.ensemble_ = _trained(classifier, change, writer)
        classifier._report_failures()
    except BaseException:
        vars(classifier).clear()
        vars(classifier).update(state)
        raise
    after = classifier.ensemble_.digests_of(change.retrain), change.partition_digests
    return Receipt(
        change.added,
        change.removed,
        tuple(
            Retrained(index, before[1][index], after[1][index], old, new)
            for index, old, new in zip(change.retrain, before[0], after[0], strict=True)
        ),
        len(change.partition_digests),
    )


def _trained(classifier: Any, change: Change, writer: FolderWriter | None) -> Ensemble:
    ensemble: Ensemble = classifier.ensemble_
    if writer is None:
        return ensemble.replaced(change.retrain, classifier._train(change.data, change.retrain))
    assert isinstance(ensemble, StoredEnsemble)
    run = TrainingRun(writer, member_law(classifier), change.partition_digests, change.retrain)
    try:
        if run.missing:
            classifier._train_portions(change.data, run.missing, run.add)
        return ensemble.with_items([run.item(index) for index in change.retrain])
    finally:
        run.close()


def _require_same_container(classifier: Any, change: Change) -> None:
    """Refuse rows in another kind of container than the members were trained from."""
    known, found = getattr(classifier, "container_", None), kind_of(change.data.X)
    if known is not None and found != known:
        raise GuaranteeError(
            f"the model was trained on rows in a kind of container called {known}, and these come "
            f"in one called {found}, which a learner may round differently. Give the rows in the "
            "same kind of container, or train the model anew. Nothing changed."
        )


def require_same_law(classifier: Any) -> None:
    """Refuse to put members of one law beside stored members of another."""
    ensemble = classifier.ensemble_
    if not isinstance(ensemble, StoredEnsemble):
        return
    manifest = ensemble.reader.manifest
    if manifest.law != member_law(classifier):
        others = ", ".join(differences(manifest.environment)) or "parameters of the model"
        raise GuaranteeError(
            f"members trained here would not be those of training from scratch: {others} changed "
            "since the model was trained. Update it where it was trained, or train it anew."
        )

"""Adding and removing training rows: what changes, what is trained again, and the receipt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from poisonproof.estimators.checked_table import check_update
from poisonproof.estimators.saving import describe, member_spec
from poisonproof.estimators.training_set import TrainingSet
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.members.member import Ensemble
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import kind_of, stacked
from poisonproof.partition.grids import Grid
from poisonproof.partition.partitioned import PartitionedData, gathered, row_keys
from poisonproof.partition.partitioners import ContentHash
from poisonproof.store.items import StoredEnsemble
from poisonproof.store.manifest import differences
from poisonproof.store.training_run import TrainingRun
from poisonproof.store.writing import ModelWriter


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
        return asdict(self)

    def sentences(self) -> list[str]:
        """Return the receipt in words."""
        again = f"{len(self.retrained):,} of {self.n_members:,} members trained again"
        again = again if self.n_members else "training rows vote, so no member is trained"
        words = [f"{_rows(self.added)} added, {_rows(self.removed)} removed; {again}."]
        if self.fingerprint_after is not None:
            words.append(f"Fingerprint before: {self.fingerprint_before}")
            words.append(f"Fingerprint after:  {self.fingerprint_after}")
        return words


def _rows(rows: Sequence[str]) -> str:
    return f"{len(rows):,} row" + ("" if len(rows) == 1 else "s")


@dataclass(frozen=True)
class Change:
    """A planned update: everything as it will be, before anything is done."""

    retrain: list[int]
    data: PartitionedData  # at least the rows of the partitions to retrain
    rows: TrainingSet
    partition_digests: list[str]
    features: bool = False  # whether the feature map is to be fitted again, on `data`
    added: tuple[str, ...] = ()  # rows, as a receipt calls them
    removed: tuple[str, ...] = ()


def training_set(classifier: Any, data: Any) -> TrainingSet:
    """Return the rows `classifier` was trained on: those it has, or those given as `data`."""
    if data is None:
        if classifier.rows_ is None:
            raise InvalidInputError(
                "this model was saved without its training rows, so it is not known what its "
                "partitions hold. Give them: update(..., data=(X, y)); or save models with "
                "keep_data=True."
            )
        held: TrainingSet = classifier.rows_
        return held
    rows = check_update(classifier, data, "data").partitioned(classifier.partitioner_)
    digests = zip(rows.partition_digests(), classifier.partition_digests_, strict=True)
    others = [index for index, (found, known) in enumerate(digests) if found != known]
    if others:
        raise InvalidInputError(
            f"data is not what the model was trained on: {len(others)} of {len(rows)} "
            f"partitions hold other rows, partition {others[0]} for one. Nothing changed."
        )
    return TrainingSet(rows)


def plan_update(classifier: Any, add: Any, remove: Any, data: Any = None) -> Change:
    """Find out what an update will change; nothing is changed yet."""
    if add is None and remove is None:
        raise InvalidInputError("update needs rows to add, rows to remove, or both.")
    rows = training_set(classifier, data)
    (new, added), (gone, removed) = (
        _requested(classifier, some, name) for some, name in ((add, "add"), (remove, "remove"))
    )
    for some, name in ((new, "add"), (gone, "remove")):
        if some is not None and (some.sample_weight is not None) != rows.weighted:
            had = "with" if rows.weighted else "without"
            raise InvalidInputError(
                f"the model was fitted {had} sample_weight, so `{name}` must come {had} it too."
            )
    change = _change(classifier, rows, new, gone)
    return replace(change, added=added, removed=removed)


def _requested(
    classifier: Any, rows: Any, name: str
) -> tuple[PartitionedData | None, tuple[str, ...]]:
    """Check the rows of `add` or `remove` and name them; places that others decide stay open."""
    if rows is None:
        return None, ()
    known = classifier.partitioner_
    partitioner = known if known.rowwise else ContentHash(n_partitions=1)
    table = check_update(classifier, rows, name)
    data = table.partitioned(partitioner)
    # In a grid a row is several rows, of which each has a digest of its own.
    digests = sample_digests(table.X) if isinstance(known, Grid) else data.digests
    return data, row_names(digests, classifier.classes_[table.y])


def row_names(digests: NDArray[np.uint8], labels: NDArray[Any]) -> tuple[str, ...]:
    """Return what a receipt calls rows: digest of the sample, and label."""
    pairs = zip(digests, labels.tolist(), strict=True)
    return tuple(f"{digest.tobytes().hex()}:{label}" for digest, label in pairs)


def _placed(keys: NDArray[np.void], partitions: NDArray[Any]) -> NDArray[np.void]:
    """Add the partition to what identifies a row: of another contributor it is another row."""
    table = np.column_stack(
        [
            np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), keys.itemsize),
            partitions.astype(">i8").view(np.uint8).reshape(len(keys), 8),
        ]
    )
    return np.ascontiguousarray(table).view(f"V{table.shape[1]}").ravel()


def find_rows(
    keys: NDArray[np.void], wanted: NDArray[np.void], origin: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """Return one position in `keys` for every wanted key, no position twice, or raise.

    Repeated rows count as often as they occur: a row that is wanted twice takes two copies.
    `origin` says of which row each wanted one is a block.
    """
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    wanted_order = np.argsort(wanted, kind="stable")
    sorted_wanted = wanted[wanted_order]
    repeats = np.arange(len(wanted)) - np.searchsorted(sorted_wanted, sorted_wanted)
    position = np.searchsorted(sorted_keys, sorted_wanted) + repeats
    inside = position < len(keys)
    inside[inside] = sorted_keys[position[inside]] == sorted_wanted[inside]
    missing = wanted_order[~inside]
    if len(missing):
        numbers = np.arange(len(wanted)) if origin is None else origin
        rows = np.unique(numbers[missing])
        raise InvalidRowsError(
            f"row {rows[0]} of `remove` is not in the training set (or not as often as it is to be "
            f"removed); {len(rows)} of {numbers.max() + 1} rows were not found. Nothing changed."
        )
    return order[position]


def _change(
    classifier: Any, rows: TrainingSet, new: PartitionedData | None, gone: PartitionedData | None
) -> Change:
    """Put the new rows in, take the others out, and find which partitions changed.

    Where a row's place and features depend on no other row, only the partitions it falls into are
    read.
    """
    partitioner, known = classifier.partitioner_, classifier.partition_digests_
    rowwise, k = partitioner.rowwise, len(known)
    local = rowwise and classifier.context_ is None
    if local:
        read = {int(i) for some in (new, gone) if some is not None for i in some.assignment}
        if new is None or not new.n_rows:
            # A partition that keeps its rows comes along: it shows what a sample looks like.
            read |= set([i for i in np.flatnonzero(rows.sizes).tolist() if i not in read][:1])
        before = gathered({index: rows.shard(index) for index in read}, k)
    else:
        read, before = set(range(k)), rows.whole()
    X, y, weight, digests = before.X, before.y, before.sample_weight, before.digests
    places = before.assignment
    if gone is not None:
        keys = row_keys(digests, y, weight)
        wanted = row_keys(gone.digests, gone.y, gone.sample_weight)
        if rowwise:
            keys, wanted = _placed(keys, places), _placed(wanted, gone.assignment)
        keep = np.delete(np.arange(len(y)), find_rows(keys, wanted, gone.origin))
        X, y, digests, places = _safe_indexing(X, keep), y[keep], digests[keep], places[keep]
        weight = None if weight is None else weight[keep]
    if new is not None:
        X, y = stacked([X, new.X]), np.concatenate([y, new.y])
        digests = np.concatenate([digests, new.digests])
        places = np.concatenate([places, new.assignment])
        if weight is not None and new.sample_weight is not None:
            weight = np.concatenate([weight, new.sample_weight])
    if not len(y):
        raise InvalidRowsError("an update cannot remove every row. Nothing changed.")
    if not rowwise:
        places = partitioner.assign(X)
    after = PartitionedData.build(X, y, places, digests, k, sample_weight=weight)
    if not np.array_equal(sample_digests(X), digests):
        raise InvalidRowsError(
            "the training rows were changed in place after they were fitted, or cannot be held in "
            "one container with the added rows. Fit again."
        )
    features = classifier._context(TrainingSet(after)) != classifier.context_
    digest_of = after.partition_digests()
    found = [digest_of[i] if i in read else known[i] for i in range(k)]
    retrain = [i for i in range(k) if features or found[i] != known[i]]
    later = TrainingSet(after)
    if local:
        later = rows.changed({index: after.shard(index) for index in retrain})
    return Change(retrain, after, later, found, features)


def apply_change(classifier: Any, change: Change, writer: ModelWriter | None = None) -> Receipt:
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
            require_same_spec(classifier)
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


def _trained(classifier: Any, change: Change, writer: ModelWriter | None) -> Ensemble:
    ensemble: Ensemble = classifier.ensemble_
    if writer is None:
        return ensemble.replaced(change.retrain, classifier._train(change.data, change.retrain))
    assert isinstance(ensemble, StoredEnsemble)
    spec = member_spec(classifier, describe(classifier))
    run = TrainingRun(writer, spec, change.partition_digests, change.retrain)
    if run.missing:
        classifier._train_portions(change.data, run.missing, run.add)
    return ensemble.with_items(list(run.items(change.retrain)))


def _require_same_container(classifier: Any, change: Change) -> None:
    """Refuse rows in another kind of container than the members were trained from."""
    known, found = classifier.container_, kind_of(change.data.X)
    if known is not None and found != known:
        raise GuaranteeError(
            f"The model was trained on {known} data, but these rows are {found}. Pass {known} data "
            "or fit again. Nothing changed."
        )


def require_same_spec(classifier: Any) -> None:
    """Refuse to put members of one spec beside stored members of another."""
    ensemble = classifier.ensemble_
    if not isinstance(ensemble, StoredEnsemble):
        return
    manifest = ensemble.reader.manifest
    if manifest.spec != member_spec(classifier, describe(classifier)):
        others = ", ".join(differences(manifest.environment)) or "parameters of the model"
        raise GuaranteeError(
            f"members trained here would not be those of training from scratch: {others} changed "
            "since the model was trained. Update it where it was trained, or train it again."
        )

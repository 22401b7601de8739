"""Carrying out an update: train what changes, and account for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poisonproof.estimators.changes import Change, asked_rows
from poisonproof.estimators.description import member_law
from poisonproof.estimators.receipts import Receipt, Retrained
from poisonproof.exceptions import GuaranteeError
from poisonproof.learners.base import Ensemble
from poisonproof.partition.containers import kind_of
from poisonproof.store import FolderWriter, StoredEnsemble, TrainingRun, differences, json_digest

__all__ = ["apply_change", "asked_digest", "request_digest", "require_same_law"]


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

"""Training and updating straight into a store, so that nothing finished is lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from poisonproof.estimators.dpa import PartitionAggregation
from poisonproof.estimators.saving import commit, describe, draft, draft_manifest, member_spec
from poisonproof.estimators.self_check import check_members
from poisonproof.estimators.training_set import TrainingSet
from poisonproof.estimators.updating import Receipt, apply_change, plan_update
from poisonproof.exceptions import GuaranteeError, InvalidInputError, StoreError
from poisonproof.members.member import BatchedLearner, Finished
from poisonproof.store.items import StoredEnsemble, decode_members
from poisonproof.store.manifest import Folder, ModelReader
from poisonproof.store.objects import encode_object, types_of
from poisonproof.store.training_run import TrainingRun
from poisonproof.store.writing import ModelWriter, refuse_another


def store_members(
    classifier: Any,
    path: str | os.PathLike[str],
    data: Any,
    train: Callable[[Sequence[int], Finished], None],
    *,
    keep_data: bool,
    overwrite: bool = False,
    cluster: Any = None,
    self_check: bool = True,
) -> None:
    """Train what the store does not hold yet, then make the store a model.

    `train`, or the cluster, trains the members of partitions and hands each over once. If the
    self-check finds a member that differs, all that this run has stored is dropped: any member may
    be wrong. If the process of the check fails, it stays, and the next run continues with it.
    """
    array_members = isinstance(classifier._template(), BatchedLearner)
    trusted = [] if array_members else types_of(classifier.estimator)  # their code runs here
    with ModelWriter(path) as writer:
        model = describe(classifier)
        refuse_another(path, model, overwrite=overwrite)
        spec, digests = member_spec(classifier, model), classifier.partition_digests_
        run = TrainingRun(writer, spec, digests)
        if cluster is not None and run.missing:
            cluster.train(classifier, data, run)
        elif run.missing or run.family is None:
            train(run.missing, run.add)
        members = [run.digests[index] for index in range(len(digests))]
        classifier.n_self_checked_ = 0
        if self_check:
            about = classifier.classes_, classifier.random_state, trusted
            try:
                classifier.n_self_checked_ = check_members(
                    classifier,
                    data,
                    members,
                    lambda i: decode_members(
                        str(run.family), run.shared, list(run.items([i])), *about
                    ),
                    run.failures,
                )
            except GuaranteeError:
                run.forget()
                raise
        manifest = draft_manifest(
            classifier,
            model,
            str(run.family),
            members,
            spec=spec,
            shared=run.shared,
            failures=run.failures,
        )
        writer.commit(
            manifest,
            encode_object(classifier._templates()),
            run.items,
            classifier.rows_.items if keep_data else None,
            overwrite=overwrite,
        )
    reader = ModelReader.open(path)
    seed = classifier.random_state
    classifier.ensemble_ = StoredEnsemble(reader, classifier.classes_, seed, trusted)
    if keep_data:
        classifier.rows_ = TrainingSet(reader)


def update_model(
    path: str | os.PathLike[str],
    add: Any = None,
    remove: Any = None,
    data: Any = None,
    *,
    expect: str | None = None,
    trusted: Iterable[str] = (),
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Receipt:
    """Update a model directory in place; killed at any moment, the same call finishes the work.

    Or it says that the rows to remove are gone already.

    Parameters
    ----------
    path : path
        A model directory.
    add, remove, data
        As in ``DPAClassifier.update``.
    expect : str, optional
        The fingerprint the model must have; so a script that is started twice updates once.
    trusted : iterable of str
        As in `load`.
    n_jobs, verbose : int
        As in ``DPAClassifier``.

    Returns
    -------
    Receipt
        What was done.
    """
    from poisonproof.estimators.loading import rebuild

    Folder(Path(path)).manifest()  # before anything is made there: it may be no model
    with ModelWriter(path) as writer:
        if writer.stored is None:
            raise StoreError(f"{path} is not a poisonproof model.")
        classifier = rebuild(writer.stored, trusted)
        classifier.set_schedule(n_jobs, verbose)
        found = writer.stored.manifest.fingerprint
        if expect is not None and expect != found:
            raise StoreError(
                f"{path} has the fingerprint {found}, but {expect} was expected; this update or "
                "another one was made before. Nothing changed."
            )
        if not isinstance(classifier, PartitionAggregation):
            if data is not None:
                raise InvalidInputError("This model keeps its rows itself; leave `data` out.")
            receipt: Receipt = classifier.update(add, remove).receipt_
            classifier._commit(writer)
            after = classifier._fingerprint()
            return replace(receipt, fingerprint_before=found, fingerprint_after=after)
        change = plan_update(classifier, add, remove, data)
        receipt = replace(
            apply_change(classifier, change, writer),
            fingerprint_before=found,
            fingerprint_after=draft(classifier).fingerprint,
        )
        commit(classifier, writer, keep_data=writer.stored.manifest.keeps_data)
    return receipt

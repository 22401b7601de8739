"""Saving a fitted classifier to a model directory or archive."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from poisonproof.estimators.description import draft_manifest, names_of, notes_of, templates_of
from poisonproof.exceptions import InvalidInputError, StoreError
from poisonproof.learners.base import Ensemble
from poisonproof.learners.members import MemberList
from poisonproof.store import (
    SHARED_ITEM,
    Item,
    Manifest,
    ModelWriter,
    StoredEnsemble,
    encode_members,
    encode_object,
    open_writer,
    shared_of,
)
from poisonproof.store.blocks import BlockEntry, content_name, encode_block

__all__ = ["commit", "draft", "model_fingerprint", "save"]


def save(
    classifier: Any,
    path: str | os.PathLike[str],
    *,
    keep_data: bool | None = None,
    overwrite: bool = False,
) -> None:
    """Write a fitted classifier; only what is not there yet is written."""
    with open_writer(path) as writer:
        _refuse_later_state(classifier.ensemble_, writer)
        commit(classifier, writer, keep_data=keep_data, overwrite=overwrite)


def commit(
    classifier: Any,
    writer: ModelWriter,
    *,
    keep_data: bool | None,
    pending: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write a classifier through an open writer and return its manifest."""
    ensemble, rows = classifier.ensemble_, classifier.rows_
    keep = rows is not None and rows.in_store if keep_data is None else keep_data
    if keep and rows is None:
        raise InvalidInputError(
            "this model was loaded without its training rows, so it cannot keep them. Fit it "
            "again, or save with keep_data=False."
        )
    manifest, shared_item = draft(classifier)
    return writer.commit(
        replace(manifest, pending=pending),
        lambda: encode_object(templates_of(classifier)),
        _member_items(ensemble, classifier.partition_digests_),
        rows.item if keep else None,
        shared_item,
        # Whoever updates a store pays for what changes, not for what is there.
        check_kept=not isinstance(ensemble, StoredEnsemble),
        overwrite=overwrite,
    )


def draft(classifier: Any) -> tuple[Manifest, Item | None]:
    """Return the manifest without blocks, and the arrays that all members share."""
    ensemble = classifier.ensemble_
    if isinstance(ensemble, StoredEnsemble):
        stored, item = ensemble.reader.manifest, ensemble.shared_item()
        if not ensemble.is_changed:
            # Whoever trained the members described them; this machine may be another.
            model = stored.model | names_of(classifier)
            return replace(stored, model=model, notes=notes_of(classifier)), item
        family, shared, arrays_entry = stored.family, stored.shared, stored.shared_arrays
    else:
        arrays_entry = None
        family, shared, arrays = shared_of(ensemble)
        item = Item(SHARED_ITEM, "", "", {}, arrays) if arrays else None
    manifest = draft_manifest(
        classifier,
        family=family,
        shared=shared,
        member_digests=ensemble.digests(),
        failures=ensemble.failures(),
    )
    return replace(manifest, shared_arrays=arrays_entry), item


def model_fingerprint(classifier: Any) -> str:
    """Return the fingerprint of a fitted classifier: the one in its manifest, once it is saved.

    It is the SHA-256 of everything that decides a vote or a certificate: specification, label set,
    partitions, members, software and processor. Training output, reports, receipts and audits show
    it, and ``poisonproof audit --fingerprint`` takes it.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from poisonproof import DPAClassifier
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]] * 5, [0, 0, 1, 1] * 5
    >>> first = DPAClassifier(GaussianNB(), n_partitions=2, classes=[0, 1]).fit(X, y)
    >>> again = DPAClassifier(GaussianNB(), n_partitions=2, classes=[0, 1]).fit(X[::-1], y[::-1])
    >>> model_fingerprint(first) == model_fingerprint(again)
    True
    """
    ensemble = classifier.ensemble_
    if isinstance(ensemble, StoredEnsemble) and not ensemble.is_changed:
        return ensemble.reader.manifest.fingerprint
    manifest, shared = draft(classifier)
    if shared is not None:
        data = encode_block([shared])
        entry = BlockEntry(content_name(data), len(data), (shared.index,))
        manifest = replace(manifest, shared_arrays=entry)
    return manifest.fingerprint


def _member_items(ensemble: Ensemble, digests: list[str]) -> Callable[[int], Item]:
    """Return a function that encodes one member, and not more than it must."""
    if isinstance(ensemble, StoredEnsemble):
        return lambda index: replace(ensemble.item(index), partition=digests[index])
    if isinstance(ensemble, MemberList):
        members = ensemble.members
        return lambda index: encode_members(MemberList([members[index]]), [index], digests)[0]

    @cache
    def everyone() -> list[Item]:
        return encode_members(ensemble, range(len(ensemble)), digests)

    return lambda index: everyone()[index]


def _refuse_later_state(ensemble: Ensemble, writer: ModelWriter) -> None:
    """Raise if the store was changed since this model was read from it."""
    if not isinstance(ensemble, StoredEnsemble) or writer.stored is None:
        return
    read, there = ensemble.reader, writer.stored
    same = Path(read.place.path).resolve() == Path(there.place.path).resolve()
    if same and replace(read.manifest, pending=None) != replace(there.manifest, pending=None):
        raise StoreError(
            f"{writer.path} was changed by someone else after it was loaded. Load it again."
        )

"""Checking a stored model against the data it claims to be trained on."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from poisonproof.estimators.checked_table import check_update
from poisonproof.estimators.loading import rebuild
from poisonproof.estimators.saving import ROWS
from poisonproof.exceptions import InvalidInputError, StoreError
from poisonproof.members.digest import state_digest
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.store.items import LIST
from poisonproof.store.manifest import ModelReader, differences, environment_here

SUSPECTED = 0.01
"""The share of dishonest members for which the report gives the odds of finding one."""


@dataclass(frozen=True)
class Finding:
    """One check: whether it passed (None: it could not be made), and what that means in words."""

    check: str
    passed: bool | None
    words: str


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit: what it verified and what it did not.

    Attributes
    ----------
    fingerprint : str or None
        The fingerprint of the model as it lies there; None if it cannot be read.
    findings : tuple of Finding
        The checks, in the order they were made.
    retrained : tuple of int
        Members that were trained again.
    """

    fingerprint: str | None
    findings: tuple[Finding, ...]
    retrained: tuple[int, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(finding.passed is not False for finding in self.findings)

    def sentences(self) -> list[str]:
        """Return the report in words."""
        marks = {True: "verified", False: "FAILED", None: "not verified"}
        return [f"{f.check}: {marks[f.passed]}. {f.words}" for f in self.findings]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "passed": self.passed}


def audit_model(
    path: str | os.PathLike[str],
    data: Any = None,
    *,
    sample: int | Literal["all"] = 20,
    fingerprint: str | None = None,
    seed: int | None = None,
    trusted: Iterable[str] = (),
    n_jobs: int | None = None,
    verbose: int = 0,
) -> AuditReport:
    """Check a stored model: its files, its data, and members chosen at random.

    Parameters
    ----------
    path : path
        The model.
    data : tuple (X, y), (X, y, groups) or (X, y, groups, sample_weight), optional
        The training rows, or with a schema a frame; by default those that the store keeps itself.
    sample : int or "all", default=20
        How many members to train again.
    fingerprint : str, optional
        The model's fingerprint, obtained elsewhere than from the store.
    seed : int, optional
        Chooses the members; by default nobody can foresee which.
    trusted, n_jobs, verbose
        As in `load` and ``DPAClassifier``.

    Guarantee
    ---------
    With a fingerprint from elsewhere, a swapped member, a changed row of `data` or an edit of
    anything in the manifest that decides a vote or a certificate is found. With ``sample="all"``
    and no difference, every member is what its partition of `data` makes.
    """
    try:
        reader = ModelReader.open(path)
        classifier = rebuild(reader, trusted).set_schedule(n_jobs, verbose)
    except StoreError as error:
        return AuditReport(None, (Finding("Manifest", False, str(error)),))
    audit = _Audit(reader, classifier)
    manifest, found = reader.manifest, reader.manifest.fingerprint
    words = (
        f"It describes {manifest.k:,} members on {classifier.n_rows_:,} rows and "
        f"has the fingerprint {found}, which matches its content."
    )
    findings = [Finding("Manifest", True, words), _compared(found, fingerprint), audit.files()]
    findings += [audit.environment(), *audit.training(data, sample, seed)]
    return AuditReport(found, tuple(findings), audit.retrained)


def _compared(found: str, expected: str | None) -> Finding:
    """Compare the fingerprint with the one that is expected."""
    if expected is None:
        words = (
            "No fingerprint from elsewhere was given, so whoever can write to the store could "
            "have replaced all of it by another model."
        )
        return Finding("Fingerprint", None, words)
    if expected.strip().lower() == found:
        return Finding("Fingerprint", True, "It is the one that was expected.")
    words = f"The model has the fingerprint {found}, but {expected} was expected."
    return Finding("Fingerprint", False, words)


class _Audit:
    """The checks of one audit that look at more than the manifest; each returns what it found."""

    def __init__(self, reader: ModelReader, classifier: Any) -> None:
        self.reader = reader
        self.classifier = classifier
        self.retrained: tuple[int, ...] = ()
        self.others = differences(reader.manifest.environment)

    def files(self) -> Finding:
        """Read every file, recompute every digest."""
        manifest = self.reader.manifest
        try:
            for entry in manifest.entries():
                self.reader.place.object(entry)
            if manifest.family != ROWS:  # those are read as a whole when a model is opened
                _ = self.classifier.ensemble_.loaded
            for index in range(manifest.k if manifest.keeps_data else 0):
                self.classifier.rows_.shard(index)
        except StoreError as error:
            return Finding("Files", False, str(error))
        if others := self.reader.unnamed():
            words = f"The store holds files that no manifest names: {', '.join(others[:5])}."
            return Finding("Files", False, words)
        count = f"All {len(manifest.objects):,} files have the content their names stand for"
        packages = manifest.environment.get("packages")
        if manifest.family == LIST and packages != environment_here()["packages"]:
            words = f"{count}; digests of members were not recomputed with other library versions."
            return Finding("Files", None, words)
        return Finding("Files", True, f"{count}, and every member has the digest listed.")

    def environment(self) -> Finding:
        words = "They are those the model was trained with."
        if self.others:
            words = (
                f"The model was trained with {'; '.join(self.others)}. Members trained here may "
                "have other bits for that reason alone."
            )
        return Finding("Software and CPU", None if self.others else True, words)

    def training(self, data: Any, sample: Any, seed: int | None) -> Iterator[Finding]:
        """Partition the data, then train some members again."""
        manifest = self.reader.manifest
        if manifest.family == ROWS:
            yield self._rows_that_vote(data)
            return
        try:
            rows, finding = self._rows(data)
        except (StoreError, InvalidInputError) as error:
            rows, finding = None, Finding("Training rows", False, str(error))
        yield finding
        if rows is None:
            yield Finding("Members", None, "None was trained again.")
            return
        if self.classifier.features is not None:
            yield self._features(rows)
        yield self._members(rows, _chosen(sample, manifest.k, seed))

    def _rows_that_vote(self, data: Any) -> Finding:
        """Fit the whole model again: it has no members that could be sampled."""
        if data is None:
            return Finding("Training rows", None, "No training rows were given to fit it on again.")
        try:
            X, y = data[:2] if isinstance(data, tuple) else (data, None)
            again = clone(self.classifier).fit(X, y)
        except InvalidInputError as error:
            return Finding("Training rows", False, str(error))
        same = again._draft()[0].member_digests == self.reader.manifest.member_digests
        words = "Fitted again on them, the model is " + ("the stored one." if same else "another.")
        return Finding("Training rows", same or (None if self.others else False), words)

    def _rows(self, data: Any) -> tuple[PartitionedData | None, Finding]:
        """Return the rows in partitions, and whether they are those of the manifest."""
        classifier, manifest = self.classifier, self.reader.manifest
        if data is None and not manifest.keeps_data:
            words = "No training rows were given, and the store keeps none."
            return None, Finding("Training rows", None, words)
        if data is None:
            words = "They are the store's own: every partition has its digest."
            return classifier.rows_.whole(), Finding("Training rows", True, words)
        table = check_update(classifier, data, "data")
        found = table.partitioned(classifier.partitioner_)
        others = _unequal(range(manifest.k), found.partition_digests(), manifest.partition_digests)
        words = f"All {len(table.y):,} rows, partitioned again, give the digests listed."
        if others:
            words = (
                f"{len(others):,} of {manifest.k:,} partitions hold other rows than the model was "
                f"trained on: {_listed(others)}. After an update, give the rows as they are now."
            )
        return found, Finding("Training rows", not others, words)

    def _features(self, rows: PartitionedData) -> Finding:
        """Fit the feature map again: the stored one could have been tampered with."""
        classifier = self.classifier
        known = state_digest(classifier.features_)
        classifier.features_ = classifier._fit_features(rows)
        same = state_digest(classifier.features_) == known
        words = f"Fitted again, the feature map is {'the stored' if same else 'another'} one."
        return Finding("Features", same or (None if self.others else False), words)

    def _members(self, rows: PartitionedData, which: Sequence[int]) -> Finding:
        k, listed = self.reader.manifest.k, self.reader.manifest.member_digests
        self.retrained = tuple(which)
        trained = self.classifier._train(rows, which).digests()
        others = _unequal(which, trained, [listed[index] for index in which])
        if not others:
            return Finding("Members", True, _sampled(len(which), k))
        words = (
            f"{len(others):,} of {len(which):,} members trained again from the rows are not "
            f"the stored ones: {_listed(others)}."
            + " Software or CPU differ, too."
            * bool(self.others)
        )
        return Finding("Members", None if self.others else False, words)


def _unequal(indices: Sequence[int], found: Sequence[str], listed: Sequence[str]) -> list[int]:
    return [i for i, one, other in zip(indices, found, listed, strict=True) if one != other]


def detection_odds(n_members: int, n_dishonest: int, n_checked: int) -> float:
    """Return the probability that a random sample contains a dishonest member."""
    honest = math.comb(n_members - n_dishonest, n_checked)
    return 1.0 - honest / math.comb(n_members, n_checked)


def _sampled(checked: int, k: int) -> str:
    if checked == k:
        return f"All {k:,} were trained again from the rows and are the stored ones."
    dishonest = max(1, math.ceil(SUSPECTED * k))
    odds = detection_odds(k, dishonest, checked)
    return (
        f"{checked:,} of {k:,}, chosen at random, were trained again from the rows and are the "
        f"stored ones. If {SUSPECTED:.0%} of the members ({dishonest:,}) were dishonest, "
        f"{checked:,} checks find one with probability {odds:.0%}; a sample of all proves it."
    )


def _chosen(sample: Any, k: int, seed: int | None) -> list[int]:
    if sample == "all":
        return list(range(k))
    if isinstance(sample, bool) or not isinstance(sample, int) or sample < 1:
        raise InvalidInputError(f"sample must be 'all' or a number from 1 on, got {sample!r}.")
    chosen = np.random.default_rng(seed).choice(k, size=min(sample, k), replace=False)
    return sorted(int(index) for index in chosen)


def _listed(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices[:10])) + (", ..." if len(indices) > 10 else "")

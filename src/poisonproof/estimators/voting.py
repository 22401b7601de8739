"""How fitted members answer: votes, plurality, certificates."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates import Certificates, certify_votes
from poisonproof.certificates.threats import (
    OBSERVED_LABELS,
    Threat,
    parse_threat,
    resolve_threat,
    uncertified,
)
from poisonproof.estimators.mixing import refuse_mixing
from poisonproof.estimators.usable_rows import unusable, usable_rows
from poisonproof.estimators.validation import check_samples
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.learners.base import Ensemble
from poisonproof.learners.streams import isolated_streams
from poisonproof.partition import Partitioner, take_canonical
from poisonproof.progress import make_progress

__all__ = ["VotingMembers"]


class VotingMembers(ClassifierMixin, BaseEstimator):
    """A fitted ensemble with one member per partition that predicts by plurality vote."""

    threats: ClassVar[tuple[str, ...]]
    """The threats this method can certify, the first one by default."""

    classes: Any
    n_partitions: int
    n_jobs: int | None
    random_state: int
    verbose: int

    classes_: NDArray[Any]
    partitioner_: Partitioner
    features_: Any
    ensemble_: Ensemble

    @abstractmethod
    def _template(self) -> Any:
        """Return the classifier that every member is a copy of."""

    def votes(self, X: Any) -> NDArray[np.int16]:
        """Return every member's vote.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
            Samples.

        Returns
        -------
        ndarray of shape (n, k)
            Indices into ``classes_``, -1 where a member abstains.
        """
        samples = self._asked(X)
        return self.ensemble_.votes(
            samples, n_jobs=self.n_jobs, progress=make_progress(self.verbose)
        )

    def _asked(self, X: Any) -> Any:
        """Return samples as members are asked about them: checked, mapped, canonical."""
        check_is_fitted(self, "ensemble_")
        X = check_samples(self, X, reset=False)
        self._refuse_rows(~usable_rows(self, X))
        if self.features_ is not None:
            rows = take_canonical(X, None)
            X = self._mapped(rows)
            refuse_mixing(self.features_, self._mapped, rows, X)
        return take_canonical(X, None)

    def _mapped(self, X: Any) -> Any:
        """Map samples to features; a map that draws random numbers draws the same every time."""
        with isolated_streams(self.random_state, self.n_partitions):
            return self.features_.transform(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the plurality label of every row, ties to the smaller label."""
        votes = self.votes(X)
        labels: NDArray[Any] = self.classes_[certify_votes(votes, len(self.classes_)).labels]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return each label's share of the votes given, equal shares where all abstain."""
        counts = certify_votes(self.votes(X), len(self.classes_)).counts.astype(np.float64)
        given = counts.sum(axis=1, keepdims=True)
        shares = np.full_like(counts, 1 / len(self.classes_))
        np.divide(counts, given, out=shares, where=given > 0)
        return shares

    def certify(
        self,
        X: Any,
        threat: str | Threat | None = None,
        target: Any = None,
        *,
        require_declared: bool = False,
    ) -> Certificates:
        """Predict, and prove for every row how large an attack its prediction survives.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
            Samples.
        threat : {"insert_delete", "label_flip", "replace"}, optional
            What the attacker does to training rows; by default the strongest of the method.
        target : label, optional
            Certify against this one wrong label only.
        require_declared : bool, default=False
            Refuse to certify if `classes` was not declared but taken from the labels.

        Returns
        -------
        Certificates
            ``labels`` are class values.

        Raises
        ------
        GuaranteeError
            If nothing proves the certificate that was asked for.
        """
        check_is_fitted(self, "ensemble_")
        resolved = self._resolve_threat(threat, require_declared)
        index = None if target is None else self._class_index(target)
        certificates = certify_votes(
            self.votes(X), len(self.classes_), threat=resolved, target=index
        )
        return certificates.with_classes(self.classes_)

    def _refuse_rows(self, bad: NDArray[np.bool_]) -> None:
        if bad.any():
            takes_missing = get_tags(self).input_tags.allow_nan
            advice = (
                "Remove them, or bound their values."
                if takes_missing
                else "Remove them, impute inside the member's pipeline, or use a learner that "
                "takes missing values (infinity is none)."
            )
            raise InvalidRowsError(
                f"Input X contains {unusable(self)} in row {int(np.argmax(bad))} "
                f"({int(bad.sum())} such rows), which {type(self._template()).__name__} members "
                f"cannot take. {advice}"
            )

    def _resolve_threat(self, asked: str | Threat | None, require_declared: bool) -> Threat:
        if require_declared and self.classes is None:
            raise GuaranteeError(
                "the label set was taken from the training labels, so one poisoned label could "
                "change the outputs of every member. Declare it: classes=[...]."
            )
        usual, certifies = self.threats[0], self.partitioner_.certifies
        if usual in certifies:  # contributors are certified against whatever they do
            usual = next(name for name in certifies if name in self.threats)
        threat = usual if asked is None else asked
        name = parse_threat(threat).name
        if name not in self.threats:
            raise uncertified(
                type(self).__name__, self.threats, name, dict.fromkeys([name], "DPAClassifier")
            )
        observed = () if self.classes is not None else (OBSERVED_LABELS,)
        return resolve_threat(threat, self.partitioner_, (*self._assumptions(), *observed))

    def _assumptions(self) -> tuple[str, ...]:
        """Return what the method itself takes for granted."""
        return tuple(self.ensemble_.assumptions)

    def _class_index(self, target: Any) -> int:
        position = np.flatnonzero(self.classes_ == target)
        if len(position) != 1:
            raise InvalidInputError(
                f"target must be one of the classes {self.classes_.tolist()}, got {target!r}."
            )
        return int(position[0])

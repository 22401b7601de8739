"""How fitted members answer: votes, plurality, certificates."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates import Certificates, certify_votes
from poisonproof.certificates.threats import Threat, parse_threat, resolve_threat, uncertified
from poisonproof.estimators.certifying import CertifyingClassifier
from poisonproof.estimators.mapped import map_alone
from poisonproof.estimators.mixing import refuse_mixing
from poisonproof.estimators.usable_rows import unusable, usable_rows
from poisonproof.estimators.validation import check_samples
from poisonproof.exceptions import InvalidRowsError
from poisonproof.features.base import FrozenTransformer
from poisonproof.features.pipeline import is_own_map
from poisonproof.learners.base import Ensemble
from poisonproof.learners.members import guarded, mapped_by
from poisonproof.learners.streams import in_own_streams
from poisonproof.partition import Partitioner, take_canonical
from poisonproof.progress import make_progress

__all__ = ["VotingMembers"]


class VotingMembers(CertifyingClassifier):
    """A fitted ensemble with one member per partition that predicts by plurality vote."""

    n_partitions: int
    n_jobs: int | None
    random_state: int
    verbose: int

    partitioner_: Partitioner
    partition_digests_: list[str]
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
            X = self._mapped_asked(take_canonical(X, None))
        return take_canonical(X, None)

    def _mapped_asked(self, rows: Any) -> Any:
        """Map samples to predict, each alone: nobody knows what a user's map does to several."""
        if isinstance(self.features_, FrozenTransformer) or is_own_map(self.features_):
            return self._mapped_together(rows)
        return map_alone(self._mapped, rows)

    def _mapped_together(self, rows: Any) -> Any:
        mapped = self._mapped(rows)
        refuse_mixing(self.features_, self._mapped, rows, mapped)
        return mapped

    def _mapped(self, X: Any) -> Any:
        """Map samples to features; a map that draws random numbers draws the same every time."""
        ask = partial(mapped_by, self.features_)
        return in_own_streams(self.random_state, self.n_partitions, lambda: ask(guarded(X)))

    def _counted(self, X: Any) -> Certificates:
        return certify_votes(self.votes(X), len(self.classes_))

    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        return certify_votes(self.votes(X), len(self.classes_), threat=threat, target=target)

    def _refuse_rows(self, bad: NDArray[np.bool_], limit: float = math.inf) -> None:
        if bad.any():
            takes_missing = get_tags(self).input_tags.allow_nan
            advice = (
                "Remove them, or bound their values."
                if takes_missing
                else "Remove them, impute inside the member's pipeline, or use a learner that "
                "takes missing values (infinity is none)."
            )
            raise InvalidRowsError(
                f"Input X contains {unusable(self, limit)} in row {int(np.argmax(bad))} "
                f"({int(bad.sum())} such rows), which {type(self._template()).__name__} members "
                f"cannot take. {advice}"
            )

    def _resolve_threat(self, asked: str | Threat | None, require_declared: bool) -> Threat:
        check_is_fitted(self, "ensemble_")
        observed = self._assumed_labels(require_declared)
        usual, certifies = self.threats[0], self.partitioner_.certifies
        if usual in certifies:  # contributors are certified against whatever they do
            usual = next(name for name in certifies if name in self.threats)
        threat = usual if asked is None else asked
        name = parse_threat(threat).name
        if name not in self.threats:
            raise uncertified(
                type(self).__name__, self.threats, name, dict.fromkeys([name], "DPAClassifier")
            )
        return resolve_threat(threat, self.partitioner_, (*self._assumptions(), *observed))

    def _assumptions(self) -> tuple[str, ...]:
        """Return what the method itself takes for granted."""
        return tuple(self.ensemble_.assumptions)

"""Holding a refit on poisoned rows against what was certified before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from poisonproof.attacks.random_rows import ATTACK_THREATS, Attack

__all__ = ["Damage", "Reference"]


@dataclass(frozen=True)
class Damage:
    """What one attack did.

    Attributes
    ----------
    broken : ndarray of int
        Test rows whose prediction was certified at the attack's size and changed. Must be empty.
    leaked : ndarray of int
        Members outside the touched partitions that changed. Must be empty.
    certified : int
        Test rows that were certified at the attack's size.
    turned : ndarray of int
        Test rows whose prediction changed, certified or not.
    changed : int
        Members that changed.
    """

    broken: NDArray[np.intp]
    leaked: NDArray[np.intp]
    certified: int
    turned: NDArray[np.intp]
    changed: int

    @property
    def holds(self) -> bool:
        """Whether every certificate held and every untouched member kept its bits."""
        return len(self.broken) == 0 and len(self.leaked) == 0


@dataclass(frozen=True)
class Reference:
    """A classifier fitted on clean rows, remembered by everything an attack could change.

    Attributes
    ----------
    digests : tuple of str
        One per member.
    votes : ndarray of shape (n, k)
        On the test rows.
    labels, runner_up : ndarray of shape (n,)
        Predictions, and the labels closest behind.
    radius : dict of str to ndarray of shape (n,)
        Threat name to certified radii, for every threat the classifier certifies.
    """

    digests: tuple[str, ...]
    votes: NDArray[Any]
    labels: NDArray[Any]
    runner_up: NDArray[Any]
    radius: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, classifier: Any, X_test: Any) -> Self:
        """Remember a fitted classifier."""
        certificates = {name: classifier.certify(X_test, name) for name in classifier.threats}
        first = certificates[classifier.threats[0]]
        return cls(
            tuple(classifier.ensemble_.digests()),
            classifier.votes(X_test),
            first.labels,
            first.runner_up,
            {name: certificate.radius for name, certificate in certificates.items()},
        )

    def compare(self, classifier: Any, X_test: Any, attack: Attack) -> Damage:
        """Compare with the same classifier fitted on the attack's rows.

        Parameters
        ----------
        classifier : classifier
            Fitted on ``attack.X`` and ``attack.y``.
        X_test : array of shape (n, d)
            The test rows of this reference.
        attack : Attack
            What was done to the training set.
        """
        votes = classifier.votes(X_test)
        labels = classifier.predict(X_test)
        other_bits = np.array(classifier.ensemble_.digests()) != np.array(self.digests)
        changed = other_bits | (votes != self.votes).any(axis=0)
        certified = self.radius[ATTACK_THREATS[attack.kind]] >= attack.size
        turned = labels != self.labels
        return Damage(
            broken=np.flatnonzero(turned & certified),
            leaked=np.setdiff1d(np.flatnonzero(changed), attack.touched),
            certified=int(certified.sum()),
            turned=np.flatnonzero(turned),
            changed=int(changed.sum()),
        )

"""What the certificates of a test set amount to, in numbers and in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates import Certificates, Threat
from poisonproof.evaluation.accuracy import (
    base_accuracy,
    certified_accuracy,
    check_sizes,
    median_radius,
    published_median,
)

__all__ = ["Summary", "default_sizes", "summarize"]


@dataclass(frozen=True)
class Summary:
    """The evaluation of one model on one test set.

    Attributes
    ----------
    threat : Threat
        The unit of every attack size below.
    n_rows, n_members, n_classes : int
        Test rows, members and classes.
    clean_accuracy : float
        Accuracy without an attack.
    base_accuracy : float
        Mean accuracy of the single members.
    median_radius : int or None
        Largest attack size with a certified accuracy of at least one half.
    published_median : int
        The same by the convention of the published tables, one more; 0 for None.
    sizes, certified : tuple
        Attack sizes and the certified accuracy at each.
    members_vote : bool
        Whether there are members that could answer alone: not where single rows vote, or all
        rows once.
    """

    threat: Threat
    n_rows: int
    n_members: int
    n_classes: int
    clean_accuracy: float
    base_accuracy: float
    median_radius: int | None
    published_median: int
    sizes: tuple[int, ...]
    certified: tuple[float, ...]
    members_vote: bool = True

    def sentences(self) -> tuple[str, ...]:
        """Return the summary in plain words, one sentence each."""
        alone = (
            f"; one of the {self.n_members:,} members alone gets {_percent(self.base_accuracy)} "
            "right on average"
        )
        return (
            f"{_percent(self.clean_accuracy)} of the {self.n_rows:,} test rows are classified "
            f"correctly{alone if self.members_vote else ''}.",
            self._median_sentence(),
            *(f"Assumed: {sentence}." for sentence in self.threat.assumptions),
        )

    def _median_sentence(self) -> str:
        if self.median_radius is None:
            return (
                "Fewer than half of the test rows are classified correctly, so no attack size "
                "leaves half of them correct."
            )
        if self.median_radius == 0:
            return (
                "No attack size is proved to leave half of the test rows correct: already "
                f"{self.threat.count(1)} might not."
            )
        return (
            "At least half of the test rows keep their correct label even if any "
            f"{self.threat.clause(self.median_radius)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return {
            "threat": self.threat.to_dict(),
            "n_rows": self.n_rows,
            "n_members": self.n_members,
            "n_classes": self.n_classes,
            "clean_accuracy": self.clean_accuracy,
            "base_accuracy": self.base_accuracy,
            "median_radius": self.median_radius,
            "published_median": self.published_median,
            "certified_accuracy": [
                {"size": size, "accuracy": share}
                for size, share in zip(self.sizes, self.certified, strict=True)
            ],
        }

    def __str__(self) -> str:
        return "\n".join(self.sentences())


def summarize(
    certificates: Certificates, y_true: ArrayLike, sizes: ArrayLike | None = None
) -> Summary:
    """Evaluate certificates on a test set.

    Parameters
    ----------
    certificates : Certificates
        Untargeted certificates of n test rows.
    y_true : array-like of shape (n,)
        True labels, in the form of ``certificates.labels``.
    sizes : array-like of int, optional
        Attack sizes to report; by default those of `default_sizes`.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 0, 0, 0], [1, 1, 1, 0, 0]], n_classes=2)
    >>> print(summarize(certificates, [0, 1]))
    100.0 % of the 2 test rows are classified correctly; one of the 5 members alone gets 80.0 %
    right on average.
    At least half of the test rows keep their correct label even if any 2 rows are inserted or
    deleted.
    """
    attacks = default_sizes(certificates) if sizes is None else check_sizes(sizes)
    attacks = np.atleast_1d(attacks)
    clean, *certified = certified_accuracy(certificates, y_true, [0, *attacks.tolist()]).tolist()
    return Summary(
        threat=certificates.threat,
        n_rows=len(certificates),
        n_members=certificates.n_members,
        n_classes=certificates.n_classes,
        clean_accuracy=clean,
        base_accuracy=base_accuracy(certificates, y_true),
        median_radius=median_radius(certificates, y_true),
        published_median=published_median(certificates, y_true),
        sizes=tuple(attacks.tolist()),
        certified=tuple(certified),
        members_vote=certificates.n_members > 1
        and certificates.method not in ("row_votes", "cluster_assignment"),
    )


def default_sizes(certificates: Certificates) -> NDArray[np.int64]:
    """Return 0, 1, 2, 5, 10, 20, 50, ... up to the largest radius.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> default_sizes(certify_votes([[0] * 25], n_classes=2))
    array([ 0,  1,  2,  5, 10])
    """
    largest = int(certificates.radius.max(initial=0))
    sizes = [0] + [m * 10**e for e in range(len(str(largest))) for m in (1, 2, 5)]
    return np.array([size for size in sizes if size <= largest], dtype=np.int64)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

"""Everything a report says about one model, gathered in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing

from poisonproof.certificates import Certificates, Threat
from poisonproof.estimators.training_sets import seen_rows
from poisonproof.evaluation import Summary, seen_sentence, summarize
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.report.identity import Identity, identify
from poisonproof.report.samples import Samples, SomeSamples, make_samples
from poisonproof.report.tally import Tally

__all__ = ["Evidence"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """One model on one test set.

    Attributes
    ----------
    name : str
        What the page calls the model.
    certificates : Certificates
        Untargeted certificates of n test rows.
    y_true : ndarray of shape (n,), optional
        True labels, in the form of ``certificates.labels``. Without them the report counts
        predictions that cannot change, right or wrong.
    samples : Samples, optional
        The n test rows, to show some of them.
    partition_sizes : ndarray of int, shape (k,), optional
        Training rows per partition.
    identity : Identity, optional
        Which model this is.
    places : ndarray of shape (n,), optional
        Where each test row stands in its file; by default rows are numbered from 0.
    place_unit : str, default="row"
        What the places count: rows, lines or files.
    n_groups : int, optional
        Contributors to the training rows, where certificates count them.
    seen : str, default=""
        What is known about rows that the model was trained on, which are no test rows, in words.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> evidence = Evidence("tiny", certify_votes([[0, 0, 0], [1, 0, 1]], 2), np.array([0, 1]))
    >>> evidence.tally.kept.at(1), evidence.largest
    (1, 1)
    """

    name: str
    certificates: Certificates
    y_true: NDArray[Any] | None = None
    samples: Samples | None = None
    partition_sizes: NDArray[Any] | None = None
    identity: Identity | None = None
    places: NDArray[Any] | None = None
    place_unit: str = "row"
    n_groups: int | None = None
    seen: str = ""

    def __post_init__(self) -> None:
        if self.certificates.target is not None:
            raise GuaranteeError(
                "A report speaks of predictions that stay as they are, which certificates against "
                "one target label do not prove. Certify without target."
            )
        n_rows = len(self.certificates)
        if not n_rows:
            raise InvalidInputError(f"There is nothing to report: {self.name!r} has no test rows.")
        if self.samples is not None and len(self.samples) != n_rows:
            raise InvalidInputError(
                f"{self.name!r} has {n_rows} certificates but {len(self.samples)} samples."
            )

    @classmethod
    def of(
        cls,
        classifier: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        name: str = "model",
        threat: str | Threat | None = None,
        require_declared: bool = False,
        samples: Samples | None = None,
        places: NDArray[Any] | None = None,
        place_unit: str = "row",
        feature_names: Sequence[str] | None = None,
        image_shape: tuple[int, int, int] | None = None,
    ) -> Self:
        """Certify the rows of `X` with a fitted classifier and gather the rest.

        Rows that it was trained on are left out, where it has its training rows.

        Parameters
        ----------
        classifier : DPAClassifier or SSDPAClassifier
            Fitted.
        X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
            Test rows.
        y : array-like of shape (n,), optional
            True labels.
        name : str
            What the page calls the model.
        threat, require_declared
            As in ``certify``.
        samples, places, place_unit
            As in the attributes, where `X` alone does not say how a row looks and where it stands.
        feature_names, image_shape
            How to show the rows of `X`; see `make_samples`.
        """
        seen = seen_rows(classifier, X)
        if samples is None:
            samples = make_samples(X, names=feature_names, image_shape=image_shape)
        truth, n_given = None if y is None else np.asarray(y), len(samples)
        if seen is not None and seen.any() and not seen.all():
            kept = np.flatnonzero(~seen)
            places = kept if places is None else np.asarray(places)[kept]
            X, samples = _safe_indexing(X, kept), SomeSamples(samples, kept)
            truth = None if truth is None else truth[kept]
        return cls(
            name=name,
            certificates=classifier.certify(X, threat=threat, require_declared=require_declared),
            y_true=truth,
            samples=samples,
            partition_sizes=getattr(classifier, "partition_sizes_", None),
            identity=identify(classifier) if hasattr(classifier, "ensemble_") else None,
            places=places,
            place_unit=place_unit,
            n_groups=(getattr(classifier, "provenance_", None) or {}).get("n_groups"),
            seen=seen_sentence(None if seen is None else int(seen.sum()), n_given),
        )

    @cached_property
    def tally(self) -> Tally:
        """How many rows withstand each attack size."""
        return Tally.of(self.certificates, self.y_true)

    @cached_property
    def summary(self) -> Summary | None:
        """The evaluation against the true labels, if they are known."""
        return None if self.y_true is None else summarize(self.certificates, self.y_true)

    @property
    def largest(self) -> int:
        """The largest radius."""
        return int(self.certificates.radius.max())

    @property
    def n_training_units(self) -> int | None:
        """What an attack is a share of: training rows, or contributors; None if not known."""
        unit = self.certificates.threat.unit
        if unit == "group":
            return self.n_groups
        if unit != "row" or self.partition_sizes is None:
            return None
        return int(self.partition_sizes.sum())

"""Weighted votes: all training rows vote for their labels, by weights that samples alone decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.certificates.label_flips import certify_one_member, fewest_flips
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat
from poisonproof.estimators.certifying import check_random_state
from poisonproof.estimators.checked_table import CheckedTable
from poisonproof.estimators.row_voting import RowVoting, require_integers
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.streams import in_own_streams
from poisonproof.members.weights import WalkWeights
from poisonproof.partition.values import take_canonical
from poisonproof.threads import one_thread

_BLOCK = 1 << 24  # weights held together, in numbers: bounds the working memory
_LARGEST = 2**62
_BITS = 29  # the absolute weights of a test row add up to less than 2^30


class WeightedVoteClassifier(RowVoting):
    """One vote of all training rows, with weights that the samples alone decide.

    The attacker may flip labels but not touch samples, so the weights may be learned from all
    samples. What a flipped label can do is known before it is flipped, and the fewest flips that
    change a prediction are counted exactly.

    Parameters
    ----------
    features : transformer, optional
        Fitted on all samples, in an order their values decide, and never on a label.
    weights : WalkWeights or another weighting, optional
        Has ``fit(X)`` and ``integers(X)``, see `WalkWeights`, the default.
    classes : array of shape (C,), optional
        The label set; see `DPAClassifier`.
    schema : Schema, optional
        How rows are read; see `DPAClassifier`.
    invalid_rows : {"raise", "drop"}, optional
        What to do with a training row whose values are not finite. An unknown label is an error.
    random_state : int, default=0
        Seed of features that draw.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The label set, sorted.
    n_rows_ : int
        Number of training rows, m.

    Guarantee
    ---------
    No `radius` flipped labels change a prediction, and `radius` + 1 can, unless none can. Rows of
    equal samples count alike, so that neither their order nor a flip moves a weight.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = WeightedVoteClassifier(weights=WalkWeights(10, 0.9), classes=range(10))
    >>> certificates = clf.fit(X[:1500], y[:1500]).certify(X[1500:])
    >>> bool((certificates.labels == y[1500:]).mean() > 0.9), bool(certificates.radius.max() > 10)
    (True, True)
    """

    threats: ClassVar = ("label_flip",)
    touches: ClassVar = {"label_flip": 1}
    template_names: ClassVar = ("features", "features_", "weights", "weights_")

    def __init__(
        self,
        features: Any = None,
        weights: Any = None,
        *,
        classes: Any = None,
        schema: Any = None,
        invalid_rows: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.features = features
        self.weights = weights
        self.classes = classes
        self.schema = schema
        self.invalid_rows = invalid_rows
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_random_state(self.random_state)
        self._weighting()  # refuses what is none

    def _fit_rows(self, rows: CheckedTable, digests: NDArray[np.uint8]) -> None:
        # Copies of a sample by their labels: a stored model does not keep the order of the rows.
        order = np.lexsort((rows.y, *digests.view(">u8").T[::-1]))
        new = np.append(True, (digests[order[1:]] != digests[order[:-1]]).any(axis=1))
        samples = take_canonical(rows.X, order[new])
        in_own_streams(self.random_state, 0, lambda: self._learn(samples))
        self.labels_ = rows.y[order]
        self.first_ = np.cumsum(new) - 1

    def _learn(self, samples: Any) -> None:
        mapped = self._fit_features(samples)
        self.weights_ = self._weighting()
        self.weights_.fit(mapped)

    def _weighting(self) -> Any:
        if self.weights is None:
            return WalkWeights()
        known = hasattr(self.weights, "fit") and hasattr(self.weights, "integers")
        if not known or isinstance(self.weights, type):
            raise InvalidInputError(
                "weights is WalkWeights(...) or another object with fit and integers. "
                f"Got {self.weights!r}."
            )
        return clone(self.weights)

    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        n_classes = len(self.classes_)
        found = [fewest_flips(part, self.labels_, n_classes, target) for part in self._weights(X)]
        votes, rivals, prices = (np.concatenate(part) for part in zip(*found, strict=True))
        return certify_one_member(votes, rivals, prices, n_classes, self.n_rows_, threat, target)

    def _weights(self, X: Any) -> Any:
        """Yield the integer weights of all rows for some rows of `X` after the other."""
        rows = self._mapped_samples(X)
        with one_thread():
            # A weighting that does not promise to treat rows alone sees one at a time.
            together = getattr(self.weights_, "rowwise", False)
            height = max(1, _BLOCK // self.n_rows_) if together else 1
            for start in range(0, len(rows), height):
                block = rows[start : start + height]
                yield self._of_rows(self.weights_.integers(block), len(block))

    def _of_rows(self, integers: NDArray[Any], n_rows: int) -> NDArray[np.int64]:
        """Give every row its sample's weight, halved as often as repeats make it necessary."""
        self._check_integers(integers, (n_rows, int(self.first_[-1]) + 1))
        weights = integers[:, self.first_].astype(np.int64)
        # In floating point: a sum of integers could wrap around and look small.
        total = np.abs(weights).sum(axis=1, keepdims=True, dtype=np.float64)
        excess = np.maximum(np.frexp(total)[1] - _BITS, 0)
        halved: NDArray[np.int64] = weights >> excess
        return halved

    def _check_integers(self, integers: NDArray[Any], shape: tuple[int, int]) -> None:
        """Refuse weights that would be rounded or wrapped, so that the vote would be another."""
        fits = integers.dtype.kind in "iu" and integers.shape == shape
        if fits and int(integers.min()) > -_LARGEST and int(integers.max()) < _LARGEST:
            return
        raise InvalidInputError(
            f"{type(self.weights_).__name__}.integers must return integers below 2^62 of shape "
            f"{shape}, one for every row and training sample. Got "
            f"{integers.dtype} of shape {integers.shape}. Round weights as whole_weights does."
        )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"labels": self.labels_, "first": self.first_}

    def _restore_arrays(
        self, templates: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        self.weights_ = templates["weights_"]
        self.labels_ = require_integers(arrays["labels"], self.n_rows_, len(self.classes_))
        self.first_ = require_integers(arrays["first"], self.n_rows_, self.n_rows_)

"""SS-DPA whose radius counts flipped labels within members, not changed members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.certificates import TRUSTED_SAMPLES, Certificates, Threat, make_threat
from poisonproof.certificates.label_flips import certify_label_flips, flips_to_overtake
from poisonproof.estimators.row_saving import require_shape, whole_numbers
from poisonproof.estimators.row_voting import RowVoting, first_copies
from poisonproof.features.exact import exact_rows
from poisonproof.learners.closed_form import KernelRidgeClassifier
from poisonproof.learners.label_weights import (
    check_linear,
    join_members,
    make_label_weights,
    split_members,
)
from poisonproof.learners.parameters import check_random_state
from poisonproof.learners.streams import in_own_streams
from poisonproof.partition import make_partitioner, partition_data, take_canonical
from poisonproof.threads import one_thread

__all__ = ["LinearLabelClassifier"]

_BLOCK = 1 << 24  # prices held together, in numbers: bounds the working memory


class LinearLabelClassifier(RowVoting):
    """Partition aggregation of kernel ridge members, certified label by label.

    A member that is linear in its labels, with weights no label can change, turns only when
    enough of its labels are flipped, and how many that takes can be computed. The certificate adds
    up these numbers over the cheapest members, where SS-DPA counts one for each.

    Parameters
    ----------
    estimator : KernelRidgeClassifier, optional
        What a member is, with a fixed ridge. ``alpha="loo"`` is refused: it looks at labels.
    features : transformer, optional
        Fitted on all samples, in an order their values decide, and never on a label.
    n_partitions : int, default=50
        Number of members, k.
    partitioner : {"sorted", "content", "pixel_sum"} or partitioner, default="sorted"
        Which partition a row falls into.
    classes, invalid_rows, random_state
        As in `SSDPAClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The label set, sorted.
    partition_sizes_ : ndarray of shape (k,)
        Rows per partition.

    Guarantee
    ---------
    No `radius` flipped labels change a prediction, and the radius is never below theorem 2's for
    the same votes.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> ridge = KernelRidgeClassifier("cosine")
    >>> clf = LinearLabelClassifier(ridge, n_partitions=10, classes=range(10))
    >>> certificates = clf.fit(X[:1500], y[:1500]).certify(X[1500:])
    >>> bool(np.median(certificates.radius) > 5)  # ten votes alone could certify at most 5
    True
    """

    threats: ClassVar = ("label_flip",)
    plain_parameters: ClassVar = ("n_partitions", "invalid_rows", "random_state")
    array_names: ClassVar = ("sizes", "values", "exponents", "inverse", "first", "labels")

    def __init__(
        self,
        estimator: Any = None,
        features: Any = None,
        n_partitions: int = 50,
        *,
        partitioner: Any = "sorted",
        classes: Any = None,
        invalid_rows: str = "raise",
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.features = features
        self.n_partitions = n_partitions
        self.partitioner = partitioner
        self.classes = classes
        self.invalid_rows = invalid_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Partition the rows and solve every member's system; labels are only kept.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame, shape (m, ...)
            Samples.
        y : array of shape (m,)
            Labels.
        """
        check_random_state(self.random_state)
        template = self._member()
        check_linear(template)
        rows, _ = self._training_rows(X, y)
        self.partitioner_ = make_partitioner(self.partitioner, self.n_partitions)
        data = partition_data(rows.X, rows.y, self.partitioner_)
        # Copies of a sample by their labels: a stored model does not tell the order of the rows.
        order = np.lexsort((rows.y, *data.digests.view(">u8").T[::-1]))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        samples = take_canonical(rows.X, order)
        mapped = in_own_streams(self.random_state, 0, lambda: self._fit_features(samples))
        mapped = mapped[first_copies(data.digests[order])]  # however the map rounds copies
        with one_thread():
            members = []
            for index in range(len(data)):
                # Rows of one sample differ in their labels alone; any order among them will do.
                own = np.sort(place[data.rows(index)])
                members.append((make_label_weights(template, mapped[own]), rows.y[order[own]]))
        self.members_ = members
        self.partition_sizes_ = data.sizes
        self.precision_ = template.precision
        return self

    def votes(self, X: Any) -> NDArray[np.int64]:
        """Return every member's vote as an index into ``classes_``, shape (n, k), -1: abstains."""
        return np.concatenate([votes for votes, _ in self._asked(X)])

    def _member(self) -> Any:
        return KernelRidgeClassifier() if self.estimator is None else clone(self.estimator)

    def _templates(self) -> dict[str, Any]:
        return {
            "estimator": self.estimator,
            "features": self.features,
            "features_": self.features_,
        }

    def _arrays(self) -> dict[str, NDArray[Any]]:
        labels = [y for _, y in self.members_]
        return {
            **join_members([member for member, _ in self.members_]),
            "labels": np.concatenate([np.empty(0, np.int64), *labels]),
        }

    def _restore(self, templates: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.estimator, self.features_ = templates["estimator"], templates["features_"]
        self.partitioner_ = self.partitioner
        template = self._member()
        check_linear(template)
        members = split_members(template, arrays, self.n_partitions)
        labels = whole_numbers(arrays["labels"], self.n_rows_, len(self.classes_))
        sizes = require_shape(arrays["sizes"], (self.n_partitions,), "i")
        ends = np.cumsum(sizes)[:-1]
        self.members_ = list(zip(members, np.split(labels, ends), strict=True))
        self.partition_sizes_, self.precision_ = sizes, template.precision

    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        parts = [
            certify_label_flips(votes, prices, self.n_rows_, threat, target)
            for votes, prices in self._asked(X)
        ]
        return _joined(parts)

    def _asked(self, X: Any) -> Any:
        """Yield votes (b, k) and prices (b, k, C) of some rows after the other."""
        mapped, n_classes = self._mapped_asked(X), len(self.classes_)
        with one_thread():
            asked = exact_rows(mapped, self.precision_)
            height = max(1, _BLOCK // (len(self.members_) * n_classes))
            for start in range(0, len(asked), height):
                block = asked[start : start + height]
                found = [
                    flips_to_overtake(member.integers(block), y, n_classes)
                    for member, y in self.members_
                ]
                yield (
                    np.stack([votes for votes, _ in found], axis=1),
                    np.stack([prices for _, prices in found], axis=1),
                )

    def _threat(self, name: str, assumptions: tuple[str, ...]) -> Threat:
        return make_threat(name, "row", 1, (TRUSTED_SAMPLES, *assumptions))


def _joined(parts: list[Certificates]) -> Certificates:
    """Put the certificates of consecutive rows together."""
    first = parts[0]
    targets = [part.target for part in parts if part.target is not None]
    return Certificates(
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.radius for part in parts]),
        np.concatenate([part.runner_up for part in parts]),
        np.concatenate([part.counts for part in parts]),
        first.threat,
        first.n_members,
        target=np.concatenate(targets) if targets else None,
        method=first.method,
    )

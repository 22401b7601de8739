"""Kernel ridge as a fixed weighting of labels: integers that no label can change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.certificates.label_flips import certify_label_flips, flips_to_overtake
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import TRUSTED_SAMPLES, Threat, make_threat
from poisonproof.estimators.row_voting import RowVoting, first_copies, require_shape, whole_numbers
from poisonproof.exceptions import GuaranteeError
from poisonproof.features.exact import ExactRows, exact_product, exact_rows
from poisonproof.members.closed_form.kernel_ridge import Kernel, KernelRidgeClassifier, make_kernel
from poisonproof.members.closed_form.linear import positive_solve
from poisonproof.members.scikit import check_random_state
from poisonproof.members.streams import in_own_streams
from poisonproof.partition.partitioned import partition_data
from poisonproof.partition.partitioners import make_partitioner
from poisonproof.partition.values import take_canonical
from poisonproof.threads import one_thread

_BITS = 28  # the absolute weights of a test row add up to less than 2^29


@dataclass(frozen=True)
class LabelWeights:
    """One member: how much each of its labels counts for a test row.

    Scores are ``K(x, rows) (K(rows, rows) + alpha I)^-1 Y``, linear in the one-hot labels Y. What
    stands in front of Y is scaled and rounded to integers; the member *is* the vote by them.

    Attributes
    ----------
    rows : ExactRows of length m
        The member's rows.
    inverse : ndarray of shape (m, m)
        Inverse of the ridge system.
    first : ndarray of int, shape (m,)
        For every row the first row of the same sample; equal samples have equal weights.
    kernel : Kernel
        The kernel.
    """

    rows: ExactRows
    inverse: NDArray[np.float64]
    first: NDArray[np.intp]
    kernel: Kernel

    def integers(self, asked: ExactRows) -> NDArray[np.int32]:
        """Return the integer weights of the member's rows for every asked row, shape (n, m).

        Guarantee
        ---------
        A function of samples and parameters; no label enters.
        """
        if not len(self.rows):
            return np.empty((len(asked), 0), dtype=np.int32)
        left, right = (self.kernel.terms(rows, np.float64) for rows in (asked, self.rows))
        kernels = exact_product(asked, self.rows).astype(np.float64)
        self.kernel.bounded(kernels, left, right)
        # The power of two of a test row scales all its weights alike, and is left out.
        weights = np.ldexp(kernels, right.exponents) @ self.inverse
        weights = weights[:, self.first]
        total = np.abs(weights).sum(axis=1, keepdims=True)
        power = np.frexp(total)[1]
        integers: NDArray[np.int32] = np.rint(np.ldexp(weights, _BITS - power)).astype(np.int32)
        return integers


def make_label_weights(estimator: Any, X: NDArray[Any]) -> LabelWeights:
    """Return the member that `estimator` stands for on the samples `X`, shape (m, d).

    Raises
    ------
    GuaranteeError
        If the estimator is not linear in its labels, with weights that labels cannot change.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> member = make_label_weights(KernelRidgeClassifier("linear", alpha=1.0), X)
    >>> member.integers(exact_rows(np.array([[0.0, 3.0]]))).tolist()
    [[201326592, 0]]
    """
    check_linear(estimator)
    rows = exact_rows(X, estimator.precision)
    kernel = make_kernel(**estimator._kernel_settings(X.shape[1]))
    terms = kernel.terms(rows, np.float64)
    gram = exact_product(rows, rows).astype(np.float64)
    kernel.bounded(gram, terms, terms)
    gram = np.ldexp(gram, terms.exponents[:, None] + terms.exponents)
    gram[np.diag_indices(len(gram))] += float(estimator.alpha)
    inverse = positive_solve(gram, np.eye(len(gram))) if len(gram) else gram
    return LabelWeights(rows, inverse, _first_of_equals(rows), kernel)


def join_members(members: Sequence[LabelWeights]) -> dict[str, NDArray[Any]]:
    """Return members as a few arrays, one member after the other."""
    full = [member.rows for member in members if len(member.rows)]
    width = full[0].values.shape[1] if full else 0
    values = [np.empty((0, width), full[0].values.dtype if full else np.float64)]
    return {
        "sizes": np.array([len(member.rows) for member in members], dtype=np.int64),
        "values": np.concatenate([*values, *(rows.values for rows in full)]),
        "exponents": np.concatenate([np.empty(0, np.int32), *(rows.exponents for rows in full)]),
        "inverse": np.concatenate([np.empty(0), *(member.inverse.ravel() for member in members)]),
        "first": np.concatenate(
            [np.empty(0, np.int64), *(member.first.astype(np.int64) for member in members)]
        ),
    }


def split_members(
    estimator: Any, arrays: Mapping[str, NDArray[Any]], count: int
) -> list[LabelWeights]:
    """Return what `join_members` joined, or raise `ValueError` if the arrays do not fit.

    Parameters
    ----------
    estimator : KernelRidgeClassifier
        What the members stand for.
    arrays : mapping of str to ndarray
        The arrays.
    count : int
        Number of members.
    """
    sizes, values, first = arrays["sizes"], arrays["values"], arrays["first"]
    inverse, exponents = arrays["inverse"], arrays["exponents"]
    shapes = (sizes.shape, values.ndim, len(values), len(inverse), inverse.ndim)
    total = int(sizes.sum())
    wanted = ((count,), 2, total, int((sizes * sizes).sum()), 1)
    if shapes != wanted or exponents.shape != (total,) or first.shape != (total,):
        raise ValueError("the arrays of the members do not fit together")
    kernel = make_kernel(**estimator._kernel_settings(values.shape[1]))
    members, row, entry = [], 0, 0
    for size in sizes.tolist():
        own = slice(row, row + size)
        square = inverse[entry : entry + size * size].reshape(size, size)
        places = first[own].astype(np.intp)
        if size and not (places.min() >= 0 and places.max() < size):
            raise ValueError("a member refers to rows that it does not have")
        members.append(LabelWeights(ExactRows(values[own], exponents[own]), square, places, kernel))
        row, entry = row + size, entry + size * size
    return members


def check_linear(estimator: Any) -> None:
    """Raise unless the estimator's scores are linear in the labels, with fixed weights."""
    name = type(estimator).__name__
    if not isinstance(estimator, KernelRidgeClassifier):
        raise GuaranteeError(
            f"Flips can be counted within members that are linear in their labels; {name} is not "
            "known to be. Use KernelRidgeClassifier, or SSDPAClassifier, which counts members."
        )
    if isinstance(estimator.alpha, str):
        raise GuaranteeError(
            f"alpha={estimator.alpha!r} chooses the ridge by the labels, so a flipped label could "
            "change every weight. Use a number."
        )


def _first_of_equals(rows: ExactRows) -> NDArray[np.intp]:
    """Return for every row the position of the first equal row."""
    table = np.column_stack([rows.values, rows.exponents])
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.ravel()], dtype=np.intp)


# SS-DPA whose radius counts flipped labels within members, not changed members.

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

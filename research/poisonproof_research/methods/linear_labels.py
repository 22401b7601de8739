"""Kernel ridge members as fixed weights of labels, certified flip by flip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import TRUSTED_SAMPLES, Threat, make_threat, parse_threat
from poisonproof.estimators.certifying import CertifyingClassifier
from poisonproof.estimators.dpa import SSDPAClassifier
from poisonproof.exceptions import GuaranteeError
from poisonproof.features.exact import ExactRows, exact_product, exact_rows
from poisonproof.members.closed_form.kernel_ridge import Kernel, KernelRidgeClassifier
from poisonproof.members.closed_form.scaled_kernel import positive_solve
from poisonproof.members.member import MemberList
from poisonproof.threads import one_thread
from poisonproof_research.methods.label_flip_elections import (
    certify_label_flips,
    flips_to_overtake,
)

_BITS = 28  # the absolute weights of a test row add up to less than 2^29
_BLOCK = 1 << 24  # prices held together, in numbers: bounds the working memory


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

    def integers(self, samples: ExactRows) -> NDArray[np.int32]:
        """Return the integer weights of the member's rows for every sample, shape (n, m).

        Guarantee
        ---------
        A function of samples and parameters; no label enters.
        """
        if not len(self.rows):
            return np.empty((len(samples), 0), dtype=np.int32)
        left, right = (self.kernel.terms(rows, np.float64) for rows in (samples, self.rows))
        kernels = exact_product(samples, self.rows).astype(np.float64)
        self.kernel.apply(kernels, left, right)
        weights = (kernels @ self.inverse)[:, self.first]
        total = np.abs(weights).sum(axis=1, keepdims=True)
        power = np.frexp(total)[1]
        integers: NDArray[np.int32] = np.rint(np.ldexp(weights, _BITS - power)).astype(np.int32)
        return integers


def make_label_weights(estimator: Any, X: NDArray[Any]) -> LabelWeights:
    """Return the member that `estimator` stands for on the samples `X`, shape (m, d).

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> member = make_label_weights(KernelRidgeClassifier("cosine", alpha=1.0), X)
    >>> member.integers(exact_rows(np.array([[0.0, 3.0]]))).tolist()
    [[268435456, 0]]
    """
    check_linear(estimator)
    rows = exact_rows(X, estimator.precision)
    kernel = Kernel(estimator.kernel, float(estimator.gamma))
    terms = kernel.terms(rows, np.float64)
    gram = exact_product(rows, rows).astype(np.float64)
    kernel.apply(gram, terms, terms)
    gram[np.diag_indices(len(gram))] += float(estimator.alpha)
    inverse = positive_solve(gram, np.eye(len(gram))) if len(gram) else gram
    return LabelWeights(rows, inverse, _first_of_equals(rows), kernel)


def check_linear(estimator: Any) -> None:
    """Raise unless the estimator's scores are linear in the labels, with fixed weights."""
    name = type(estimator).__name__
    if not isinstance(estimator, KernelRidgeClassifier):
        raise GuaranteeError(
            f"Flips can be counted within members that are linear in their labels; {name} is not "
            "known to be. Use KernelRidgeClassifier, or SSDPAClassifier, which counts members."
        )


def _first_of_equals(rows: ExactRows) -> NDArray[np.intp]:
    """Return for every row the position of the first equal row."""
    table = np.column_stack([rows.values, rows.exponents])
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.ravel()], dtype=np.intp)


class LinearLabelClassifier(CertifyingClassifier):
    """Partition aggregation of kernel ridge members, certified label by label.

    A member that is linear in its labels, with weights no label can change, turns only when
    enough of its labels are flipped, and how many that takes can be computed. The certificate adds
    up these numbers over the cheapest members, where SS-DPA counts one for each.

    Parameters
    ----------
    estimator : KernelRidgeClassifier, optional
        What a member is.
    features, n_partitions, partitioner, classes, invalid_rows, random_state
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
        """Partition the rows and solve every member's system; labels are only kept."""
        template = KernelRidgeClassifier() if self.estimator is None else clone(self.estimator)
        check_linear(template)
        # It checks, partitions and maps rows; its own members are never trained.
        rows = SSDPAClassifier(**{**self.get_params(deep=False), "estimator": template})
        data = rows._prepare(X, y, None, None)
        mapped = _numbers(rows._member_data(data, range(len(data))).X)
        # However the map rounds copies of a sample, all have the features of the first.
        _, first, inverse = np.unique(data.digests, axis=0, return_index=True, return_inverse=True)
        shared = replace(data, X=mapped[first[inverse.ravel()]])
        with one_thread():
            self._members = [
                (make_label_weights(template, _numbers(part.X)), np.asarray(part.y))
                for part in (shared[index] for index in range(len(data)))
            ]
        rows.ensemble_ = MemberList([])  # marks it as fitted
        self._rows, self._n_rows, self.classes_ = rows, data.n_rows, rows.classes_
        self.partitioner_, self.partition_sizes_ = rows.partitioner_, data.sizes
        return self

    def votes(self, X: Any) -> NDArray[np.int64]:
        """Return every member's vote as an index into ``classes_``, shape (n, k), -1: abstains."""
        return np.concatenate([votes for votes, _ in self._votes_and_prices(X)])

    def _counted(self, X: Any) -> Certificates:
        return self._certified(X, self._resolve_threat(None, False), None)

    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        parts = [
            certify_label_flips(votes, prices, self._n_rows, threat, target)
            for votes, prices in self._votes_and_prices(X)
        ]
        return _joined(parts)

    def _usual_threat(self) -> str:
        return "label_flip"

    def _threat(self, asked: str | Threat, assumptions: tuple[str, ...]) -> Threat:
        if (code := parse_threat(asked).code) != "label_flip":
            raise GuaranteeError(
                f"LinearLabelClassifier certifies against 'label_flip' alone. Got {code!r}."
            )
        return make_threat("label_flip", "row", 1, (TRUSTED_SAMPLES, *assumptions))

    def _votes_and_prices(self, X: Any) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Yield votes (b, k) and prices (b, k, C), some rows at a time."""
        check_is_fitted(self, "classes_")
        samples, n_classes = _numbers(self._rows._member_samples(X)), len(self.classes_)
        with one_thread():
            exact = exact_rows(samples, self._rows.estimator.precision)
            height = max(1, _BLOCK // (len(self._members) * n_classes))
            for start in range(0, len(exact), height):
                block = exact[start : start + height]
                found = [
                    flips_to_overtake(member.integers(block), y, n_classes)
                    for member, y in self._members
                ]
                yield (
                    np.stack([votes for votes, _ in found], axis=1),
                    np.stack([prices for _, prices in found], axis=1),
                )


def _numbers(X: Any) -> NDArray[Any]:
    """Return samples as an array of shape (n, d)."""
    array = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    return array.reshape(len(array), -1)


def _joined(parts: list[Certificates]) -> Certificates:
    """Put the certificates of consecutive rows together."""
    first = parts[0]
    names = ("labels", "radius", "runner_up", "counts", "target")
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in names
        if getattr(first, name) is not None
    }
    return replace(first, **joined)

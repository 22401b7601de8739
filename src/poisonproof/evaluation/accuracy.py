"""How much accuracy is certified: where certificates meet the labels of a test set.

Accuracy measured on rows of an untrusted source is itself untrusted; the certificates are not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates import Certificates
from poisonproof.certificates.classes import class_indices
from poisonproof.exceptions import GuaranteeError, InvalidInputError

__all__ = [
    "base_accuracy",
    "certified_accuracy",
    "check_sizes",
    "clean_accuracy",
    "median_radius",
    "protected_share",
    "published_median",
    "radius_if_correct",
]


def certified_accuracy(
    certificates: Certificates, y_true: ArrayLike, sizes: ArrayLike
) -> NDArray[np.float64]:
    """Return the share of rows that are correct and certified, at each attack size.

    Parameters
    ----------
    certificates : Certificates
        Untargeted certificates of n test rows.
    y_true : array-like of shape (n,)
        True labels, in the form of ``certificates.labels``.
    sizes : int or array-like of int
        Attack sizes in units of ``certificates.threat``.

    Returns
    -------
    ndarray of the shape of `sizes`
        Shares from 0 to 1.

    Guarantee
    ---------
    No attack of a given size pushes the accuracy on these rows below its value here.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 0, 0, 0], [1, 1, 1, 0, 0]], n_classes=2)
    >>> certified_accuracy(certificates, [0, 1], sizes=[0, 1, 2, 3])
    array([1. , 0.5, 0.5, 0. ])
    """
    attacks = check_sizes(sizes)
    radius = np.sort(radius_if_correct(certificates, y_true))
    return (len(radius) - np.searchsorted(radius, attacks, side="left")) / len(radius)


def clean_accuracy(certificates: Certificates, y_true: ArrayLike) -> float:
    """Return the accuracy without an attack."""
    return float(certified_accuracy(certificates, y_true, 0))


def median_radius(certificates: Certificates, y_true: ArrayLike) -> int | None:
    """Return the largest attack size with a certified accuracy of at least one half.

    None if fewer than half of the rows are correct at all. Compared in whole rows, never in
    rounded shares.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 0, 0, 0], [1, 1, 1, 0, 0]], n_classes=2)
    >>> median_radius(certificates, [0, 1]), median_radius(certificates, [0, 0])
    (2, 2)
    >>> median_radius(certificates, [1, 0]) is None
    True
    """
    radius = np.sort(radius_if_correct(certificates, y_true))
    # Half of n rows, rounded up, withstand exactly the sizes up to the radius of the last of them.
    middle = int(radius[len(radius) - (len(radius) + 1) // 2])
    return None if middle < 0 else middle


def published_median(certificates: Certificates, y_true: ArrayLike) -> int:
    """Return the median as the published tables print it: `median_radius` plus one.

    The published numbers count how many attack sizes 0, 1, 2, ... keep a certified accuracy of at
    least one half. Size 0 is one of them, so the count is one more than the largest such size, and
    0 where there is none. For comparison with those tables only.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 0, 0, 0]], n_classes=2)
    >>> median_radius(certificates, [0]), published_median(certificates, [0])
    (2, 3)
    """
    median = median_radius(certificates, y_true)
    return 0 if median is None else median + 1


def base_accuracy(certificates: Certificates, y_true: ArrayLike) -> float:
    """Return the mean accuracy of the single members; an abstention counts as wrong.

    A member is right on a row when it is one of those that voted for the true label, so the vote
    counts are enough.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> base_accuracy(certify_votes([[0, 0, 1, -1], [1, 1, 1, 0]], n_classes=2), [0, 1])
    0.625
    """
    truth = _true_indices(certificates, y_true)
    right = int(certificates.counts[np.arange(len(truth)), truth].sum(dtype=np.int64))
    return right / (len(truth) * certificates.n_members)


def protected_share(certificates: Certificates, sizes: ArrayLike) -> NDArray[np.float64]:
    """Return the share of predictions, right or wrong, that each attack size cannot change.

    Needs no test labels. For targeted certificates it is the share of predictions that an attack
    of that size cannot turn into the target.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> protected_share(certify_votes([[0, 0, 0, 0], [1, 1, 1, 1]], n_classes=2), [1, 2])
    array([1. , 0.5])
    """
    attacks = check_sizes(sizes)
    _check_rows(certificates)
    radius = np.sort(certificates.radius)
    return (len(radius) - np.searchsorted(radius, attacks, side="left")) / len(radius)


def radius_if_correct(certificates: Certificates, y_true: ArrayLike) -> NDArray[np.int64]:
    """Return the radius of every row whose label is correct, and -1 elsewhere.

    Raises
    ------
    GuaranteeError
        For targeted certificates: they leave open which other label a prediction may take.
    """
    if certificates.target is not None:
        raise GuaranteeError(
            "Targeted certificates do not prove that a correct label stays: the attack may end in "
            "a label other than the target. Certify without target, or use protected_share."
        )
    truth = _true_indices(certificates, y_true)
    labels = class_indices(
        certificates.labels, certificates.classes, certificates.n_classes, name="labels"
    )
    return np.where(labels == truth, certificates.radius, -1)


def check_sizes(sizes: ArrayLike) -> NDArray[np.int64]:
    """Return attack sizes as integers, or raise if one is negative or no whole number."""
    array = np.asarray(sizes)
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise InvalidInputError(
            f"Attack sizes are whole numbers. Got {sizes!r} of dtype {array.dtype}."
        )
    if int(array.min()) < 0:
        raise InvalidInputError(f"Attack sizes start at 0. Got {int(array.min())}.")
    return array.astype(np.int64)


def _true_indices(certificates: Certificates, y_true: ArrayLike) -> NDArray[np.int64]:
    _check_rows(certificates)
    truth = class_indices(y_true, certificates.classes, certificates.n_classes)
    if len(truth) != len(certificates):
        raise InvalidInputError(
            f"y_true must have one label per certificate ({len(certificates)}). Got {len(truth)}."
        )
    return truth


def _check_rows(certificates: Certificates) -> None:
    if not len(certificates):
        raise InvalidInputError("There are no rows to evaluate: the certificates are empty.")

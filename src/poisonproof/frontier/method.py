"""One method on one dataset under one threat: what it certifies, and where that comes from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates import Certificates
from poisonproof.evaluation import certified_accuracy, clean_accuracy, median_radius
from poisonproof.exceptions import InvalidInputError

__all__ = ["FAMILIES", "Method"]

FAMILIES = {
    "dpa": "partition aggregation",
    "ss-dpa": "partition aggregation, features without labels",
    "finite_aggregation": "finite aggregation",
    "runoff": "run-off election",
    "neighbors": "neighbour votes",
    "clusters_local": "cluster votes, each by itself",
    "clusters_assigned": "cluster votes, assigned together",
    "label_flips": "flips counted within members",
}
"""Kinds of votes by their short names."""


@dataclass(frozen=True)
class Method:
    """A curve of the frontier.

    Attributes
    ----------
    id : str
        Short name, and the name of its folder.
    dataset, dataset_title : str
        The data: a name to sort by, and what people call it.
    family : str
        A key of `FAMILIES`.
    title : str
        What stands in tables and legends.
    settings, chosen_on, command : str
        How the method was set, what the settings were chosen on, and what made the result.
    certificates : Certificates
        Untargeted certificates of all test rows; labels are class indices.
    y_true : ndarray of int, shape (n,)
        The true class indices.
    facts : dict
        What else the result file says: seconds, software, sizes of the training classes, and a
        ``note`` that must stand over the results.
    """

    id: str
    dataset: str
    dataset_title: str
    family: str
    title: str
    settings: str
    chosen_on: str
    command: str
    certificates: Certificates
    y_true: NDArray[Any]
    facts: dict[str, Any]

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise InvalidInputError(
                f"{self.id}: the family is one of {', '.join(FAMILIES)}. Got {self.family!r}."
            )

    @property
    def threat(self) -> str:
        """The code of the threat."""
        return self.certificates.threat.code

    @cached_property
    def clean(self) -> float:
        """Accuracy without an attack."""
        return clean_accuracy(self.certificates, self.y_true)

    @cached_property
    def median(self) -> int | None:
        """The largest attack size with a certified accuracy of at least one half."""
        return median_radius(self.certificates, self.y_true)

    def certified(self, sizes: Any) -> NDArray[np.float64]:
        """Return the certified accuracy at each attack size."""
        return certified_accuracy(self.certificates, self.y_true, sizes)

    @cached_property
    def reach(self) -> int:
        """The largest attack size that any correct test row withstands."""
        labels = np.asarray(self.certificates.labels)
        right = self.certificates.radius[labels == self.y_true]
        return int(right.max()) if len(right) else 0

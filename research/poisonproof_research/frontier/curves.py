"""Curves of all methods in one file, and evidence for those that no other surpasses.

``curves.json`` holds for every method what it is, how it was made, and how many test rows it
classifies correctly and certifies at some attack sizes: exact integers. ``frontier/ID.npz`` holds
what the certificates of a method can be computed from again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import parse_threat
from poisonproof.evaluation.comparison import Method
from poisonproof.exceptions import InvalidInputError
from poisonproof.strict import parse_json, read_npz
from poisonproof_research.frontier.evidence import certify_evidence
from poisonproof_research.reproduction.whole_files import write_bytes

CURVES = "curves.json"
FOLDER = "frontier"
_FORMAT = "poisonproof curves"
_TEXTS = (
    "id",
    "dataset",
    "dataset_title",
    "family",
    "title",
    "settings",
    "chosen_on",
    "command",
    "threat",
)


@dataclass(frozen=True)
class Curve:
    """Certified accuracy of one method on one dataset against attack size.

    Attributes
    ----------
    id, dataset, dataset_title, family, title, settings, chosen_on, command : str
        As in `Method`.
    threat : str
        Code of the threat.
    n_test : int
        Test rows.
    median : int or None
        The largest attack size with a certified accuracy of at least one half.
    reach : int
        The largest attack size that any correct test row withstands.
    sizes, right : sequence of int
        Attack sizes, ascending from 0, and the rows that are correct and certified at each.
    facts : mapping
        What else the run wrote down: training rows, seconds, software, a note.
    """

    id: str
    dataset: str
    dataset_title: str
    family: str
    title: str
    settings: str
    chosen_on: str
    command: str
    threat: str
    n_test: int
    median: int | None
    reach: int
    sizes: Sequence[int]
    right: Sequence[int]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def clean(self) -> float:
        """Accuracy without an attack."""
        return self.right[0] / self.n_test

    @property
    def unit(self) -> str:
        """Unit of attack sizes, in the plural."""
        return parse_threat(self.threat).plural

    def certified(self, sizes: Any) -> NDArray[np.float64]:
        """Return the certified accuracy at attack sizes; between two that are kept, the later's.

        Examples
        --------
        >>> texts = dict.fromkeys(_TEXTS, "x")
        >>> curve = Curve(**texts, n_test=10, median=1, reach=5, sizes=[0, 1, 5], right=[9, 6, 1])
        >>> curve.certified([0, 1, 2, 5, 6])
        array([0.9, 0.6, 0.1, 0.1, 0. ])
        """
        right = np.append(np.asarray(self.right, dtype=np.int64), 0)
        shares: NDArray[np.float64] = right[np.searchsorted(self.sizes, sizes)] / self.n_test
        return shares


GRID = (*range(50), *range(50, 200, 5), *range(200, 1000, 25), *range(1000, 10_001, 100))
"""Attack sizes at which every curve is kept, as far as it reaches."""


def attack_grid(reach: int, median: int | None) -> list[int]:
    """Return the attack sizes at which a curve is kept: the grid, its median and its end."""
    sizes = {*GRID, reach}
    if median is not None:
        sizes |= {median, median + 1}
    return sorted(size for size in sizes if size <= reach)


def make_curve(method: Method) -> Curve:
    """Return the curve of a method."""
    sizes = attack_grid(method.reach, method.median)
    right = np.rint(method.certified(sizes) * len(method.y_true)).astype(int).tolist()
    texts = {name: str(getattr(method, name)) for name in _TEXTS}
    facts = {name: value for name, value in method.facts.items() if name != "train_class_sizes"}
    return Curve(
        **texts,
        n_test=len(method.y_true),
        median=method.median,
        reach=method.reach,
        sizes=sizes,
        right=right,
        facts=facts,
    )


def write_curves(curves: Iterable[Curve], path: Path) -> None:
    """Write curves, one line each, ordered by dataset, threat and name."""
    ordered = sorted(curves, key=lambda curve: (curve.dataset, curve.threat, curve.id))
    lines = [json.dumps(vars(curve), separators=(",", ":")) for curve in ordered]
    head = json.dumps({"format": _FORMAT, "version": 1})[:-1]
    body = ",\n".join(lines)
    write_bytes(path, f'{head}, "curves": [\n{body}\n]}}\n'.encode())


def read_curves(path: Path) -> list[Curve]:
    """Read the curves of a file."""
    try:
        found = parse_json(path.read_bytes())
        if found["format"] != _FORMAT or found["version"] != 1:
            raise InvalidInputError(f"{path} is no file of curves of version 1.")
        return [Curve(**entry) for entry in found["curves"]]
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path} does not hold curves: {error}.") from error


def write_method(method: Method, evidence: Mapping[str, NDArray[Any]], folder: Path) -> Path:
    """Add a method to the curves in a folder, and write its evidence; return the evidence's file.

    The certificates are computed from the evidence once more, and must be those of the method.
    """
    again = certify_evidence(evidence, method.certificates.threat)
    if not np.array_equal(again.radius, method.certificates.radius):
        raise InvalidInputError(f"{method.id}: the evidence does not give the method's radii.")
    known = read_curves(folder / CURVES) if (folder / CURVES).is_file() else []
    curve = make_curve(method)
    home = folder / FOLDER / f"{method.id}.npz"
    home.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    labels = {"y_true": np.asarray(method.y_true, dtype=np.int16)}
    np.savez_compressed(buffer, allow_pickle=False, **labels, **evidence)
    write_bytes(home, buffer.getvalue())
    write_curves([*(other for other in known if other.id != curve.id), curve], folder / CURVES)
    return home


def read_evidence(curve: Curve, folder: Path) -> tuple[Certificates, NDArray[np.int64]]:
    """Return the certificates of a method and the true labels, from its evidence."""
    path = folder / FOLDER / f"{curve.id}.npz"
    try:
        with path.open("rb") as file:
            arrays = read_npz(file)
        y_true = arrays.pop("y_true").astype(np.int64)
        return certify_evidence(arrays, curve.threat), y_true
    except Exception as error:  # damaged bytes make decoders raise nearly anything
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path} does not hold evidence: {error}.") from error

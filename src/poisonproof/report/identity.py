"""Which model a report speaks of, so that somebody else can tell whether theirs is the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from poisonproof.certificates import Certificates
from poisonproof.certificates.classes import class_indices
from poisonproof.estimators.saving import model_fingerprint
from poisonproof.store import fingerprint

__all__ = ["Identity", "certificates_digest", "identify"]


@dataclass(frozen=True)
class Identity:
    """The facts that decide a model's bits.

    Attributes
    ----------
    fingerprint : str
        The model's fingerprint, as in its manifest.
    facts : tuple of (str, str)
        What was trained and on how many rows, in words.
    environment : tuple of (str, str)
        Software and processor that computed the certificates.
    """

    fingerprint: str
    facts: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]


def identify(classifier: Any) -> Identity:
    """Describe a fitted classifier."""
    sizes = classifier.partition_sizes_
    known = getattr(classifier, "provenance_", None) or {}
    features = "none" if classifier.features is None else _one_line(classifier.features)
    schema = (known.get("schema") or {}).get("frozen")
    facts = {
        "Method": type(classifier).__name__,
        "Member": _one_line(classifier.estimator),
        "Features": f"by the schema {schema}" if schema else features,
        "Members": f"{len(sizes):,}",
        "Partitioner": _one_line(classifier.partitioner_),
        "Label set": "declared" if classifier.classes is not None else "taken from the labels",
        "Random seed": str(classifier.random_state),
        "Training rows": f"{int(sizes.sum()):,}",
        **({"Contributors": f"{known['n_groups']:,}"} if known.get("n_groups") else {}),
        "Rows left out": f"{classifier.n_dropped_ + known.get('n_left_out', 0):,}",
        "Members that failed": f"{len(classifier.failures_):,}",
        "Members trained twice (self-check)": f"{getattr(classifier, 'n_self_checked_', 0):,}",
    }
    return Identity(model_fingerprint(classifier), tuple(facts.items()), _environment())


def certificates_digest(certificates: Certificates) -> str:
    """Return the SHA-256 of what certificates say, whatever file they were stored in.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> votes = [[0, 0, 1], [1, 1, 1]]
    >>> one, other = certify_votes(votes, 2), certify_votes(votes, 2, threat="replace")
    >>> certificates_digest(one) == certificates_digest(one.with_classes(["ham", "spam"])[:])
    False
    >>> certificates_digest(one) == certificates_digest(other)
    False
    """
    classes = certificates.classes
    head = {
        "threat": certificates.threat.to_dict(),
        "members": certificates.n_members,
        "method": certificates.method,
        "classes": None if classes is None else [str(label) for label in classes],
    }
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    labels = class_indices(certificates.labels, classes, certificates.n_classes, name="labels")
    for array in (labels, certificates.radius, certificates.counts):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()


def _environment() -> tuple[tuple[str, str], ...]:
    found = fingerprint()
    packages = [f"{name} {version}" for name, version in found["packages"].items() if version]
    return (
        ("Python", str(found["python"])),
        ("Packages", ", ".join(packages)),
        ("Linear algebra", "; ".join(found["blas"]) or "none found"),
        ("System", f"{found['system']}, {found['machine']}"),
        ("Processor instructions", " ".join(found["instructions"])),
    )


def _one_line(thing: object) -> str:
    return " ".join(repr(thing).split())

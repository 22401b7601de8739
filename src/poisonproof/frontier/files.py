"""Results of methods as files: ``result.json`` and ``evidence.npz``, one folder per method."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.frontier.evidence import certify_evidence
from poisonproof.frontier.method import Method
from poisonproof.reproduction.whole_files import write_bytes
from poisonproof.strict import parse_json, read_npz

__all__ = ["read_method", "write_method"]

_RESULT, _EVIDENCE = "result.json", "evidence.npz"
_FORMAT = "poisonproof frontier result"
_TEXTS = ("id", "dataset", "dataset_title", "family", "title", "settings", "chosen_on", "command")


def write_method(method: Method, evidence: Mapping[str, NDArray[Any]], folder: Path) -> Path:
    """Write a method and its evidence into ``folder/id``; return that folder.

    The certificates are computed from the evidence once more, and must be those of the method.
    """
    again = certify_evidence(evidence, method.certificates.threat)
    if not np.array_equal(again.radius, method.certificates.radius):
        raise InvalidInputError(f"{method.id}: the evidence does not give the method's radii.")
    home = folder / method.id
    home.mkdir(parents=True, exist_ok=True)
    median = method.median
    around = [] if median is None else method.certified([median, median + 1]).round(4).tolist()
    description = {
        "format": _FORMAT,
        "version": 1,
        **{name: getattr(method, name) for name in _TEXTS},
        "threat": method.threat,
        "outcome": {
            "n_test": len(method.y_true),
            "clean_percent": round(100 * method.clean, 4),
            "median_radius": median,
            "certified_share_at_median_and_after": around,
            "largest_radius": method.reach,
        },
        "facts": method.facts,
    }
    buffer = io.BytesIO()
    labels = {"y_true": np.asarray(method.y_true, dtype=np.int16)}
    np.savez_compressed(buffer, allow_pickle=False, **labels, **evidence)
    write_bytes(home / _EVIDENCE, buffer.getvalue())
    write_bytes(home / _RESULT, json.dumps(description, indent=1).encode() + b"\n")
    return home


def read_method(home: Path) -> Method:
    """Read a method; its certificates are computed from the evidence."""
    try:
        description = parse_json((home / _RESULT).read_bytes())
        if description["format"] != _FORMAT or description["version"] != 1:
            raise InvalidInputError(f"{home / _RESULT} is no {_FORMAT} of version 1.")
        texts = {name: str(description[name]) for name in _TEXTS}
        threat, facts = str(description["threat"]), dict(description["facts"])
        with (home / _EVIDENCE).open("rb") as file:
            arrays = read_npz(file)
        y_true = arrays.pop("y_true").astype(np.int64)
        certificates = certify_evidence(arrays, threat)
    except Exception as error:  # damaged bytes make decoders raise nearly anything
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{home} does not hold a whole result: {error}.") from error
    return Method(**texts, certificates=certificates, y_true=y_true, facts=facts)

"""The bits that no change to the code may move: integers, members and votes.

``python -m tests.guarantees.frozen_bits --write`` writes `golden.json`: partitions, canonical
bytes, and labels and radii of every certificate on fixed votes. They are integers, equal on every
machine, and ``test_frozen_bits.py`` compares them.

``python -m tests.guarantees.frozen_bits --against COMMIT`` trains every learner and engine of the
registry, and every classifier whose voters are rows, twice: as the code was at a commit, and as
it is now. Members depend on the processor, so both run here. It says which digests and votes
differ, or that nothing moved.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).with_name("golden.json")
ROOT = Path(__file__).parents[2]
THREATS = ("insert_delete", "label_flip", "insert_delete/group", "replace")


def integers() -> dict[str, Any]:
    """Return everything of the product that is the same on every machine, by name."""
    return dict([*_partitions(), *_certificates(_all_of)])


def integers_of_research() -> dict[str, Any]:
    """Return the same of the certificates that only comparisons use."""
    return dict([*_collective(), *_certificates(_all_of_research)])


def _containers() -> dict[str, Any]:
    """Return rows of every kind that has a canonical form."""
    import pandas as pd
    import scipy.sparse as sp
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(0)
    digits = load_digits().data[:60]
    reals = rng.normal(size=(60, 5)) * 10.0 ** rng.integers(-300, 300, (60, 5))
    mixed = pd.DataFrame(
        {
            "number": [0.1 * i for i in range(20)],
            "integer": [2**60 + i for i in range(20)],
            "text": [f"word {i % 7} \u00e9" for i in range(20)],
            "time": pd.date_range("2020-02-28", periods=20, freq="7h", unit="ns"),
            "flag": [i % 3 == 0 for i in range(20)],
            "missing": [None if i % 4 else "there" for i in range(20)],
        }
    )
    ragged = [np.arange(i % 4 + 1, dtype=np.uint8).reshape(1, -1) for i in range(20)]
    odd = [[Fraction(1, i + 1), datetime(2024, 2, 29, i), b"x" * i, -0.0] for i in range(12)]
    return {
        "digits": digits,
        "images": digits.astype(np.uint8).reshape(-1, 8, 8),
        "reals": reals,
        "single": reals.astype(np.float32, casting="same_kind", copy=True).clip(-1e30, 1e30),
        "sparse": sp.csr_array(digits),
        "frame": mixed,
        "texts": [f"a text, number {i}" for i in range(20)],
        "ragged images": ragged,
        "cells": odd,
    }


def _partitions() -> Iterator[tuple[str, Any]]:
    from poisonproof.partition import (
        ContentHash,
        GroupHash,
        PixelSum,
        SortedIndex,
        canonical_bytes,
        canonical_order,
        sample_digests,
    )

    with np.errstate(over="ignore"):
        containers = _containers()
    for name, X in containers.items():
        try:
            whole = b"".join(hashlib.sha256(row).digest() for row in canonical_bytes(X))
        except ValueError as error:  # what has no canonical form is refused, then as now
            yield f"canonical bytes/{name}", type(error).__name__
            continue
        yield f"canonical bytes/{name}", hashlib.sha256(whole).hexdigest()
        yield f"content/{name}", ContentHash(n_partitions=7).assign(X).tolist()
        yield f"sorted/{name}", SortedIndex(n_partitions=7).assign(X).tolist()
    digits = containers["digits"]
    yield "pixel sum", PixelSum(n_partitions=7).assign(digits).tolist()
    groups = [f"person {i % 11}" for i in range(60)]
    yield "group", GroupHash(n_partitions=7).assign(digits, groups=groups).tolist()
    labels, parts = np.arange(60) % 3, ContentHash(n_partitions=7).assign(digits)
    order, bounds = canonical_order(parts, sample_digests(digits), labels, None, 7)
    yield "order", [order.tolist(), bounds.tolist()]


def _election() -> tuple[Any, Any]:
    """Return votes and scores of 60 members for 5 classes on 40 rows."""
    rng = np.random.default_rng(1)
    lean = rng.integers(0, 5, 40)
    votes = np.where(rng.random((40, 60)) < 0.45, lean[:, None], rng.integers(-1, 5, (40, 60)))
    scores = rng.integers(0, 9, (40, 60, 5)).astype(float)
    scores[np.arange(40), :, lean] += 1.5
    return votes, scores


def _collective() -> Iterator[tuple[str, Any]]:
    from poisonproof_research.methods.collective import collective_certificate

    together = collective_certificate(_election()[0], 5, [1, 3, 6, 9])
    yield "collective", [together.changed.tolist(), together.attained.tolist()]


def _certificates(certify: Any) -> Iterator[tuple[str, Any]]:
    votes, scores = _election()
    for threat in THREATS:
        for target in (None, 2):
            for name, run in certify(votes, scores, threat, target).items():
                try:
                    result = run()
                except ValueError as error:
                    yield f"{threat}: refused", type(error).__name__
                    continue
                key = f"{name}/{threat}/{'any' if target is None else target}"
                yield f"{key}/labels", np.asarray(result.labels).tolist()
                yield f"{key}/radius", np.asarray(result.radius).tolist()


def _all_of(votes: Any, scores: Any, threat: str, target: int | None) -> dict[str, Any]:
    from poisonproof import certificates as made

    found = {
        "plurality": lambda: made.certify_votes(votes, 5, threat, target),
        "runoff": lambda: made.certify_scores(scores, "runoff", threat, target),
        "plurality of scores": lambda: made.certify_scores(scores, "plurality", threat, target),
    }
    if threat in {"insert_delete", "label_flip"}:
        counts = made.count_votes(votes, 5)
        found["rows"] = lambda: made.certify_row_votes(counts, 60, threat, target)
    return found


def _all_of_research(votes: Any, scores: Any, threat: str, target: int | None) -> dict[str, Any]:
    from poisonproof_research.methods import shared_buckets as made

    spread = made.make_spread(20, 3, seed=0)
    return {
        "finite aggregation": lambda: made.certify_finite_aggregation(
            votes, 5, spread, threat, target
        ),
    }


def members() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the digests of everything that this machine trains, by name."""
    from tests.guarantees.data import data
    from tests.guarantees.registry import CASES

    for case in CASES:
        rows = case.data
        fitted = case.make().fit(rows.X, rows.y)
        votes = fitted.votes(rows.X_test)
        yield (
            case.name,
            {
                "members": _sha(fitted.ensemble_.digests()),
                "votes": _sha(np.ascontiguousarray(votes, dtype=np.int64)),
            },
        )
    rows = data("digits")
    for name, classifier in _row_voters().items():
        fitted = classifier.set_params(classes=rows.classes).fit(rows.X, rows.y)
        certified = fitted.certify(rows.X_test)
        parts = (np.asarray(certified.labels), np.asarray(certified.radius, dtype=np.int64))
        yield name, {"labels": _sha(parts[0]), "radii": _sha(parts[1])}


def _row_voters() -> dict[str, Any]:
    import poisonproof

    makers: dict[str, Any] = {
        "NeighborVoteClassifier": {"threshold": 0.9},
        "ClusterVoteClassifier": {"n_clusters": 20},
        "WeightedVoteClassifier": {},
    }
    found = {}
    for name, parameters in makers.items():
        kind = getattr(poisonproof, name, None)
        if kind is not None:
            found[name] = kind(**parameters)
    return found


def _sha(value: Any) -> str:
    data = value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value).encode()
    return hashlib.sha256(data).hexdigest()


def _trained(tree: Path) -> dict[str, dict[str, str]]:
    """Return what the code of a checkout trains, by running this file there."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "members.json"
        paths = [tree / "src", tree / "research", tree]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        code = [sys.executable, str(Path(__file__).resolve()), "--members", str(out)]
        subprocess.run(code, cwd=tree, env=environment, check=True)
        found: dict[str, dict[str, str]] = json.loads(out.read_text())
        return found


def compare(commit: str) -> int:
    """Train at a commit and now, print what moved, return the number of differences."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(tree), commit], check=True)
        try:
            before, now = _trained(tree), _trained(ROOT)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    moved = [
        f"{name}: {what}"
        for name in before.keys() & now.keys()
        for what in before[name]
        if before[name][what] != now[name].get(what)
    ]
    for title, names in (
        ("moved", moved),
        ("no longer there", before.keys() - now.keys()),
        ("new", now.keys() - before.keys()),
    ):
        for name in sorted(names):
            sys.stdout.write(f"{title}: {name}\n")
    same = len(before.keys() & now.keys())
    end = f"{len(moved)} differ" if moved else "nothing moved"
    sys.stdout.write(f"{same} kinds of member and voter trained by both: {end}\n")
    return len(moved)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write golden.json")
    parser.add_argument("--against", metavar="COMMIT", help="compare members and votes")
    parser.add_argument("--members", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        GOLDEN.write_text(json.dumps(integers(), separators=(",", ":")).replace('],"', '],\n"'))
    if options.members is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options.members.write_text(json.dumps(dict(members())))
    return min(1, compare(options.against)) if options.against else 0


if __name__ == "__main__":
    sys.exit(main())

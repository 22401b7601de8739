"""The bits that no change to the code may move: integers, members and votes.

``python -m tests.guarantees.frozen_bits --write`` writes `golden.json`: partitions, canonical
bytes, and labels and radii of every certificate on fixed votes. They are integers, equal on every
machine, and ``test_frozen_bits.py`` compares them.

``python -m tests.guarantees.frozen_bits --against COMMIT`` trains every learner and engine of the
registry, and every classifier whose voters are rows, twice: as the code was at a commit, and as
it is now. Members depend on the CPU, so both run here. What the commit trains is kept in a file
(``--before FILE``, by default one named by the commit in the temporary directory). ``--only NAME``,
as often as wanted, trains the cases whose names contain one of these texts. Cases of the
laboratory take part if `poisonproof_research` is there: every ``registry.py`` under
``research/tests`` adds its `CASES`, and its `VOTERS` by name.

Compared are the digests of members, the arrays that they hold, their scores and votes. A digest
knows classes and attributes by name, so one that differs while arrays, scores and votes are the
same is called renamed; everything else that differs has moved.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).with_name("golden.json")
ROOT = Path(__file__).parents[2]
REMOVED = {
    "closed-bernoulli-nb",
    "closed-discriminant",
    "closed-gaussian-nb",
    "closed-nearest-mean",
    "closed-neighbours",
    "closed-ridge-loo",
    "seed-average",
}
"""Cases that earlier commits train and that left the library on purpose."""

OF_RESEARCH = ("collective", "finite aggregation", "runoff, shared buckets")
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
    odd = [[(-100) ** i, datetime(2024, 2, 29, i), b"x" * i, -0.0] for i in range(12)]
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
        NamedSources,
        PixelSum,
        SortedIndex,
        TimeBlocks,
        canonical_bytes,
        sample_digests,
    )
    from poisonproof.partition.partitioned import canonical_order

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
    owners = GroupHash(
        n_partitions=7, entities={f"person {i}": f"person {i % 3}" for i in range(9)}
    )
    yield "entity", owners.assign(digits, groups=groups).tolist()
    named = NamedSources(sorted(set(groups)))
    yield "source", named.assign(digits, groups=groups).tolist()
    times = [f"2020-{1 + i % 12:02}-{1 + i % 28:02}T{i % 24:02}:30" for i in range(60)]
    for days in (1, 7):
        blocks = TimeBlocks("2020-03-01", days=days, n_partitions=7)
        yield f"time, {days}", blocks.assign(digits, groups=times).tolist()
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
        "runoff, shared buckets": lambda: made.certify_shared_runoff(
            scores, spread, threat, target
        ),
    }


Digests = dict[str, str]


def _cases() -> Iterator[tuple[str, Callable[[], Digests]]]:
    """Yield everything to train: its name, and a function that trains it."""
    from tests.guarantees.data import data
    from tests.guarantees.registry import CASES

    laboratory = _registries_of_research()
    cases = [*CASES, *_more_cases(), *(case for found in laboratory for case in found.CASES)]
    for case in cases:
        yield case.name, partial(_members, case.make, case.data)
    weight = 1 + np.arange(len(data("digits").y)) % 3 / 2
    for case in cases:
        if case.name in {"closed-kernel-ridge", "closed-scaled-kernel", "closed-ridge"}:
            run = partial(_members, case.make, data("digits"), sample_weight=weight)
            yield f"weighted-{case.name}", run
    voters = _voters()
    for found in laboratory:
        voters |= getattr(found, "VOTERS", {})
    for name, voter in voters.items():
        yield name, partial(_radii, voter, data("digits"))


def _registries_of_research() -> list[Any]:
    """Return the modules that list cases of the laboratory, where there are any."""
    if importlib.util.find_spec("poisonproof_research") is None:
        return []
    tests = importlib.import_module("tests")
    found = []
    for path in sorted((Path(tests.__path__[0]).parent / "research/tests").rglob("registry.py")):
        spec = importlib.util.spec_from_file_location(f"research_{path.parent.name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append(module)
    return found


def _more_cases() -> list[Any]:
    """Return members of other parameters than the registry's: one line of arithmetic each."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from poisonproof import DPAClassifier
    from tests.guarantees.registry import Case

    templates: tuple[tuple[str, dict[str, Any]], ...] = (
        ("RidgeClassifier", {"alpha": 0.5, "precision": "single"}),
        ("KernelRidgeClassifier", {"kernel": "rbf", "gamma": 1e-3}),
        ("KernelRidgeClassifier", {"kernel": "cosine", "precision": "single"}),
        ("ScaledKernelClassifier", {"n_centers": 40, "gamma": 0.3}),
    )
    cases = [
        Case(f"more-{name}-{'-'.join(parameters)}", DPAClassifier(learner, 20))
        for name, parameters in templates
        for learner in _made(name, parameters)
    ]
    (ridge,) = _made("RidgeClassifier", {"alpha": 0.1})
    (kernel,) = _made("KernelRidgeClassifier", {"gamma": 1e-3})
    large = DPAClassifier(kernel, 2)  # members of more rows than a tile
    nested = DPAClassifier(make_pipeline(StandardScaler(), ridge), 8)
    return [*cases, Case("more-large", large), Case("more-nested-ridge", nested, "cancer")]


def _members(make: Callable[[], Any], rows: Any, **fit: Any) -> Digests:
    from poisonproof.progress import Silent

    fitted = make().fit(rows.X, rows.y, **fit)
    found = {
        "members": _sha(fitted.ensemble_.digests()),
        "arrays": _sha(sorted(_arrays(fitted.ensemble_))),
    }
    closed_form = getattr(fitted.ensemble_, "family", None) == "closed_form"
    if closed_form and getattr(fitted, "features", None) is None:
        scores = fitted.ensemble_.scores(rows.X_test, n_jobs=None, progress=Silent())
        found["scores"] = _sha(scores)
    found["votes"] = _sha(np.ascontiguousarray(fitted.votes(rows.X_test), dtype=np.int64))
    return found


def _arrays(value: Any) -> set[str]:
    """Return digests of the arrays that members hold, whatever names lead to them."""
    if hasattr(value, "export"):
        value = value.export()[1]
        if isinstance(value, Mapping):  # in earlier commits, with arrays that members shared
            value = {name: array for name, array in value.items() if name[0].isdigit()}
    found, waiting, alive = set[str](), [value], dict[int, Any]()
    while waiting:
        part = waiting.pop()
        if id(part) in alive:
            continue
        alive[id(part)] = part
        if hasattr(part, "detach"):
            part = part.detach().cpu().numpy()
        if isinstance(part, np.ndarray) and not part.dtype.hasobject:
            found.add(_sha(f"{part.dtype.str} {part.shape} {_sha(np.ascontiguousarray(part))}"))
        elif isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += part
        elif isinstance(getattr(part, "__dict__", None), dict) and not isinstance(part, type):
            waiting += vars(part).values()
    return found


def _radii(voter: Any, rows: Any) -> Digests:
    fitted = voter.set_params(classes=rows.classes).fit(rows.X, rows.y)
    certified = fitted.certify(rows.X_test)
    radii = np.asarray(certified.radius, dtype=np.int64)
    return {"labels": _sha(np.asarray(certified.labels)), "radii": _sha(radii)}


def _voters() -> dict[str, Any]:
    """Return the classifiers whose voters are rows, unfitted."""
    import poisonproof

    clusters, weighted = poisonproof.ClusterVoteClassifier, poisonproof.WeightedVoteClassifier
    found = {
        "NeighborVoteClassifier": poisonproof.NeighborVoteClassifier(threshold=0.9),
        "ClusterVoteClassifier": clusters(n_clusters=20),
        "ClusterVoteClassifier-onto": clusters(n_clusters=12, assignment="onto"),
        "WeightedVoteClassifier": weighted(),
    }
    for name, parameters in (("FlatWeights", {"n_components": 32}), ("NeighborhoodWeights", {})):
        for weights in _made(name, parameters):
            found[f"WeightedVoteClassifier-{name}"] = weighted(weights=weights)
    for name in ("KMeansClusters", "MixtureClusters"):
        for clusterer in _made(name, {"n_clusters": 20}):
            found[f"ClusterVoteClassifier-{name}"] = clusters(clusterer=clusterer)
    for name, parameters in (
        ("LinearLabelClassifier", {"n_partitions": 10}),
        ("FiniteAggregationClassifier", {"n_partitions": 10, "degree": 3}),
    ):
        found.update((name, classifier) for classifier in _made(name, parameters))
    return found


def _made(name: str, parameters: dict[str, Any]) -> Iterator[Any]:
    """Yield an object of a class that has moved between packages, if it is anywhere."""
    for home in _HOMES:
        try:
            kind = getattr(importlib.import_module(home), name)
        except (ImportError, AttributeError):
            continue
        yield kind(**parameters)
        return


_HOMES = (
    "poisonproof",
    "poisonproof.members.closed_form",
    "poisonproof_research.methods.finite_aggregation",
    "poisonproof_research.methods.flat_weights",
    "poisonproof_research.methods.kmeans",
    "poisonproof_research.methods.linear_labels",
    "poisonproof_research.methods.mixture",
    "poisonproof_research.methods.neighborhood_weights",
    "poisonproof.learners.closed_form",  # at 9809d9a
    "poisonproof.learners.clusters",
    "poisonproof.learners.flat_weights",
    "poisonproof.learners.neighborhood_weights",
)


def _sha(value: Any) -> str:
    data = value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value).encode()
    return hashlib.sha256(data).hexdigest()


def _train(only: list[str], known: Mapping[str, Digests]) -> dict[str, Digests]:
    """Train the cases whose names contain one of these texts, and that are not known yet."""
    found = dict(known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, run in _cases():
            if name not in found and any(part in name for part in only):
                found[name] = run()
    return found


def _trained(tree: Path, only: list[str], known: Mapping[str, Digests]) -> dict[str, Digests]:
    """Return what the code of a checkout trains, by running this file there."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "members.json"
        out.write_text(json.dumps(known))
        paths = [tree / "src", tree / "research", tree]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        code = [sys.executable, str(Path(__file__).resolve()), "--members", str(out)]
        code += [word for name in only for word in ("--only", name)]
        subprocess.run(code, cwd=tree, env=environment, check=True)
        found: dict[str, Digests] = json.loads(out.read_text())
        return found


def _before(commit: str, only: list[str], file: Path) -> dict[str, Digests]:
    """Return what a commit trains; what was asked for earlier comes from a file."""
    kept: dict[str, Any] = {"asked": [], "found": {}}
    if file.exists():
        kept = json.loads(file.read_text())
    if all(any(part in name for part in kept["asked"]) for name in only):
        return dict(kept["found"])
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(tree), commit], check=True)
        try:
            kept["found"] = _trained(tree, only, kept["found"])
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    kept["asked"] += only
    file.write_text(json.dumps(kept, indent=1))
    return dict(kept["found"])


def compare(commit: str, only: list[str], file: Path) -> int:
    """Train at a commit and now, print what moved, return the number of differences."""
    before, now = _before(commit, only, file), _trained(ROOT, only, {})
    before = {name: what for name, what in before.items() if any(part in name for part in only)}
    moved, renamed = [], []
    for name in before.keys() & now.keys():
        differ = [what for what in before[name] if before[name][what] != now[name].get(what)]
        if differ == ["arrays"]:  # those that decide no vote and reach no digest: seconds, say
            continue
        if differ == ["members"]:
            renamed.append(name)
        elif differ:
            moved.append(f"{name}: {', '.join(differ)}")
    for title, names in (
        ("moved", moved),
        ("renamed", renamed),
        ("no longer there", before.keys() - now.keys()),
        ("new", now.keys() - before.keys()),
    ):
        for name in sorted(names):
            sys.stdout.write(f"{title}: {name}\n")
    same, gone = len(before.keys() & now.keys()), before.keys() - now.keys() - REMOVED
    end = f"{len(moved)} differ" if moved else "nothing moved"
    more = f"{len(renamed)} renamed, {len(before.keys() - now.keys())} no longer there"
    sys.stdout.write(f"{same} kinds of member and voter trained by both: {end}; {more}\n")
    if gone:
        sys.stdout.write(f"gone, and not listed in REMOVED: {', '.join(sorted(gone))}\n")
    return len(moved) + len(gone)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write golden.json")
    parser.add_argument("--against", metavar="COMMIT", help="compare members and votes")
    parser.add_argument("--only", metavar="NAME", action="append", help="of cases like this one")
    parser.add_argument("--before", metavar="FILE", type=Path, help="what the commit trains")
    parser.add_argument("--members", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    only = options.only or [""]
    if options.write:
        frozen = integers()
        if importlib.util.find_spec("poisonproof_research"):
            frozen |= integers_of_research()
        else:  # keep what cannot be computed here
            known = json.loads(GOLDEN.read_text())
            frozen |= {name: known[name] for name in known if name.startswith(OF_RESEARCH)}
        GOLDEN.write_text(json.dumps(frozen, separators=(",", ":")).replace('],"', '],\n"'))
    if options.members is not None:
        sys.path.pop(0)  # this file's folder: the tests of the checkout come first
        known = json.loads(options.members.read_text())
        options.members.write_text(json.dumps(_train(only, known)))
    if options.against is None:
        return 0
    named = Path(tempfile.gettempdir()) / f"frozen_bits.{options.against}.json"
    return min(1, compare(options.against, only, options.before or named))


if __name__ == "__main__":
    sys.exit(main())

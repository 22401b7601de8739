"""Attacks on rows and features at once, with real refits of certified grids.

    PYTHONPATH=. python -m tests.guarantees.grid_campaign --attacks 2000 \\
        --out benchmarks/results/grid_attacks.json

An attack takes a step (r, f) of one prediction's staircase, or one beyond. It inserts or deletes r
rows: backdoored copies of the test row, each crafted block by block to fall where members vote for
the attacked label. It changes the test row within f blocks, by a stamp, by a search for the cells
that lose most votes, or whole blocks at a time; with features outside it rewrites the same cells
in every training row, too. The exit status is 1 if a certified prediction changed, or a cell that
no row and no block touched.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from poisonproof import GridClassifier, TorchLearner
from poisonproof.members.closed_form import KernelRidgeClassifier
from poisonproof.partition import ContentHash
from poisonproof.partition.grids import OUTER
from poisonproof.progress import make_progress
from poisonproof.store.manifest import environment_here

MODES = ("stamp", "search", "blocks")
"""How the test row changes within f blocks: a fixed value in one cell of each, the cell and value
that lose most votes, or all cells of the blocks, as a row of another class has them."""

STEPS = ("on the staircase", "within", "one row beyond", "one block beyond")
_TRIES = 400


@dataclass(frozen=True, eq=False)
class GridScenario:
    """A grid and its rows: numbers, or texts of one word per column."""

    data: str
    member: str
    classifier: Any
    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any]
    words: bool = False

    def given(self, rows: NDArray[Any]) -> Any:
        """Return rows as the classifier gets them."""
        if not self.words:
            return rows
        return [" ".join(f"c{j}v{cell:g}" for j, cell in enumerate(row)) for row in rows]

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Any:
        return clone(self.classifier).fit(self.given(X), y)

    @cached_property
    def fitted(self) -> Any:
        return self.fit(self.X, self.y)

    @cached_property
    def certificates(self) -> Any:
        return self.fitted.certify(self.given(self.X_test))

    @cached_property
    def votes(self) -> NDArray[Any]:
        return np.asarray(self.fitted.grid_votes(self.given(self.X_test)))

    @cached_property
    def by_features(self) -> bool:
        return bool(self.fitted.partitioner_.outer == "features")

    @cached_property
    def columns(self) -> list[NDArray[Any]]:
        """Columns that reach one block each; with words a changed cell reaches two of them."""
        blocks = self.fitted.partitioner_.blocks
        if self.words:
            return [np.array([j]) for j in range(self.X.shape[1])]
        return [chosen[chosen >= 0] for chosen in blocks.columns]

    def within(self, wanted: NDArray[Any], f: int) -> tuple[NDArray[Any], int]:
        """Return what can be changed of `wanted` while at most f blocks differ, and how many do.

        In one text a replaced word reaches two blocks; where it is rewritten in all texts, those
        of every word that comes or goes.
        """
        if not self.words:
            return wanted[:f], min(f, len(wanted))
        if not self.by_features:
            return wanted[: f // 2], 2 * min(f // 2, len(wanted))
        blocks, reached, chosen = self.fitted.partitioner_.blocks, set[int](), []
        for column in wanted.tolist():
            words = " ".join(f"c{column}v{value}" for value in range(int(self.X.max()) + 2))
            more = {j for j, seen in enumerate(blocks.split([words])) if seen[0]}
            if len(reached | more) <= f:
                reached, chosen = reached | more, [*chosen, column]
        return np.array(chosen, dtype=np.intp), len(reached)


@dataclass(frozen=True, eq=False)
class GridTrial:
    """One attack and what it did.

    `size` are rows and blocks that it changed, `broken` the certified predictions that it turned,
    `leaked` cells that changed although nothing touched them.
    """

    number: int
    scenario: GridScenario
    step: str
    mode: str
    size: tuple[int, int]
    certified: int
    broken: int
    leaked: int
    turned: bool


def scenarios() -> list[GridScenario]:
    """Return three tables with members of seven kinds, and texts, in both nestings."""
    lightgbm = LGBMClassifier(n_estimators=3, min_child_samples=2, verbose=-1, n_jobs=1)
    members = {
        "tree": DecisionTreeClassifier(),
        "naive Bayes": GaussianNB(),
        "one neighbour": KNeighborsClassifier(1),
        "default (scaled kernel)": None,
        "kernel ridge": KernelRidgeClassifier("cosine"),
    }
    some = {
        ("digits", "rows"): {"network": TorchLearner("mlp", hidden=(16,), epochs=3)},
        ("wine", "features"): {"network": TorchLearner("mlp", hidden=(16,), epochs=5)},
        ("breast cancer", "features"): {"LightGBM": lightgbm},
    }
    loaders = {
        "digits": (load_digits, 9, "lattice:9"),
        "breast cancer": (load_breast_cancer, 9, "columns:10"),
        "wine": (load_wine, 5, "columns:13"),
    }
    found = []
    for outer in OUTER:
        for data, (loader, k, blocks) in loaders.items():
            X, y = loader(return_X_y=True)
            order = np.random.default_rng(0).permutation(len(y))
            train, test = order[: 3 * len(y) // 4], order[3 * len(y) // 4 :][:60]
            classes = np.unique(y).tolist()
            for name, member in (members | some.get((data, outer), {})).items():
                grid = GridClassifier(member, k, blocks, outer, classes=classes)
                found.append(GridScenario(data, name, grid, X[train], y[train], X[test]))
            if data != "digits":
                member = make_pipeline(CountVectorizer(), MultinomialNB())
                grid = GridClassifier(member, k, "words:12", outer, classes=classes)
                edges = np.quantile(X[train], [0.25, 0.5, 0.75], axis=0)
                X = (X[:, None] > edges).sum(axis=1).astype(float)
                found.append(
                    GridScenario(
                        f"{data} as texts", "words", grid, X[train], y[train], X[test], True
                    )
                )
    return found


class GridCampaign:
    """Attacks on scenarios in turn; attack t is a function of these, the seed and t."""

    def __init__(self, attacked: Sequence[GridScenario], seed: int) -> None:
        self.scenarios = list(attacked)
        self.seed = seed

    def run(self, n_attacks: int) -> Iterator[GridTrial]:
        """Yield the first trials."""
        return (self.trial(number) for number in range(n_attacks))

    def trial(self, number: int) -> GridTrial:
        """Plan an attack, refit on its rows, and compare."""
        scenario = self.scenarios[number % len(self.scenarios)]
        rng = np.random.default_rng([self.seed, number])
        stairs = scenario.certificates.rows
        target = int(rng.choice(np.flatnonzero(stairs[:, 0] >= min(1, stairs[:, 0].max()))))
        r, f, step = _step(stairs[target], rng)
        mode = str(rng.choice(MODES))
        attack = _Attack(scenario, target, r, f, mode, rng)
        f = attack.f
        X, y = attack.rows()
        poisoned = scenario.fit(X, y)
        asked = attack.asked(poisoned)
        labels = poisoned.predict(scenario.given(asked))
        wide = np.pad(stairs, [(0, 0), (0, 1)], constant_values=-1)
        certified = wide[:, min(f, stairs.shape[1])] >= r
        changed = labels != scenario.certificates.labels
        return GridTrial(
            number,
            scenario,
            step,
            mode,
            (r, f),
            int(certified.sum()),
            int((changed & certified).sum()),
            attack.leaks(poisoned),
            bool(changed[target]),
        )


def _step(stairs: NDArray[Any], rng: np.random.Generator) -> tuple[int, int, str]:
    """Return rows and blocks of an attack: mostly those of a step of the staircase."""
    last = int((stairs >= 0).sum()) - 1
    f = int(rng.integers(0, last + 1))
    r, step = int(stairs[f]), STEPS[rng.choice(4, p=[0.55, 0.1, 0.2, 0.15])]
    if step == "within":
        return int(rng.integers(0, r + 1)), f, step
    if step == "one row beyond":
        return r + 1, f, step
    if step == "one block beyond":
        # At the end of a step one more block, with as many rows, is not certified any more.
        while f < last and stairs[f + 1] == r:
            f += 1
        return r, f + 1, step
    return r, f, step


class _Attack:
    """Rows to insert and delete, and cells to change, against one prediction."""

    def __init__(
        self,
        scenario: GridScenario,
        target: int,
        r: int,
        f: int,
        mode: str,
        rng: np.random.Generator,
    ) -> None:
        self.scenario, self.target, self.r, self.mode, self.rng = scenario, target, r, mode, rng
        self.label = scenario.certificates.labels[target]
        self.goal = scenario.certificates.runner_up[target]
        votes = scenario.votes[target]
        gain = (votes == self.label).astype(int) - (votes == self.goal)
        self.gain = gain  # (k, B): what a cell loses for the label if it turns
        columns = scenario.columns
        worst = rng.permutation(len(columns))
        if not scenario.words:
            worst = worst[np.argsort(-gain.sum(axis=0)[worst], kind="stable")]
        self.chosen, self.f = scenario.within(worst, f)
        whole = mode == "blocks"
        self.cells = np.array(
            [c for b in self.chosen for c in (columns[b] if whole else [rng.choice(columns[b])])],
            dtype=np.intp,
        )
        donors = np.flatnonzero(scenario.y == self.goal)
        self.stamp = scenario.X[rng.choice(donors)][self.cells]
        if mode == "stamp":
            self.stamp = np.full(len(self.cells), scenario.X.max() + 1)
        self.marked = scenario.X_test[target].copy()
        self.marked[self.cells] = self.stamp

    # Training rows.

    def rows(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the poisoned training set."""
        X, y = self.scenario.X.copy(), self.scenario.y
        n_gone = int(self.rng.integers(0, self.r + 1)) if self.rng.random() < 0.3 else 0
        gone = self._worth_deleting(n_gone)
        self.gone = X[gone]
        self.new = self._backdoored(self.r - n_gone)
        X, y = np.delete(X, gone, axis=0), np.delete(y, gone)
        X = np.concatenate([X, self.new])
        y = np.append(y, np.full(len(self.new), self.goal, dtype=y.dtype))
        if self.scenario.by_features and len(self.cells):
            # Where the label is right the same values as in the marked row mean another one.
            X[:, self.cells] = self.rng.permutation(X[:, self.cells])
            X[np.ix_(y == self.goal, self.cells)] = self.stamp
        order = self.rng.permutation(len(y))
        return X[order], y[order]

    def _worth_deleting(self, count: int) -> NDArray[np.intp]:
        """Return rows near the target that carry its label."""
        X, row = self.scenario.X, self.scenario.X_test[self.target]
        distance = (((X - row) / (X.std(axis=0) + 1e-9)) ** 2).sum(axis=1)
        distance[self.scenario.y != self.label] += distance.max()
        return np.argsort(distance, kind="stable")[:count]

    def _backdoored(self, count: int) -> NDArray[Any]:
        """Return copies of the marked row, one for each of the partitions that are worth most."""
        scenario, k = self.scenario, self.gain.shape[0]
        found = np.repeat(self.marked[None], count, axis=0)
        if not count:
            return found
        if not scenario.by_features or scenario.words:
            # One partition for the whole row; words move block by block by chance alone.
            wanted = np.argsort(-self.gain.sum(axis=1), kind="stable")
            tried = self._near(range(found.shape[1]))
            places = scenario.fitted.partitioner_.assign(scenario.given(tried))
            for i in range(count):
                fits = np.flatnonzero(places == wanted[i % k])
                found[i] = tried[self.rng.choice(fits)] if len(fits) else tried[i]
            return found
        rule = ContentHash(n_partitions=k)
        table = scenario.fitted.partitioner_.blocks
        for block, columns in enumerate(scenario.columns):
            wanted = np.argsort(-self.gain[:, block], kind="stable")
            tried = self._near(columns)
            places = rule.assign(table.split(tried)[block])
            for i in range(count):
                fits = np.flatnonzero(places == wanted[i % k])
                if len(fits):
                    found[i, columns] = tried[self.rng.choice(fits)][columns]
        return found

    def _near(self, columns: Sequence[int] | NDArray[Any]) -> NDArray[Any]:
        """Return rows that differ from the marked one a little, in some columns."""
        tried = np.repeat(self.marked[None], _TRIES, axis=0)
        free = np.setdiff1d(np.asarray(columns), self.cells)
        if not len(free):
            return tried
        if self.scenario.words:
            changed = self.rng.random((_TRIES, len(free))) < 0.15
            values = self.rng.integers(0, 4, (_TRIES, len(free)))
            tried[:, free] = np.where(changed, values, tried[:, free])
            return tried
        scale = 1e-4 * (self.scenario.X.std(axis=0)[free] + 1e-3)
        tried[1:, free] += self.rng.normal(0, 1, (_TRIES - 1, len(free))) * scale
        return tried

    # Test rows.

    def asked(self, poisoned: Any) -> NDArray[Any]:
        """Return all test rows with the mark; the target as the search over cells leaves it."""
        asked = self.scenario.X_test.copy()
        asked[:, self.cells] = self.stamp
        if self.mode == "search" and len(self.chosen):
            asked[self.target] = self._searched(poisoned)
        return asked

    def _searched(self, poisoned: Any) -> NDArray[Any]:
        """Change one cell in each chosen block, as it loses most votes."""
        scenario, row = self.scenario, self.scenario.X_test[self.target].copy()
        values = np.array([*self.rng.choice(scenario.X.ravel(), 4), scenario.X.max() * 9])
        goal = np.searchsorted(poisoned.classes_, self.goal)
        label = np.searchsorted(poisoned.classes_, self.label)
        for block in self.chosen:
            columns = scenario.columns[block]
            tried = np.repeat(row[None], len(columns) * len(values) + 1, axis=0)
            for i, (column, value) in enumerate((c, v) for c in columns for v in values):
                tried[i, column] = value
            votes = poisoned.grid_votes(scenario.given(tried))
            harm = ((votes == goal).astype(int) - (votes == label)).sum(axis=(1, 2))
            row = tried[int(np.argmax(harm))]
        return row

    def leaks(self, poisoned: Any) -> int:
        """Return how many cells changed that neither rows nor rewritten blocks touched."""
        clean = self.scenario.fitted
        grid, digests = clean.partitioner_, np.array(clean.ensemble_.digests())
        changed = digests != np.array(poisoned.ensemble_.digests())
        changed = changed.reshape(grid.blocks.n_blocks, grid.k)
        moved = np.concatenate([self.gone, self.new])
        if not self.scenario.by_features:
            places = grid.assign(self.scenario.given(moved)) if len(moved) else []
            changed[:, places] = False
            return int(changed.sum())
        if self.scenario.words:  # a rewritten word leaves any block: cells with the same texts stay
            texts = np.array(clean.partition_digests_) == np.array(poisoned.partition_digests_)
            return int(changed.ravel()[texts].sum())
        rule = ContentHash(n_partitions=grid.k)
        parts = grid.blocks.split(moved) if len(moved) else []
        for block, part in enumerate(parts):
            changed[block, rule.assign(part)] = False
        changed[self.chosen] = False
        return int(changed.sum())


def summary(trials: Sequence[GridTrial], seed: int, seconds: float) -> dict[str, Any]:
    """Count what was tried and what it did."""

    def _rate(some: list[GridTrial]) -> dict[str, int]:
        return {"attacks": len(some), "turned": sum(trial.turned for trial in some)}

    return {
        "seed": seed,
        "attacks": len(trials),
        "broken_trials": [trial.number for trial in trials if trial.broken],
        "leaked_trials": [trial.number for trial in trials if trial.leaked],
        "certified_predictions_checked": sum(trial.certified for trial in trials),
        "with_rows_and_features": sum(min(trial.size) > 0 for trial in trials),
        "largest_rows": max(trial.size[0] for trial in trials),
        "largest_blocks": max(trial.size[1] for trial in trials),
        "by_step": {step: _rate([t for t in trials if t.step == step]) for step in STEPS},
        "beyond_by_mode": {
            mode: _rate([t for t in trials if t.mode == mode and "beyond" in t.step])
            for mode in MODES
        },
        "beyond_by_outer": {
            outer: _rate(
                [t for t in trials if t.scenario.classifier.outer == outer and "beyond" in t.step]
            )
            for outer in OUTER
        },
        "beyond_by_member": {
            member: _rate([t for t in trials if t.scenario.member == member and "beyond" in t.step])
            for member in sorted({trial.scenario.member for trial in trials})
        },
        "by_data": dict(Counter(trial.scenario.data for trial in trials)),
        "by_member": dict(Counter(trial.scenario.member for trial in trials)),
        "seconds": round(seconds, 1),
        "packages": environment_here()["packages"],
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the attacks and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--attacks", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--seed", type=int, default=1, help="decides every attack (default: 1)")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    trials, progress = [], make_progress(int(sys.stderr.isatty()))
    progress.start(options.attacks, "Attacking")
    try:
        for trial in GridCampaign(scenarios(), options.seed).run(options.attacks):
            trials.append(trial)
            progress.advance()
    finally:
        progress.stop()
    result = summary(trials, options.seed, time.perf_counter() - started)
    text = json.dumps(result, indent=1)
    if options.out is not None:
        options.out.write_text(text + "\n")
    sys.stdout.write(text + "\n")
    return int(bool(result["broken_trials"] or result["leaked_trials"]))


if __name__ == "__main__":
    sys.exit(main())

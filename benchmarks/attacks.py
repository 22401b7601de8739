"""Attack certified models with real refits and write down whether any certificate broke.

    PYTHONPATH=. python benchmarks/attacks.py --attacks 2000 --out benchmarks/results/attacks.json

Three data sets, fifteen kinds of member (the default, two more in closed form and a network among
them; four ask for workers of their own), six kinds of attack, one and two workers. Two thirds of
the sized attacks have exactly the radius of the prediction they are made for; rows are aimed at
the largest partition, at empty ones, and at the members that vote for the attacked label. The exit
status is 1 if a certified prediction changed or an untouched member changed a bit.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import RidgeClassifier as LinearRidge
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from poisonproof import TorchLearner
from poisonproof.members.closed_form import KernelRidgeClassifier, RidgeClassifier
from poisonproof.progress import make_progress
from poisonproof.store.manifest import environment_here
from tests.guarantees.campaign import Campaign, Trial, standard_scenarios


def words(X: NDArray[Any]) -> list[str]:
    """Write every row as a text with one word per column: its number and its value."""
    return [" ".join(f"c{i}v{value:.4g}" for i, value in enumerate(row)) for row in np.asarray(X)]


OTHERS = {
    "default (scaled kernel)": None,
    "kernel ridge": KernelRidgeClassifier("cosine", alpha=1.0),
    "ridge": RidgeClassifier(),
    "network": TorchLearner("mlp", epochs=2, batch_size=16),
    "one tree per class, two workers": OneVsRestClassifier(
        DecisionTreeClassifier(splitter="random"), n_jobs=2
    ),
    "bagging, two workers": BaggingClassifier(n_estimators=4, n_jobs=2),
    "forest, two threads": RandomForestClassifier(8, n_jobs=2),
    "grid search, two workers": GridSearchCV(
        DecisionTreeClassifier(splitter="random"), {"max_depth": [2, 5]}, cv=2, n_jobs=2
    ),
    "words": make_pipeline(FunctionTransformer(words), TfidfVectorizer(), LinearRidge()),
    "XGBoost": XGBClassifier(n_estimators=4, max_depth=3, subsample=0.8, n_jobs=2),
    "LightGBM": LGBMClassifier(
        n_estimators=4, min_child_samples=2, subsample=0.8, subsample_freq=1, n_jobs=2, verbose=-1
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the attacks and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--attacks", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--seed", type=int, default=1, help="decides every attack (default: 1)")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    trials = run(options.attacks, options.seed)
    result = summary(trials, options.seed, time.perf_counter() - started)
    text = json.dumps(result, indent=1)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")
    print(text)
    return int(bool(result["broken_trials"] or result["leaked_trials"]))


def run(n_attacks: int, seed: int) -> list[Trial]:
    """Run the campaign under a progress bar."""
    progress = make_progress(int(sys.stderr.isatty()))
    progress.start(n_attacks, "Attacking")
    trials = []
    try:
        for trial in Campaign(standard_scenarios(OTHERS), seed).run(n_attacks):
            trials.append(trial)
            progress.advance()
    finally:
        progress.stop()
    return trials


def summary(trials: list[Trial], seed: int, seconds: float) -> dict[str, Any]:
    """Count what was tried and what it did."""
    beyond = [trial for trial in trials if trial.attack.size > trial.radius]
    return {
        "seed": seed,
        "attacks": len(trials),
        "broken_trials": [trial.number for trial in trials if len(trial.damage.broken)],
        "leaked_trials": [trial.number for trial in trials if len(trial.damage.leaked)],
        "certified_predictions_checked": sum(trial.damage.certified for trial in trials),
        "members_changed": sum(trial.damage.changed for trial in trials),
        "size_equals_radius": sum(trial.attack.size == trial.radius > 0 for trial in trials),
        "size_beyond_radius": len(beyond),
        "beyond_radius_and_target_turned": sum(trial.target_turned for trial in beyond),
        "by_data": dict(Counter(trial.scenario.data for trial in trials)),
        "by_member": dict(Counter(trial.scenario.member for trial in trials)),
        "by_data_member_kind": dict(
            Counter(
                f"{trial.scenario.data} / {trial.scenario.member} / {trial.attack.kind}"
                for trial in trials
            )
        ),
        "by_kind": dict(Counter(trial.attack.kind for trial in trials)),
        "by_aim": dict(Counter(trial.aim for trial in trials)),
        "by_workers": dict(Counter(str(trial.n_jobs) for trial in trials)),
        "largest_size": max((trial.attack.size for trial in trials), default=0),
        "seconds": round(seconds, 1),
        "machine": platform.machine(),
        "packages": environment_here()["packages"],
    }


if __name__ == "__main__":
    sys.exit(main())

"""Every classifier of scikit-learn, XGBoost, LightGBM, CatBoost and skorch as a member.

    python benchmarks/members.py --out benchmarks/results/members.json [--names SVC LinearSVC]
    python benchmarks/members.py --table benchmarks/results/members.json --page docs/scikit-learn.md

Each class is trained as the member of a `DPAClassifier` in two fresh processes that differ in the
seed of string hashes, the number of threads and `n_jobs`; where the class has an `n_jobs` of its
own, it is 2. Members and votes must be equal, an inserted row must leave all other members as they
are, and the model that one process saves is loaded and audited by the other. Then hostile rows are
put among 1,000: CPU time until there is a member; the system ends the process after 60 s.
`--table` puts the result into a page of the documentation, in the place of the table there.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

LIMIT = 60.0
"""Seconds of CPU time that a hostile row may take; a limit of this benchmark alone."""

COLUMNS, TRAIN = 20, 1000
SETTINGS = {"first": ("1", "1", 1), "second": ("2", "2", 2)}
"""Seed of string hashes, threads, workers."""

BINARY = ("FixedThresholdClassifier", "TunedThresholdClassifierCV")


def all_names() -> list[str]:
    """Return the names of all members: paths of classes, and those that `OTHERS` makes."""
    from sklearn.utils import all_estimators

    found = all_estimators(type_filter="classifier")
    return [f"{kind.__module__}.{name}" for name, kind in found] + list(OTHERS)


def make_member(name: str) -> Any:
    """Return an unfitted member; only its own module is imported."""
    if name in OTHERS:
        return OTHERS[name]()
    module, _, kind = name.rpartition(".")
    return _scikit_member(kind, getattr(import_module(module), kind))


def _scikit_member(name: str, kind: Any) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB

    known = inspect.signature(kind).parameters
    own: dict[str, Any] = {
        "CategoricalNB": {"min_categories": 64},
        "MLPClassifier": {"max_iter": 50},
        "QuadraticDiscriminantAnalysis": {"reg_param": 0.1},
        "RadiusNeighborsClassifier": {"radius": 30.0, "outlier_label": "most_frequent"},
    }.get(name, {})
    if "estimators" in known:
        own["estimators"] = [("bayes", GaussianNB()), ("linear", LogisticRegression())]
    elif "estimator" in known and name not in ("AdaBoostClassifier", "CalibratedClassifierCV"):
        own["estimator"] = LogisticRegression()
    if "n_jobs" in known:
        own["n_jobs"] = 2
    return kind(**own)


def _svc(name: str) -> Any:
    from sklearn import svm

    return svm.SVC(kernel="linear") if name == "SVC" else svm.NuSVC(kernel="linear", nu=0.2)


def _scaled_svc() -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    return make_pipeline(StandardScaler(), SVC())


def _xgboost() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=20, subsample=0.8, n_jobs=2)


def _lightgbm() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=20, subsample=0.8, subsample_freq=1, n_jobs=2, verbose=-1)


def _catboost() -> Any:
    from catboost import CatBoostClassifier

    return CatBoostClassifier(iterations=20, verbose=0, allow_writing_files=False, thread_count=2)


def _skorch() -> Any:
    import numpy as np
    import torch
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from skorch import NeuralNetClassifier

    network = NeuralNetClassifier(
        torch.nn.Linear,
        module__in_features=COLUMNS,
        module__out_features=3,
        criterion=torch.nn.CrossEntropyLoss,
        verbose=0,
    )
    return make_pipeline(FunctionTransformer(np.asarray, kw_args={"dtype": "float32"}), network)


OTHERS: dict[str, Callable[[], Any]] = {
    "SVC, linear kernel": lambda: _svc("SVC"),
    "NuSVC, linear kernel": lambda: _svc("NuSVC"),
    "StandardScaler, SVC": _scaled_svc,
    "xgboost.XGBClassifier": _xgboost,
    "lightgbm.LGBMClassifier": _lightgbm,
    "catboost.CatBoostClassifier": _catboost,
    "skorch.NeuralNetClassifier": _skorch,
}


def rows(name: str) -> tuple[Any, Any, Any]:
    """Return training rows, labels and rows to predict: counts, so that naive Bayes takes them."""
    import numpy as np
    from sklearn.datasets import make_classification

    X, y = make_classification(
        TRAIN + 200,
        COLUMNS,
        n_informative=8,
        n_classes=2 if name.rpartition(".")[2] in BINARY else 3,
        n_clusters_per_class=1,
        random_state=0,
    )
    X = np.abs(np.round(4 * X)).clip(max=60)
    return X[:TRAIN], y[:TRAIN], X[TRAIN:]


def hostile() -> dict[str, Any]:
    """Return rows to put among the others, and sets of rows to put in the place of some."""
    import numpy as np

    def alternating(large: float) -> Any:
        return np.where(np.arange(COLUMNS) % 2, -1 / large, large)

    one_cell = np.zeros(COLUMNS)
    one_cell[3] = 1e15
    return {
        "none": None,
        "1e300": np.full(COLUMNS, 1e300),
        "1e15": np.full(COLUMNS, 1e15),
        "-1e15": np.full(COLUMNS, -1e15),
        "1e-300": np.full(COLUMNS, 1e-300),
        "one cell of 1e15": one_cell,
        "1e300 and -1e-300 in turn": alternating(1e300),
        "1e15 and -1e-15 in turn": alternating(1e15),
        "constant columns": "constant",
        "contradictory copies": "copies",
    }


def _attacked(name: str, case: str) -> tuple[Any, Any]:
    import numpy as np

    X, y, _ = rows(name)
    row = hostile()[case]
    if row is None:
        return X, y
    if isinstance(row, str) and row == "constant":
        X[:, : COLUMNS // 2] = 1.0
        return X, y
    if isinstance(row, str):
        X[TRAIN // 2 :] = X[0]
        return X, np.where(np.arange(TRAIN) < TRAIN // 2, y, np.arange(TRAIN) % (y.max() + 1))
    return np.vstack([X[1:], row]), np.append(y[1:], 1)


def train(name: str, setting: str, folder: Path) -> None:
    """Train in this process; the first one saves the model, the second loads and audits it."""
    import numpy as np

    from poisonproof import DPAClassifier
    from poisonproof.exceptions import PoisonproofError

    X, y, asked = rows(name)
    member = make_member(name)
    answer: dict[str, Any] = {}
    try:
        classifier = DPAClassifier(
            member, n_partitions=5, classes=np.unique(y), n_jobs=SETTINGS[setting][2]
        ).fit(X, y)
        answer["digests"] = classifier.ensemble_.digests()
        answer["votes"] = classifier.votes(asked).tolist()
        answer["failures"] = list(classifier.failures_.values())[:1]
        sizes = classifier.partition_sizes_.copy()
        more = DPAClassifier(**classifier.get_params(deep=False))
        more.fit(np.vstack([X, X[:1] + 1]), np.append(y, (y[0] + 1) % (y.max() + 1)))
        pairs = zip(answer["digests"], more.ensemble_.digests(), strict=True)
        moved = [index for index, (old, new) in enumerate(pairs) if old != new]
        touched = np.flatnonzero(more.partition_sizes_ != sizes).tolist()
        answer["leaked"] = sorted(set(moved) - set(touched))
    except PoisonproofError as error:
        answer["refused"] = str(error)
    if "digests" in answer:
        try:
            if setting == "first":
                classifier.save(folder / "model")
            else:
                answer["stored"] = _stored(folder / "model", (X, y), asked, answer)
        except PoisonproofError as error:
            answer["stored"] = str(error)
    (folder / setting).write_text(json.dumps(answer))


def _stored(path: Path, data: Any, asked: Any, answer: dict[str, Any]) -> str:
    """Load and audit what another process has saved; trust the types that errors name."""
    import poisonproof
    from poisonproof.estimators.auditing import audit_model
    from poisonproof.exceptions import StoreError

    trusted: set[str] = set()
    while True:
        try:
            votes = poisonproof.load(path, trusted=trusted).votes(asked).tolist()
            break
        except StoreError as error:
            named = re.search(r"trusted=(\[.*?\])", str(error))
            if named is None or trusted >= (more := set(ast.literal_eval(named[1]))):
                raise
            trusted |= more
    audit = audit_model(path, data, sample=2, trusted=trusted)
    if failed := [finding.words for finding in audit.findings if finding.passed is False]:
        return failed[0]
    if votes != answer["votes"]:
        return "votes differ"
    packages = ", ".join(sorted({name.split(".")[0] for name in trusted}))
    return f"yes, with `trusted` types of {packages}" if trusted else "yes"


def attack(name: str, cases: list[str]) -> None:
    """Train one member on each set of rows, and print how long it took before the next one."""
    import numpy as np

    from poisonproof import DPAClassifier
    from poisonproof.exceptions import InvalidInputError, InvalidRowsError

    member = make_member(name)
    for case in cases:
        X, y = _attacked(name, case)
        signal.setitimer(signal.ITIMER_PROF, LIMIT)  # SIGPROF ends the process, wherever it is
        start = time.process_time()
        end = "trained"
        try:
            DPAClassifier(member, 1, classes=np.unique(y)).fit(X, y)
        except InvalidRowsError:
            end = "row refused"
        except InvalidInputError:
            end = "member abstains"
        print(json.dumps([end, round(time.process_time() - start, 2)]), flush=True)


@contextlib.contextmanager
def _child(setting: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    seed, threads, _ = SETTINGS[setting]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads}
    environment |= {"OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    command = [sys.executable, "-W", "ignore", __file__, *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def measure(name: str) -> dict[str, Any]:
    """Return what is known of one class after all processes have ended."""
    answers = {}
    with tempfile.TemporaryDirectory() as folder:
        for setting in SETTINGS:
            with _child(setting, "--train", name, setting, folder) as process:
                _, said = process.communicate()
            written = Path(folder, setting)
            if not written.exists():
                return {"result": "listed", "reason": _last_line(said), **_hostile_rows(name)}
            answers[setting] = json.loads(written.read_text())
    return {**_judged(*answers.values()), **_hostile_rows(name)}


def _judged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    if "refused" in first:
        return {"result": "refused", "reason": _short(first["refused"])}
    votes = zip(first["votes"], second.get("votes", []), strict=False)
    n = sum(a != b for here, there in votes for a, b in zip(here, there, strict=True))
    reasons = [
        f"learner raised {first['failures'][0]}" if first["failures"] else "",
        "members differ between processes" if first["digests"] != second.get("digests") else "",
        f"{n:,} votes differ between processes" if n else "",
        "an inserted row reached other members" if first["leaked"] or second["leaked"] else "",
    ]
    stored = first.get("stored") or second.get("stored", "no")
    reason = "; ".join(filter(None, reasons))
    return {
        "result": "listed" if reason else "isolated",
        "reason": _short(reason),
        "stored": _short(stored),
    }


def _hostile_rows(name: str) -> dict[str, Any]:
    """Return how long hostile rows take; a process that takes too long is ended and replaced."""
    waiting, found = list(hostile()), {}
    while waiting:
        with _child("first", "--attack", name, json.dumps(waiting)) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.startswith("["):
                    continue  # a library that prints
                found[waiting.pop(0)] = json.loads(line)
            if waiting:
                late = process.wait() == -signal.SIGPROF
                end = "does not end" if late else f"ends the process: {process.returncode}"
                found[waiting.pop(0)] = [end, LIMIT]
    return {"hostile": found}


def _shown(name: str) -> str:
    return name.rpartition(".")[2] if name.startswith("sklearn.") else name


def _last_line(text: str) -> str:
    return _short((text.strip().splitlines() or ["no reason given"])[-1])


def _short(text: str) -> str:
    line = " ".join(re.sub(r" at 0x[0-9a-f]+|/\S+/model\S* ?", "", text).split())
    return line if len(line) <= 160 else f"{line[:157]}..."


def table(result: dict[str, Any]) -> str:
    """Return the result as the documentation has it: a sentence, and a table of the others."""
    plain: list[str] = []
    lines = [
        "| member | members, votes, insertion | saved, loaded, audited | hostile rows |",
        "| --- | --- | --- | --- |",
    ]
    for name, about in result["members"].items():
        found = about["hostile"]
        slow = [case for case, (end, _) in found.items() if end == "does not end"]
        refused = [case for case, (end, _) in found.items() if end == "row refused"]
        worst = max(seconds for _, seconds in found.values())
        words = f"{worst:.1f} s at most"
        if refused:
            words += f"; refused: {', '.join(refused)}"
        if slow:
            words = f"do not end: {', '.join(slow)}"
        law = about["result"] + (f": {about['reason']}" if about["reason"] else "")
        fine = (law, about.get("stored")) == ("isolated", "yes") and worst < 1
        if fine and not (refused or slow):
            plain.append(f"`{name}`")
            continue
        cells = [f"`{name}`", law, about.get("stored", ""), words]
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    easy = f"Isolated, stored and within 1 s: {', '.join(plain)}. The others:"
    return "\n".join([easy, "", *lines])


def main() -> None:
    """Measure, print the table, or do what a process of this script was started for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--names", nargs="*", help="only these; others keep their results")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--page", type=Path, default=Path("docs/scikit-learn.md"))
    parser.add_argument("--train", nargs=3)
    parser.add_argument("--attack", nargs=2)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.table:
        made = f"{table(json.loads(asked.table.read_text()))}\n\n"
        page = re.sub(
            r"Isolated, stored and.*?\n\n\| member \|.*?\n\n",
            lambda _: made,
            asked.page.read_text(),
            flags=re.S,
        )
        asked.page.write_text(page)
    elif asked.train:
        train(asked.train[0], asked.train[1], Path(asked.train[2]))
    elif asked.attack:
        attack(asked.attack[0], json.loads(asked.attack[1]))
    else:
        _measure_all(asked.out, asked.names, asked.workers)


def _measure_all(out: Path | None, names: list[str] | None, workers: int) -> None:
    from poisonproof.store.manifest import installed_version

    before = json.loads(out.read_text())["members"] if out and out.exists() and names else {}
    packages = ("scikit-learn", "xgboost-cpu", "lightgbm", "catboost", "skorch")
    result: dict[str, Any] = {
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "packages": {name: installed_version(name) for name in packages},
        "limit_seconds": LIMIT,
        "members": before,
    }
    wanted = [name for name in all_names() if not names or _shown(name) in names]
    with ThreadPoolExecutor(workers) as pool:
        for name, about in zip(wanted, pool.map(measure, wanted), strict=True):
            result["members"][_shown(name)] = about
            worst = max(seconds for _, seconds in about["hostile"].values())
            print(f"{_shown(name)}: {about['result']} {about['reason']} {worst:.1f} s", flush=True)
            if out:
                out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

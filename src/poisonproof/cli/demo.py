"""``poisonproof demo``: both methods on handwritten digits, without a download."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import poisonproof
from poisonproof.cli._options import JobsOption
from poisonproof.cli._screen import (
    check_folder,
    console,
    note,
    say,
    shares_table,
    spoken_warnings,
    verbosity,
    write_columns,
)
from poisonproof.exceptions import MissingExtraError, StoreError, needing
from poisonproof.files import write_bytes

if TYPE_CHECKING:
    from poisonproof.certificates.result import Certificates
    from poisonproof.evaluation.accuracy import Summary

POSITION = 10
EPILOG = "Example: poisonproof demo --out demo-output"
DIGITS = np.arange(10)


@dataclass(frozen=True)
class _Method:
    """One way to train, and how the demo speaks about it."""

    key: str
    title: str
    attack: str
    column: str
    members: str
    build: Callable[[], Any]


@dataclass(frozen=True)
class _Outcome:
    """What one method achieved on the test images."""

    method: _Method
    votes: NDArray[np.int16]
    certificates: Certificates
    summary: Summary
    seconds: float


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Directory for the curve and the results.")
    ] = Path("demo-output"),
    jobs: JobsOption = None,
) -> None:
    """Certify scikit-learn's handwritten digits against poisoned training data.

    Trains DPA (an attacker inserts and deletes training images) and SS-DPA (an attacker changes
    labels), prints how many test images provably keep their correct label, and writes the curves as
    a picture, and votes, certificates and figures as data.
    """
    from poisonproof.evaluation.accuracy import summarize

    check_folder(out)
    X_train, y_train, X_test, y_test = _digits()
    say(
        f"Handwritten digits: {len(X_train):,} images to train on, {len(X_test):,} to test. The "
        "attacker may poison the training images; the certificates say how many it takes."
    )
    outcomes = []
    for method in (_dpa(), _ss_dpa()):
        started = time.perf_counter()
        classifier = method.build().set_params(n_jobs=jobs, verbose=verbosity())
        with spoken_warnings():
            certificates = classifier.fit(X_train, y_train).certify(X_test, require_declared=True)
        outcome = _Outcome(
            method,
            classifier.set_params(verbose=0).votes(X_test),
            certificates,
            summarize(certificates, y_test),
            time.perf_counter() - started,
        )
        _show(outcome)
        outcomes.append(outcome)
    say(
        "",
        "Not proved: that a label is right, or anything about an attacker who changes the image "
        "that is being classified.",
    )
    _write(out, outcomes, y_test, len(X_train))


def _dpa() -> _Method:
    from sklearn.neighbors import KNeighborsClassifier

    return _Method(
        key="dpa",
        title="DPA, 50 members",
        attack="inserts or deletes any {} training images",
        column="Training images inserted or deleted",
        members="nearest neighbour",
        build=lambda: poisonproof.DPAClassifier(
            KNeighborsClassifier(n_neighbors=1), n_partitions=50, classes=DIGITS
        ),
    )


def _ss_dpa() -> _Method:
    from sklearn.manifold import Isomap
    from sklearn.neighbors import KNeighborsClassifier

    return _Method(
        key="ss-dpa",
        title="SS-DPA, 100 members",
        attack="changes the labels of any {} training images",
        column="Training images relabelled",
        members="nearest neighbour on features learned without labels",
        build=lambda: poisonproof.SSDPAClassifier(
            KNeighborsClassifier(n_neighbors=1),
            features=Isomap(n_neighbors=8, n_components=16, eigen_solver="dense"),
            n_partitions=100,
            classes=DIGITS,
        ),
    )


def _digits() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Split the digits by a hash of each image: no image decides where another one goes."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    digests = [hashlib.sha256(b"demo split" + image.tobytes()) for image in X.astype(np.uint8)]
    test = np.array([digest.digest()[0] % 4 == 0 for digest in digests])
    return X[~test], y[~test], X[test], y[test]


def _show(outcome: _Outcome) -> None:
    method, summary = outcome.method, outcome.summary
    say("", f"{method.title} ({method.members})")
    heads = (method.column, "Test images that stay correct")
    console().print(shares_table(heads, summary.sizes, summary.certified, summary.n_rows))
    if summary.median_radius:
        say(
            "At least half of the test images keep their correct label even if an attacker "
            f"{method.attack.format(summary.median_radius)}."
        )
    say(
        f"Without an attack {100 * summary.clean_accuracy:.1f} % are correct (a single member "
        f"alone: {100 * summary.base_accuracy:.1f} %). {outcome.seconds:.1f} s.",
        *(f"Assumed: {sentence}." for sentence in summary.threat.assumptions),
    )


def _write(out: Path, outcomes: list[_Outcome], y_test: NDArray[Any], n_train: int) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot write to {out}: {error.strerror or error}.") from error
    written = []
    for outcome in outcomes:
        key = outcome.method.key
        outcome.certificates.save(out / f"{key}-certificates.csv")
        arrays: dict[str, NDArray[Any]] = {
            "votes": outcome.votes,
            "classes": DIGITS,
            "truth": y_test,
        }
        write_columns(out / f"{key}-votes.npz", arrays)
        written += [f"{key}-certificates.csv", f"{key}-votes.npz"]
    write_bytes(out / "results.json", _results(outcomes, n_train))
    try:
        write_bytes(out / "curves.png", _curves(outcomes, y_test))
        written.insert(0, "curves.png")
    except MissingExtraError as error:
        note(f"no picture is drawn: {error}")
    say(
        "",
        f"Written to {out}: results.json, {', '.join(written)}.",
        "Next, with your own rows: poisonproof schema DATA.csv --label COLUMN --out schema.json",
    )


def _results(outcomes: list[_Outcome], n_train: int) -> bytes:
    results = {
        "command": "poisonproof demo",
        "version": poisonproof.__version__,
        "data": "scikit-learn digits",
        "n_train": n_train,
        "methods": {
            outcome.method.key: {
                "members": outcome.method.members,
                "seconds": round(outcome.seconds, 2),
                **outcome.summary.to_dict(),
            }
            for outcome in outcomes
        },
    }
    return json.dumps(results, indent=1).encode() + b"\n"


def _curves(outcomes: list[_Outcome], y_test: NDArray[Any]) -> bytes:
    with needing("matplotlib", "report"):
        from matplotlib.figure import Figure
    from poisonproof.evaluation.display import CertifiedAccuracyDisplay

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    axes = figure.subplots(1, len(outcomes), sharey=True)
    for ax, outcome in zip(axes, outcomes, strict=True):
        CertifiedAccuracyDisplay.from_certificates(
            outcome.certificates, y_test, name=outcome.method.title, ax=ax
        )
    figure.suptitle("Test digits that provably keep their correct label")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()

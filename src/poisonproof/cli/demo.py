"""``poisonproof demo``: both methods on handwritten digits, without a download."""

from __future__ import annotations

import hashlib
import io
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import poisonproof
from poisonproof.cli._app import JobsOption
from poisonproof.cli._screen import (
    check_folder,
    column_bytes,
    json_bytes,
    note,
    say,
    shares_table,
    spoken_warnings,
    verbosity,
)
from poisonproof.evaluation.accuracy import summarize
from poisonproof.evaluation.display import CertifiedAccuracyDisplay
from poisonproof.exceptions import MissingExtraError, needing
from poisonproof.files import write_bytes

EPILOG = "Example: poisonproof demo --out demo-output"
DIGITS = np.arange(10)


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
    from sklearn.manifold import Isomap
    from sklearn.neighbors import KNeighborsClassifier

    check_folder(out)
    X_train, y_train, X_test, y_test = _digits()
    say(
        f"Handwritten digits: {len(X_train):,} images to train on, {len(X_test):,} to test. The "
        "attacker may poison the training images; the certificates say how many it takes."
    )
    member = KNeighborsClassifier(n_neighbors=1)
    features = Isomap(n_neighbors=8, n_components=16, eigen_solver="dense")
    methods: dict[str, tuple[Any, str, str]] = {
        "dpa": (
            poisonproof.DPAClassifier(member, n_partitions=50, classes=DIGITS),
            "nearest neighbour",
            "inserts or deletes any {} training images",
        ),
        "ss-dpa": (
            poisonproof.SSDPAClassifier(member, features, n_partitions=100, classes=DIGITS),
            "nearest neighbour on features learned without labels",
            "changes the labels of any {} training images",
        ),
    }
    out.mkdir(parents=True, exist_ok=True)
    certified, results, written = {}, {}, ["results.json"]
    for key, (classifier, members, attack) in methods.items():
        started = time.perf_counter()
        classifier.set_params(n_jobs=jobs, verbose=verbosity())
        with spoken_warnings():
            certificates = classifier.fit(X_train, y_train).certify(X_test, require_declared=True)
        seconds = time.perf_counter() - started
        summary = summarize(certificates, y_test)
        title = f"{key.upper()}, {summary.n_members} members"
        heads = (summary.threat.plural.capitalize(), "Test images that stay correct")
        table = shares_table(heads, summary.sizes, summary.certified, summary.n_rows)
        say("", f"{title} ({members})", table)
        if summary.median_radius:
            say(
                "At least half of the test images keep their correct label even if an attacker "
                f"{attack.format(summary.median_radius)}."
            )
        say(
            f"Without an attack {100 * summary.clean_accuracy:.1f} % are correct (a single member "
            f"alone: {100 * summary.base_accuracy:.1f} %). {seconds:.1f} s.",
            *(f"Assumed: {sentence}." for sentence in summary.threat.assumptions),
        )
        certified[title] = certificates
        results[key] = {"members": members, "seconds": round(seconds, 2), **summary.to_dict()}
        votes = classifier.set_params(verbose=0).votes(X_test)
        columns = {"votes": votes, "classes": DIGITS, "truth": y_test}
        files = [f"{key}-certificates.csv", f"{key}-votes.npz"]
        certificates.save(out / files[0])
        write_bytes(out / files[1], column_bytes(out / files[1], columns))
        written += files
    origin = {"command": "poisonproof demo", "version": poisonproof.__version__}
    facts = {"data": "scikit-learn digits", "n_train": len(X_train), "methods": results}
    write_bytes(out / "results.json", json_bytes({**origin, **facts}))
    try:
        write_bytes(out / "curves.png", _curves(certified, y_test))
        written.append("curves.png")
    except MissingExtraError as error:
        note(f"no picture is drawn: {error}")
    say(
        "",
        "Not proved: that a label is right, or anything about an attacker who changes the image "
        "that is being classified.",
        "",
        f"Written to {out}: {', '.join(written)}.",
        "Next, with your own rows: poisonproof schema DATA.csv --label COLUMN --out schema.json",
    )


def _digits() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Split the digits by a hash of each image: no image decides where another one goes."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    digests = [hashlib.sha256(b"demo split" + image.tobytes()) for image in X.astype(np.uint8)]
    test = np.array([digest.digest()[0] % 4 == 0 for digest in digests])
    return X[~test], y[~test], X[test], y[test]


def _curves(certified: dict[str, Any], y_test: NDArray[Any]) -> bytes:
    with needing("matplotlib", "report"):
        from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    axes = figure.subplots(1, len(certified), sharey=True)
    for ax, (title, certificates) in zip(axes, certified.items(), strict=True):
        CertifiedAccuracyDisplay.from_certificates(certificates, y_test, name=title, ax=ax)
    figure.suptitle("Test digits that provably keep their correct label")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()

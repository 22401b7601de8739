"""``poisonproof demo``: handwritten digits, without a download."""

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
from poisonproof.certificates.result import Certificates
from poisonproof.cli._app import JobsOption
from poisonproof.cli._screen import (
    check_folder,
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


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Directory for the curve and the results.")
    ] = Path("demo-output"),
    jobs: JobsOption = None,
) -> None:
    """Certify scikit-learn's handwritten digits against poisoned training data.

    Trains DPA (an attacker inserts and deletes training images), prints how many test images
    provably keep their correct label, and writes the curve as a picture and the results as data.
    """
    from sklearn.neighbors import KNeighborsClassifier

    check_folder(out)
    X_train, y_train, X_test, y_test = _digits()
    say(
        f"Handwritten digits: {len(X_train):,} images to train on, {len(X_test):,} to test. The "
        "attacker may poison the training images; the certificates say how many it takes."
    )
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    member = KNeighborsClassifier(n_neighbors=1)
    classifier = poisonproof.DPAClassifier(member, n_partitions=50, classes=range(10))
    classifier.set_params(n_jobs=jobs, verbose=verbosity())
    with spoken_warnings():
        certificates = classifier.fit(X_train, y_train).certify(X_test, require_declared=True)
    seconds = time.perf_counter() - started
    summary = summarize(certificates, y_test)
    title = f"DPA, {summary.n_members} members"
    heads = (summary.threat.plural.capitalize(), "Test images that stay correct")
    table = shares_table(heads, summary.sizes, summary.certified, summary.n_rows)
    say("", f"{title} (nearest neighbour)", table)
    if summary.median_radius:
        say(
            "At least half of the test images keep their correct label even if an attacker inserts "
            f"or deletes any {summary.median_radius} training images."
        )
    say(
        f"Without an attack {100 * summary.clean_accuracy:.1f} % are correct (a single member "
        f"alone: {100 * summary.base_accuracy:.1f} %). {seconds:.1f} s.",
    )
    origin = {"command": "poisonproof demo", "version": poisonproof.__version__}
    facts = {"data": "scikit-learn digits", "n_train": len(X_train), "seconds": round(seconds, 2)}
    write_bytes(out / "results.json", json_bytes({**origin, **facts, **summary.to_dict()}))
    written = ["results.json"]
    try:
        write_bytes(out / "curve.png", _curve(certificates, y_test, title))
        written.append("curve.png")
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


def _curve(certificates: Certificates, y_test: NDArray[Any], title: str) -> bytes:
    with needing("matplotlib", "report"):
        from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    ax = figure.subplots()
    CertifiedAccuracyDisplay.from_certificates(certificates, y_test, name=title, ax=ax)
    figure.suptitle("Test digits that provably keep their correct label")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()

"""Command ``bench``: MNIST certified on the CPU, beside the paper's numbers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from poisonproof.cli._app import JobsOption, choose
from poisonproof.cli._screen import check_out, console, say, spoken_warnings, verbosity
from poisonproof.files import write_bytes

PUBLISHED = {1200: (95.85, 447), 3000: (93.36, 508)}
"""The paper's DPA rows on MNIST: clean accuracy in percent, median radius by its own definition."""


def bench(
    name: Annotated[str, typer.Argument(help="mnist or fashion-mnist.")] = "mnist",
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partitions", "-k", help="Number of members; may be repeated. [1200, 3000]"),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where imported datasets lie.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the figures as .json.")
    ] = None,
    jobs: JobsOption = None,
) -> None:
    """Certify MNIST on the CPU: all rows, all test images, in about a minute.

    Members are kernel ridge on orientation histograms; every choice was made on other data. The
    dataset is imported once with python -m poisonproof_research data.
    """
    from poisonproof_research.datasets.library import load_images

    dataset = choose("dataset", name, ["mnist", "fashion-mnist"])
    check_out(out, (".json",))
    images = load_images(dataset, cache=cache)
    say(
        f"{dataset}: {len(images.x_train):,} training images that may be poisoned, "
        f"{len(images.x_test):,} to certify."
    )
    rows = [_run(images, k, jobs) for k in partitions or [1200, 3000]]
    _show(rows, dataset == "mnist")
    if out is not None:
        write_bytes(out, json.dumps({"dataset": dataset, "runs": rows}, indent=1).encode())
        say(f"Written to {out}.")


def _run(images: Any, k: int, jobs: int | None) -> dict[str, Any]:
    from poisonproof.evaluation.accuracy import clean_accuracy, median_radius
    from poisonproof_research.methods.digits import digit_classifier

    started = time.perf_counter()
    classifier = digit_classifier(k, n_jobs=jobs, verbose=verbosity())
    with spoken_warnings():
        classifier.fit(images.x_train, images.y_train)
        certificates = classifier.certify(images.x_test, require_declared=True)
    return {
        "k": k,
        "clean_accuracy": round(float(clean_accuracy(certificates, images.y_test)), 4),
        "median_radius": median_radius(certificates, images.y_test),
        "seconds": round(time.perf_counter() - started, 1),
    }


def _show(rows: list[dict[str, Any]], published: bool) -> None:
    titles = ("Members", "Correct", "Median radius", "Seconds")
    table = Table(*titles, title="Training rows inserted or deleted")
    if published:
        table.add_column("Paper: correct")
        table.add_column("median radius")
    for row in rows:
        cells = [
            f"{row['k']:,}",
            f"{row['clean_accuracy']:.2%}",
            f"{row['median_radius']}",
            f"{row['seconds']}",
        ]
        if published:
            clean, median = PUBLISHED.get(row["k"], (None, None))
            cells += ["" if clean is None else f"{clean} %", "" if median is None else f"{median}"]
        table.add_row(*cells)
    console().print(table)
    say(
        "Half of the test images provably keep their correct label under any attack of the median "
        "radius. The paper prints its medians one larger, by another way of counting."
    )

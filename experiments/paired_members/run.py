"""Members that are pairs: the paper's network and kernel ridge on the same partition, one vote.

    poisonproof reproduce table1 --rows cifar10-dpa-50 --scores --device cuda --data PACK --out DIR
    python experiments/paired_members/run.py --data PACK --features FILE --scores DIR

FILE is that of ``experiments/signs/run.py``. Nothing is chosen; README.md says what is reported.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent / "signs"))
from colours import colours
from run import copies_of, histogram_of, mapped

from poisonproof.certificates import certify_scores, certify_votes
from poisonproof.frontier import Method, make_evidence, run_facts, write_method
from poisonproof.learners.closed_form import ScaledKernelClassifier
from poisonproof.reproduction import (
    RowData,
    data_from_pack,
    load_recipes,
    make_partitions,
    read_result,
)
from poisonproof.reproduction.scores import read_scores

ROW = "cifar10-dpa-50"


def seen(data: RowData, file: Path) -> tuple[Any, Any, Any]:
    """Return edges and colours of training images, of their mirror images and of test images."""
    train, test = mapped(data, file)
    (mirrored,) = copies_of(data)
    drawn = histogram_of(data.name).transform(np.moveaxis(mirrored, 1, -1))
    edges = (train, drawn, test)
    images = (data.x_train, mirrored, data.x_test)
    plain, turned, asked = (
        np.concatenate([rows, colours(some)], axis=1)
        for rows, some in zip(edges, images, strict=True)
    )
    return plain, turned, asked


def as_probabilities(scores: NDArray[Any]) -> NDArray[np.float32]:
    """Return regression on labels as shares: cut to 0 and 1, divided by the sum."""
    cut = np.clip(scores, 0.0, 1.0).astype(np.float32)
    total = cut.sum(axis=-1, keepdims=True)
    shares: NDArray[np.float32] = cut / np.where(total > 0, total, 1.0)
    return shares


def kernel_scores(data: RowData, file: Path, assignment: NDArray[Any], k: int) -> Any:
    """Return the scores of kernel ridge on every partition, shape (n, k, C)."""
    plain, turned, asked = seen(data, file)
    scores = np.empty((len(asked), k, data.n_classes), dtype=np.float32)
    for part in range(k):
        own = np.flatnonzero(assignment == part)
        rows = np.concatenate([plain[own], turned[own]])
        member = ScaledKernelClassifier().fit(rows, np.tile(data.y_train[own], 2))
        if len(member.classes_) != data.n_classes:
            raise SystemExit(f"partition {part} lacks a class")
        scores[:, part] = as_probabilities(member.decision_function(asked))
    return scores


def main() -> None:
    """Join the scores, certify both ways and write both down."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--scores", type=Path, required=True, help="--out of the run that made it")
    parser.add_argument("--out", type=Path, default=Path("experiments/frontier"))
    options = parser.parse_args()
    began = time.perf_counter()
    data, recipe = data_from_pack(options.data), load_recipes()[ROW]
    result = read_result(options.scores / ROW)
    n, k = result.votes.shape
    _, parts = make_partitions(recipe, data)
    network = read_scores(options.scores / ROW, n, k).astype(np.float32)
    kernel = kernel_scores(data, options.features, parts.assignment, k)
    pairs = (network + kernel) / 2
    votes = pairs.argmax(axis=2)
    for name, scores in (("networks", network), ("kernel ridge", kernel), ("pairs", pairs)):
        right = (scores.argmax(axis=2) == data.y_test[:, None]).mean()
        print(f"{name}: members {100 * right:.2f} % right", flush=True)
    found = {
        "dpa": certify_votes(votes, data.n_classes),
        "runoff": certify_scores(pairs, threat="insert_delete"),
    }
    facts = run_facts(data.y_train, {"fit and certify": time.perf_counter() - began})
    facts["member_percent"] = round(100 * float((votes == data.y_test[:, None]).mean()), 2)
    for kind, words in (("dpa", "DPA"), ("runoff", "run-off")):
        method = Method(
            f"{data.name}-{kind}-pairs-{k}",
            data.name,
            recipe.data.title,
            kind,
            f"{words}, pairs of network and kernel ridge, k = {k:,}",
            "the paper's networks, and default members on edges and colours, mirrored, too",
            "nothing (experiments/paired_members/README.md); k: the paper's",
            "python experiments/paired_members/run.py --data PACK --features FILE --scores DIR",
            replace(found[kind], classes=None),
            data.y_test,
            facts,
        )
        write_method(method, make_evidence(method.certificates), options.out)
        print(f"{method.id}: clean {100 * method.clean:.2f} %, median {method.median}", flush=True)


if __name__ == "__main__":
    main()

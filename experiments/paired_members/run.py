"""Members that are pairs: the paper's network and kernel ridge on the same partition, one vote.

    poisonproof reproduce table1 --rows cifar10-dpa-50 --scores --device cuda --data PACK --out DIR
    python experiments/paired_members/run.py --data PACK --features FILE --scores DIR

FILE is that of ``experiments/signs/run.py``; ``--row`` and ``--recipes`` name another row of
networks. Nothing is chosen; README.md says what is reported.
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

NETWORKS = {"nin": "network", "resnet10": "ResNet-10"}


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


def standardised(scores: NDArray[Any]) -> NDArray[np.float32]:
    """Return scores of mean 0 and deviation 1 over the classes, so that no model is louder."""
    centred = scores - scores.mean(axis=-1, keepdims=True)
    deviation = centred.std(axis=-1, keepdims=True)
    found: NDArray[np.float32] = centred / np.where(deviation > 0, deviation, 1.0)
    return found


def main() -> None:
    """Join the scores, certify and write everything down."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--row", default="cifar10-dpa-50", help="a row with networks")
    parser.add_argument("--recipes", type=Path, help="its recipes; by default the paper's")
    parser.add_argument("--scores", type=Path, required=True, help="--out of the run that made it")
    parser.add_argument("--out", type=Path, default=Path("experiments/frontier"))
    options = parser.parse_args()
    began = time.perf_counter()
    data, recipe = data_from_pack(options.data), load_recipes(options.recipes)[options.row]
    result = read_result(options.scores / recipe.id)
    n, k = result.votes.shape
    _, parts = make_partitions(recipe, data)
    network = read_scores(options.scores / recipe.id, n, k).astype(np.float32)
    kernel = kernel_scores(data, options.features, parts.assignment, k)
    pairs = {
        "pairs": ("pairs", (network + kernel) / 2),
        "equal-pairs": (
            "pairs of equal weight",
            (standardised(network) + standardised(kernel)) / 2,
        ),
    }
    for name, scores in (("networks", network), ("kernel ridge", kernel)):
        right = (scores.argmax(axis=2) == data.y_test[:, None]).mean()
        print(f"{name}: members {100 * right:.2f} % right", flush=True)
    for name, (words, scores) in pairs.items():
        votes = scores.argmax(axis=2)
        facts = run_facts(data.y_train, {"fit and certify": time.perf_counter() - began})
        facts["member_percent"] = round(100 * float((votes == data.y_test[:, None]).mean()), 2)
        print(f"{name}: members {facts['member_percent']:.2f} % right", flush=True)
        found = {
            "dpa": ("DPA", certify_votes(votes, data.n_classes)),
            "runoff": ("run-off", certify_scores(scores, threat="insert_delete")),
        }
        for kind, (rule, certificates) in found.items():
            network_title = NETWORKS[recipe.learner["network"]]
            method = Method(
                f"{recipe.id}-{kind}-{name}",
                data.name,
                recipe.data.title,
                kind,
                f"{rule}, {words}: {network_title} and kernel ridge, k = {k:,}",
                f"networks of {recipe.id}, and default members on edges and colours, mirrored, too",
                "nothing (experiments/paired_members/README.md)",
                "python experiments/paired_members/run.py --data PACK --features FILE "
                f"--row {recipe.id} --scores DIR",
                replace(certificates, classes=None),
                data.y_test,
                facts,
            )
            write_method(method, make_evidence(method.certificates), options.out)
            clean = 100 * method.clean
            print(f"{method.id}: clean {clean:.2f} %, median {method.median}", flush=True)


if __name__ == "__main__":
    main()

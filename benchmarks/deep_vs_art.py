"""The deep engine against ART's DeepPartitionEnsemble: digits, MLP 64-64-10, 50 members, CPU.

Both train the same network with the same optimiser for the same epochs on the same partitions
(pixel sum modulo 50), in one process, with the same number of threads: first one each, then two
each. Rounds alternate, times are by the wall clock, and every setting of ours that is not part of
the comparison is the default. ART is used as its documentation says. Install it first:

    pip install --no-deps adversarial-robustness-toolbox six tqdm
    python benchmarks/deep_vs_art.py --out results.json
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from poisonproof.estimators import DPAClassifier
from poisonproof.networks import TorchLearner
from poisonproof.partition import PixelSum

K, EPOCHS, BATCH, RATE = 50, 20, 128, 0.1
TRAIN = 1437  # 80 % of the digits; the rest are the test set
ROUNDS = 15


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds an action took, by the wall clock, and its result."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def our_model(threads: int) -> Any:
    """Return `DPAClassifier(TorchLearner("mlp"))`, not fitted; one stack for every thread."""
    learner = TorchLearner(
        "mlp", hidden=(64,), epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE,
        schedule="constant", weight_decay=0.0, nesterov=False, input_scale=1 / 16,
        normalize="none", stack_width=K // threads,
    )  # fmt: skip
    places = PixelSum(n_partitions=K)
    return DPAClassifier(
        learner, n_partitions=K, partitioner=places, classes=range(10), n_jobs=threads
    )


def art_model() -> Any:
    """Return ART's ensemble, not fitted."""
    from art.estimators.classification import DeepPartitionEnsemble, PyTorchClassifier

    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9)
    base = PyTorchClassifier(
        model=network, loss=nn.CrossEntropyLoss(), input_shape=(64,), nb_classes=10,
        optimizer=optimizer, clip_values=(0, 16), preprocessing=(0.0, 16.0),
    )  # fmt: skip
    return DeepPartitionEnsemble(
        classifiers=base, ensemble_size=K, channels_first=True, clip_values=(0, 16)
    )


def one_round(data: tuple[np.ndarray, ...], threads: int) -> dict[str, dict[str, float]]:
    """Fit and ask both once, one after the other; making the models is not timed."""
    X, y, X_test, y_test = data
    ours, art = our_model(threads), art_model()
    onehot = np.eye(10, dtype=np.float32)[y]
    our_fit, _ = seconds(lambda: ours.fit(X, y))
    art_fit, _ = seconds(lambda: art.fit(X, onehot, batch_size=BATCH, nb_epochs=EPOCHS))
    our_predict, labels = seconds(lambda: ours.predict(X_test))
    art_predict, scores = seconds(lambda: art.predict(X_test))
    return {
        "poisonproof": {
            "fit": our_fit,
            "predict": our_predict,
            "accuracy": float((labels == y_test).mean()),
        },
        "art": {
            "fit": art_fit,
            "predict": art_predict,
            "accuracy": float((scores.argmax(axis=1) == y_test).mean()),
        },
    }


def compare(data: tuple[np.ndarray, ...], threads: int) -> dict[str, Any]:
    """Run both in alternation; return medians and the spread of the ratios."""
    torch.set_num_threads(threads)
    one_round(data, threads)  # warm up imports and thread pools
    rounds = [one_round(data, threads) for _ in range(ROUNDS)]
    found: dict[str, Any] = {
        name: {key: float(np.median([r[name][key] for r in rounds])) for key in rounds[0][name]}
        for name in ("poisonproof", "art")
    }
    for step in ("fit", "predict"):
        ratios = [r["art"][step] / r["poisonproof"][step] for r in rounds]
        low, middle, high = np.quantile(ratios, [0.0, 0.5, 1.0])
        found[f"{step}_times_faster"] = {"min": low, "median": middle, "max": high}
    return found


def main() -> None:
    """Compare with one thread each and with two, and write both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X.astype(np.float32)[order], y[order]
    data = (X[:TRAIN], y[:TRAIN], X[TRAIN:], y[TRAIN:])
    found: dict[str, Any] = {
        "torch": torch.__version__, "rounds": ROUNDS, "load_average": os.getloadavg()[0],
        **{f"{threads} threads": compare(data, threads) for threads in (1, 2)},
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

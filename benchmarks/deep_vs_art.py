"""The deep engine against ART's DeepPartitionEnsemble: digits, MLP 64-64-10, 50 members, CPU.

Both train the same network with the same optimiser for the same epochs on the same partitions
(pixel sum modulo 50), in one process, with the same number of threads. ART is used as its
documentation says. Install it beside poisonproof first:

    pip install --no-deps adversarial-robustness-toolbox six tqdm
    python benchmarks/deep_vs_art.py --out results.json
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from poisonproof.engines.torch import TorchLearner
from poisonproof.estimators import DPAClassifier
from poisonproof.partition import PixelSum

K, EPOCHS, BATCH, RATE = 50, 20, 128, 0.1
TRAIN = 1437  # 80 % of the digits; the rest are the test set
REPEATS = 5


def median_seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """Run an action several times; return the median processor time and the last result.

    With one thread, processor time is what a clock shows on an idle machine.
    """
    times, result = [], None
    for _ in range(REPEATS):
        start = time.process_time()
        result = action()
        times.append(time.process_time() - start)
    return float(np.median(times)), result


def ours(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, threads: int) -> dict[str, Any]:
    """Time `DPAClassifier(TorchLearner("mlp"))`."""
    learner = TorchLearner(
        "mlp", hidden=(64,), epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE,
        schedule="constant", weight_decay=0.0, nesterov=False, input_scale=1 / 16,
        normalize="none", stack_width=K, threads=threads,
    )  # fmt: skip
    model = DPAClassifier(
        learner, n_partitions=K, partitioner=PixelSum(n_partitions=K), classes=range(10), n_jobs=1
    )
    fit, fitted = median_seconds(lambda: model.fit(X, y))
    predict, labels = median_seconds(lambda: fitted.predict(X_test))
    return {"fit_seconds": fit, "predict_seconds": predict, "labels": labels}


def art(X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> dict[str, Any]:
    """Time ART's ensemble."""
    from art.estimators.classification import DeepPartitionEnsemble, PyTorchClassifier

    def make() -> Any:
        network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9)
        base = PyTorchClassifier(
            model=network, loss=nn.CrossEntropyLoss(), input_shape=(64,), nb_classes=10,
            optimizer=optimizer, clip_values=(0, 16), preprocessing=(0.0, 16.0),
        )  # fmt: skip
        return DeepPartitionEnsemble(
            classifiers=base, ensemble_size=K, channels_first=True, clip_values=(0, 16)
        )

    def fit() -> Any:
        ensemble = make()
        ensemble.fit(X, np.eye(10, dtype=np.float32)[y], batch_size=BATCH, nb_epochs=EPOCHS)
        return ensemble

    setup, _ = median_seconds(make)
    seconds, ensemble = median_seconds(fit)
    predict, scores = median_seconds(lambda: ensemble.predict(X_test))
    return {
        "fit_seconds": seconds - setup,
        "predict_seconds": predict,
        "labels": scores.argmax(axis=1),
    }


def main() -> None:
    """Run both and write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    X_test, y_test = X[TRAIN:], y[TRAIN:]
    found: dict[str, Any] = {"threads": args.threads, "torch": torch.__version__}
    ours(X[:TRAIN], y[:TRAIN], X_test, args.threads)  # warm up imports and thread pools
    for name, result in (
        ("poisonproof", ours(X[:TRAIN], y[:TRAIN], X_test, args.threads)),
        ("art", art(X[:TRAIN], y[:TRAIN], X_test)),
    ):
        accuracy = float((result.pop("labels") == y_test).mean())
        found[name] = {**result, "accuracy": accuracy}
    for step in ("fit", "predict"):
        key = f"{step}_seconds"
        found[f"{step}_times_faster"] = found["art"][key] / found["poisonproof"][key]
    print(json.dumps(found, indent=1))
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

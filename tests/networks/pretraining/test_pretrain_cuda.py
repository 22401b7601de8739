"""Learned maps on a CUDA device; run with ``pytest -m gpu``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.datasets import load_digits

from poisonproof.networks import PRETRAINING, PretrainSpec, train_features
from poisonproof.networks.augmentation import Stream
from poisonproof.networks.pretraining.loop import RunLimits
from poisonproof.networks.pretraining.tasks import SimCLR, make_views

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch's compiler warns of itself: of what it imports, and of what could be faster.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return images of 28 x 28 bytes and their labels."""
    X, y = load_digits(return_X_y=True)
    coarse = (X * 15).astype(np.uint8).reshape(-1, 8, 8)
    return np.pad(coarse.repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2))), y


def specification(name: str, engine: str) -> PretrainSpec:
    known = {**PRETRAINING[name], "epochs": 3, "batch_size": 64}
    spec = PretrainSpec(**known, device="cuda", dtype="bfloat16", engine=engine)
    rate = 0.05 if spec.method == "rotnet" else 0.01
    return replace(spec, learning_rate=rate, warmup_epochs=0, milestones=(), map_rows=128)


def samples(spec: PretrainSpec, n: int) -> np.ndarray:
    channels, side = spec.input_shape[0], spec.input_shape[1]
    gray = np.pad(digits()[0][:n], ((0, 0), (0, side - 28), (0, side - 28)))
    return np.repeat(gray[:, None], channels, axis=1)


@pytest.mark.parametrize("engine", ["eager", "compiled"])
@pytest.mark.parametrize("name", ["rotnet", "simclr"])
def test_a_stopped_run_goes_on_to_the_same_bits(name, engine, tmp_path):
    spec = specification(name, engine)
    X = samples(spec, 256)
    whole = train_features(X, spec)
    for done in (1, 2):
        limits = RunLimits(stop_after=done)
        assert train_features(X[::-1], spec, folder=tmp_path, limits=limits) is None
    assert train_features(X, spec, folder=tmp_path).digest() == whole.digest()
    losses = [loss for loss, _ in whole.history]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["rotnet", "simclr"])
def test_features_of_an_image_do_not_depend_on_its_company(name):
    spec = specification(name, "eager")
    X = samples(spec, 200)
    frozen = train_features(X, replace(spec, epochs=1))
    together = frozen.transform(X)
    for row in (0, 130, 199):
        assert np.array_equal(frozen.transform(X[row : row + 1])[0], together[row])


def test_views_agree_on_cpu_and_cuda():
    spec = PretrainSpec(**PRETRAINING["simclr"])
    images = torch.from_numpy(samples(spec, 64))
    made = []
    for device in ("cpu", "cuda"):
        stream = Stream(3, torch.zeros(1, dtype=torch.int64, device=device))
        rows = torch.arange(64, device=device)
        draw = {p: stream.words(p, 5, rows)[0] for p in SimCLR.purposes}
        made.append(make_views(images.to(device), spec, draw, 1).cpu())
    assert torch.allclose(*made, atol=1e-4)

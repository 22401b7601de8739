"""Networks trained elsewhere: a fixed map, every image alone, by the declared file."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from poisonproof import DPAClassifier, NeighborVoteClassifier, SSDPAClassifier, load
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.features import NetworkFeatures, learns_nothing, networks, save_network
from poisonproof.features.network_files import file_digest, open_network
from poisonproof.learners.closed_form import RidgeClassifier

from .small_network import SmallNetwork, network_file


def images(n: int, side: int = 16, channels: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, side, side, channels), dtype=np.uint8)


@pytest.mark.parametrize("batch_size", [1, 64])
@pytest.mark.parametrize("mirrored", [False, True])
def test_neighbours_place_and_threads_change_no_bit(batch_size: int, mirrored: bool) -> None:
    X = images(120, side=40)
    network = network_file(side=64, batch_size=batch_size)
    features = NetworkFeatures(network, mirrored=mirrored).fit()
    mapped = features.transform(X)
    assert mapped.shape == (120, 24 * 16 * 16)
    assert mapped.dtype == np.float32
    assert len(np.unique(mapped[:, 5])) > 100
    order = np.random.default_rng(1).permutation(120)
    assert np.array_equal(features.transform(X[order]), mapped[order])
    assert np.array_equal(features.transform(X[7:8]), mapped[7:8])
    assert np.array_equal(features.transform(np.concatenate([images(5, 40), X]))[5:], mapped)
    threaded = NetworkFeatures(network, mirrored=mirrored, n_jobs=2)
    assert np.array_equal(threaded.transform(X), mapped)


def test_the_number_of_torch_threads_changes_no_bit_and_is_given_back() -> None:
    X, features = images(20, side=64), NetworkFeatures(network_file(side=64))
    before = torch.get_num_threads()
    mapped = features.transform(X)
    assert torch.get_num_threads() == before
    torch.set_num_threads(2)
    try:
        assert np.array_equal(features.transform(X), mapped)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_how_the_caller_has_set_torch_changes_no_bit() -> None:
    X, features = images(20, side=64), NetworkFeatures(network_file(side=64, batch_size=64))
    mapped = features.transform(X)
    torch.set_float32_matmul_precision("medium")
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            assert np.array_equal(features.transform(X), mapped)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")


def test_features_are_what_the_network_says() -> None:
    X = images(3)
    found = NetworkFeatures(network_file(), unit=False).transform(X)
    pixels = torch.from_numpy(X).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        expected = SmallNetwork().eval()((pixels - 127.0) / 64.0).flatten(1).numpy()
    assert np.allclose(found, expected, atol=1e-5)
    unit = NetworkFeatures(network_file()).transform(X)
    assert np.allclose(np.linalg.norm(unit, axis=1), 1.0)
    turned = NetworkFeatures(network_file(), mirrored=True).transform(X[:, :, ::-1])
    assert np.array_equal(turned, NetworkFeatures(network_file(), mirrored=True).transform(X))


def test_containers_and_layouts_of_equal_pixels_have_equal_features() -> None:
    X, features = images(4), NetworkFeatures(network_file(), image_shape=(16, 16, 3))
    mapped = features.transform(X)
    same: list[Any] = [X.reshape(4, -1), X.astype(float), np.asfortranarray(X), X.astype(int)]
    for other in same:
        assert np.array_equal(features.transform(other), mapped)


def test_gray_images_get_channels_and_others_are_refused() -> None:
    gray = images(2, channels=1)
    features = NetworkFeatures(network_file())
    assert np.array_equal(features.transform(gray), features.transform(gray.repeat(3, axis=3)))
    with pytest.raises(InvalidRowsError, match="3 channels, but X has 2"):
        features.transform(images(2, channels=2))


class Mixing(nn.Module):
    """What a row becomes depends on the rows beside it."""

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels - pixels.mean(dim=0, keepdim=True)


class Drawing(nn.Module):
    """Dropout that stays on."""

    def forward(self, pixels: Tensor) -> Tensor:
        return nn.functional.dropout(pixels, training=True)


class Counting(nn.Module):
    """A row changes what the next one becomes."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, pixels: Tensor) -> Tensor:
        self.seen.add_(1.0)
        return pixels + self.seen


def test_a_network_that_mixes_a_batch_is_refused(tmp_path: Path) -> None:
    save_network(Mixing(), tmp_path / "mix.pt2", image_shape=(3, 16, 16), batch_size=64)
    with pytest.raises(GuaranteeError, match="another place of a batch of 64"):
        NetworkFeatures(tmp_path / "mix.pt2").transform(images(2))
    save_network(Mixing(), tmp_path / "one.pt2", image_shape=(3, 16, 16))
    alone = NetworkFeatures(tmp_path / "one.pt2")
    assert np.array_equal(alone.transform(images(9))[3:4], alone.transform(images(9)[3:4]))


@pytest.mark.parametrize("activation", [nn.SiLU(), nn.GELU(), nn.Sigmoid()], ids=str)
def test_batches_that_end_within_a_vector_are_refused(
    activation: nn.Module, tmp_path: Path
) -> None:
    """The last image of such a batch has other features, which few of the images show."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 7, 3, padding=1), activation, nn.Conv2d(7, 9, 3, stride=2))
    network = nn.Sequential(layers, activation, nn.AdaptiveAvgPool2d(1))
    X = images(200, side=7)
    save_network(network, tmp_path / "ten.pt2", image_shape=(3, 7, 7), batch_size=10)
    with pytest.raises(GuaranteeError, match=r"batches of 10 images.*multiple of 64"):
        NetworkFeatures(tmp_path / "ten.pt2").transform(X)
    save_network(network, tmp_path / "full.pt2", image_shape=(3, 7, 7), batch_size=64)
    features = NetworkFeatures(tmp_path / "full.pt2")
    assert np.array_equal(features.transform(X)[1:], features.transform(X[1:]))


@pytest.mark.parametrize(
    ("network", "said"), [(Drawing(), "draws random numbers"), (Counting(), "changes network.seen")]
)
def test_a_network_that_is_no_fixed_map_is_refused(
    network: nn.Module, said: str, tmp_path: Path
) -> None:
    with pytest.raises(GuaranteeError, match=said):
        save_network(network, tmp_path / "n.pt2", image_shape=(3, 8, 8))
    assert not (tmp_path / "n.pt2").exists()
    example = (torch.zeros(1, 3, 8, 8),)
    torch.export.save(torch.export.export(network, example, strict=False), tmp_path / "own.pt2")
    with pytest.raises((GuaranteeError, InvalidInputError)):
        open_network(tmp_path / "own.pt2")


def test_a_network_in_training_mode_is_saved_in_evaluation_mode(tmp_path: Path) -> None:
    network = SmallNetwork().train()
    save_network(network, tmp_path / "n.pt2", image_shape=(3, 16, 16), shift=127.0, scale=64.0)
    assert network.training
    expected = NetworkFeatures(network_file()).transform(images(2))
    assert np.array_equal(NetworkFeatures(tmp_path / "n.pt2").transform(images(2)), expected)


class Ominous:
    """Unpickling it leaves a file behind."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.file,))


@pytest.mark.parametrize("place", ["data/sample_inputs/model.pt", "data/constants/opaque_obj_0"])
def test_no_pickle_in_a_network_file_is_opened(place: str, tmp_path: Path) -> None:
    file, mark = tmp_path / "evil.pt2", tmp_path / "ran"
    with zipfile.ZipFile(network_file()) as good, zipfile.ZipFile(file, "w") as evil:
        root = good.namelist()[0].partition("/")[0]
        for name in good.namelist():
            if name != f"{root}/{place}":
                evil.writestr(name, good.read(name))
        with evil.open(f"{root}/{place}", "w") as entry:
            torch.save((Ominous(mark),), entry)
    with pytest.raises(InvalidInputError, match="save_network"):
        open_network(file)
    assert not mark.exists()


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "evil.pt2"
    with zipfile.ZipFile(network_file()) as good, zipfile.ZipFile(file, "w") as evil:
        for name in good.namelist():
            data = good.read(name)
            if name.endswith("model_weights_config.json"):
                config = json.loads(data)
                next(iter(config["config"].values()))["use_pickle"] = True
                data = json.dumps(config).encode()
            evil.writestr(name, data)
    with pytest.raises(InvalidInputError, match="pickled weights"):
        open_network(file)


def test_what_is_no_network_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.pt2").write_text("no network")
    with pytest.raises(InvalidInputError, match=r"is not a \.pt2 file"):
        NetworkFeatures(tmp_path / "text.pt2").fit()
    with pytest.raises(InvalidInputError, match="Cannot read the network"):
        NetworkFeatures(tmp_path / "none.pt2").fit()
    with pytest.raises(InvalidInputError, match="save_network"):
        NetworkFeatures(SmallNetwork()).fit()  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"written to a \.pt2 file"):
        save_network(SmallNetwork(), tmp_path / "n.pt", image_shape=(3, 16, 16))


def test_another_file_is_noticed_after_saving_and_loading(tmp_path: Path) -> None:
    file = tmp_path / "network.pt2"
    shutil.copy(network_file(), file)
    assert learns_nothing(NetworkFeatures(file))
    X, y = images(60), np.arange(60) % 2
    classifiers: list[Any] = [
        DPAClassifier(RidgeClassifier(), 5, features=NetworkFeatures(file), classes=[0, 1]),
        SSDPAClassifier(RidgeClassifier(), NetworkFeatures(file), 5, classes=[0, 1]),
        NeighborVoteClassifier(NetworkFeatures(file), 0.5, classes=[0, 1]),
    ]
    for number, classifier in enumerate(classifiers):
        classifier.fit(X, y).save(tmp_path / f"model-{number}")
        again = load(tmp_path / f"model-{number}")
        assert np.array_equal(again.certify(X).radius, classifier.certify(X).radius)
    shutil.copy(network_file(seed=1), file)
    for number in range(len(classifiers)):
        with pytest.raises(GuaranteeError, match="not the one that was declared"):
            load(tmp_path / f"model-{number}").predict(X)
    with pytest.raises(GuaranteeError, match="not the one that was declared"):
        NetworkFeatures(file, digest=file_digest(network_file())).transform(X)


def test_kept_features_are_the_computed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = images(300)
    fresh = NetworkFeatures(network_file()).transform(X)
    keeping = NetworkFeatures(network_file(), cache=tmp_path / "kept")
    assert np.array_equal(keeping.transform(X[:280]), fresh[:280])
    runs: list[int] = []
    original = NetworkFeatures._batch

    def counted(self: Any, program: Any, batch: Any) -> Any:
        runs.append(len(batch))
        return original(self, program, batch)

    monkeypatch.setattr(networks.NetworkFeatures, "_batch", counted)
    assert np.array_equal(keeping.transform(X[::-1]), fresh[::-1])
    assert len(runs) == 20
    (file,) = (tmp_path / "kept").iterdir()
    with sqlite3.connect(file) as opened:
        opened.execute("UPDATE vectors SET vector = zeroblob(length(vector))")
    opened.close()
    assert np.array_equal(keeping.transform(X[:30]), fresh[:30])
    assert len(runs) == 50
    file.write_bytes(b"damaged")
    assert np.array_equal(keeping.transform(X[:30]), fresh[:30])
    other = NetworkFeatures(network_file(), cache=tmp_path / "kept", mirrored=True)
    assert not np.array_equal(other.transform(X[:30]), fresh[:30])

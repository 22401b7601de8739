"""Networks trained elsewhere: a fixed map, every image alone, by the declared file."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import warnings
import zipfile
from collections.abc import Callable
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
from poisonproof.features.network_files import OPERATORS, open_network, pinned
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.strict import decode_tensors, encode_tensors

from .small_network import SmallNetwork, network_file


def images(n: int, side: int = 16, channels: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, side, side, channels), dtype=np.uint8)


@pytest.mark.parametrize("mirrored", [False, True])
def test_neighbours_place_and_threads_change_no_bit(mirrored: bool) -> None:
    X = images(120, side=40)
    network = network_file(side=64)
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
    X, features = images(20, side=64), NetworkFeatures(network_file(side=64))
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


def test_a_network_that_would_mix_a_batch_sees_every_image_alone(tmp_path: Path) -> None:
    save_network(Mixing(), tmp_path / "one.safetensors", image_shape=(3, 16, 16))
    alone = NetworkFeatures(tmp_path / "one.safetensors")
    assert np.array_equal(alone.transform(images(9))[3:4], alone.transform(images(9)[3:4]))


@pytest.mark.parametrize(
    ("network", "said"), [(Drawing(), "draws random numbers"), (Counting(), "changes network.seen")]
)
def test_a_network_that_is_no_fixed_map_is_refused(
    network: nn.Module, said: str, tmp_path: Path
) -> None:
    with pytest.raises(GuaranteeError, match=said):
        save_network(network, tmp_path / "n.safetensors", image_shape=(3, 8, 8))
    assert not (tmp_path / "n.safetensors").exists()


def test_a_network_in_training_mode_is_saved_in_evaluation_mode(tmp_path: Path) -> None:
    network = SmallNetwork().train()
    save_network(
        network, tmp_path / "n.safetensors", image_shape=(3, 16, 16), shift=127.0, scale=64.0
    )
    assert network.training
    expected = NetworkFeatures(network_file()).transform(images(2))
    assert np.array_equal(
        NetworkFeatures(tmp_path / "n.safetensors").transform(images(2)), expected
    )


def forged(file: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """Write a network whose graph or arrays someone has changed."""
    arrays, about = decode_tensors(network_file().read_bytes(), "network")
    graph = json.loads(about["network"])
    change(graph, arrays)
    file.write_bytes(encode_tensors(arrays, {"network": json.dumps(graph)}))
    return file


class Ominous:
    """Unpickling it leaves a file behind."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.file,))


@pytest.mark.parametrize("copies", range(9))
def test_no_code_in_a_file_of_torch_export_is_run(copies: int, tmp_path: Path) -> None:
    """What `zipfile` finds under a name is not what torch finds, so checking does not help."""
    file, mark, pickled = tmp_path / "evil.pt2", tmp_path / "ran", io.BytesIO()
    example = (torch.zeros(1, 3, 16, 16),)
    torch.save((Ominous(mark),), pickled)
    torch.export.save(torch.export.export(SmallNetwork().eval(), example, strict=False), file)
    with zipfile.ZipFile(file) as good:
        contents = {name: good.read(name) for name in good.namelist()}
    (place,) = (name for name in contents if name.endswith("data/sample_inputs/model.pt"))
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as evil:
        warnings.simplefilter("ignore", UserWarning)
        for name, content in contents.items():
            for _ in range(copies if name == place else 0):
                evil.writestr(name, pickled.getvalue())
            evil.writestr(name, content)
    with pytest.raises(InvalidInputError, match="not a network file"):
        NetworkFeatures(file).transform(images(2))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (["from_file.default", ["none"], {}], "no network may use"),
        (["as_strided.default", [{"value": 0}, [9], [999]], {}], "no network may use"),
        (["rand_like.default", [{"value": 0}], {}], "no network may use"),
        (["relu_.default", [{"value": 0}], {}], "no network may use"),
        (["relu.default", [{"value": 99}], {}], "refers to nothing before it"),
        (["relu.default", [{"array": "none"}], {}], "refers to nothing before it"),
        (["relu.default", ["/etc/passwd"], {}], "not a keyword"),
        (["relu.default", [{"value": 0}], {"out": {"value": 0}}], "does not take"),
        (["relu.default", [[[[[1]]]]], {}], "an argument is a number"),
        (["getitem", [{"value": 0}, "none"], {}], "a result and a number"),
        (["full.default", [[2**40], 1.0], {}], "numbers"),
        (["repeat.default", [{"value": 0}, [2**20] * 4], {}], "cannot run"),
        (["dropout.default", [{"value": 0}, 0.5, True], {}], "may draw random numbers"),
        (["dropout.default", [{"value": 0}, 0.5, 1], {}], "may draw random numbers"),
        (["relu.default", [2**64], {}], "64 bits"),
        (["reflection_pad2d.default", [{"value": 0}, [1, -1, 0, 0]], {}], "no negative"),
    ],
)
def test_an_operation_that_is_not_known_to_be_harmless_is_refused(
    node: list[Any], said: str, tmp_path: Path
) -> None:
    def change(graph: dict[str, Any], arrays: dict[str, Any]) -> None:
        graph["nodes"].insert(0, node)

    with pytest.raises((InvalidInputError, GuaranteeError), match=said):
        open_network(forged(tmp_path / "n.safetensors", change))


def test_arrays_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    for name in decode_tensors(network_file().read_bytes(), "network")[0]:

        def shorten(graph: dict[str, Any], arrays: dict[str, Any], name: str = name) -> None:
            arrays[name] = arrays[name][:-1]

        if name not in ("b_shift", "b_scale"):  # one number for all channels, or none
            with pytest.raises(InvalidInputError, match="cannot run"):
                NetworkFeatures(forged(tmp_path / "n.safetensors", shorten)).transform(images(1))


def test_a_network_that_says_two_things_is_refused(tmp_path: Path) -> None:
    data = network_file().read_bytes()
    text = b'\\"version\\":1'
    assert data.count(text) == 1
    doubled = data.replace(text, text + b"," + text)
    size = int.from_bytes(data[:8], "little") + len(doubled) - len(data)
    (tmp_path / "n.safetensors").write_bytes(size.to_bytes(8, "little") + doubled[8:])
    with pytest.raises(InvalidInputError, match="appears twice"):
        open_network(tmp_path / "n.safetensors")


def test_no_operator_in_the_list_writes_draws_or_names_memory() -> None:
    for name in OPERATORS:
        base, _, overload = name.partition(".")
        function = getattr(getattr(torch.ops.aten, base), overload)
        assert not function._schema.is_mutable
        allowed = {"dropout", "feature_dropout", "scaled_dot_product_attention"}
        assert torch.Tag.nondeterministic_seeded not in function.tags or base in allowed
        assert "storage" not in str(function._schema).lower()


class Attending(nn.Module):
    """What networks of today are made of, and operations in place."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.patches = nn.Conv2d(3, 32, 4, 4)
            self.norms = nn.ModuleList([nn.BatchNorm2d(32), nn.GroupNorm(4, 32), nn.LayerNorm(32)])
            self.first = nn.Parameter(torch.randn(1, 1, 32))
            self.qkv, self.more = nn.Linear(32, 96), nn.Linear(32, 64)
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
        self.register_buffer("places", torch.arange(17).flip(0))

    def forward(self, pixels: Tensor) -> Tensor:
        x = nn.functional.silu(self.norms[0](self.patches(pixels)), inplace=True)
        x += self.norms[1](x) * x.mean((2, 3), keepdim=True).sigmoid()
        x = torch.roll(x, (1, 1), (2, 3)).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)[:, self.places]
        q, k, v = self.qkv(x).reshape(len(x), -1, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        a, b = self.more(self.norms[2](x)).chunk(2, -1)
        return self.layer(x + a * b.masked_fill(b < 0, -9.0).softmax(-1))[:, 0].clone()


@pytest.mark.parametrize("network", [SmallNetwork(), Attending()], ids=["small", "attention"])
def test_a_written_network_has_the_bits_of_the_exported_one(
    network: nn.Module, tmp_path: Path
) -> None:
    file = tmp_path / "n.safetensors"
    save_network(network, file, image_shape=(3, 16, 16), shift=0.0, scale=1.0)
    program = torch.export.export(network.eval(), (torch.zeros(1, 3, 16, 16),), strict=False)
    pixels = torch.from_numpy(images(4)).permute(0, 3, 1, 2).float()
    with torch.inference_mode(), pinned():
        for place, image in enumerate(pixels[:, None]):
            if place % 2:
                image = image.contiguous(memory_format=torch.channels_last)  # noqa: PLW2901
            expected = program.module()(image).flatten(1)
            assert torch.equal(open_network(file).run(image), expected)


def test_an_operation_that_no_file_may_hold_is_named(tmp_path: Path) -> None:
    class Sorting(nn.Module):
        def forward(self, pixels: Tensor) -> Tensor:
            return pixels.sort().values

    with pytest.raises(InvalidInputError, match=r"aten\.sort"):
        save_network(Sorting(), tmp_path / "n.safetensors", image_shape=(3, 16, 16))


def test_what_is_no_network_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.safetensors").write_text("no network")
    with pytest.raises(InvalidInputError, match="is not a network file"):
        NetworkFeatures(tmp_path / "text.safetensors").fit()
    with pytest.raises(InvalidInputError, match="Cannot read the network"):
        NetworkFeatures(tmp_path / "none.safetensors").fit()
    with pytest.raises(InvalidInputError, match="save_network"):
        NetworkFeatures(SmallNetwork()).fit()  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"written to a \.safetensors file"):
        save_network(SmallNetwork(), tmp_path / "n.pt", image_shape=(3, 16, 16))


def test_another_file_is_noticed_after_saving_and_loading(tmp_path: Path) -> None:
    file = tmp_path / "network.safetensors"
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
        NetworkFeatures(file, digest=open_network(network_file()).digest).transform(X)


def test_kept_features_are_the_computed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = images(300)
    fresh = NetworkFeatures(network_file()).transform(X)
    keeping = NetworkFeatures(network_file(), cache=tmp_path / "kept")
    assert np.array_equal(keeping.transform(X[:280]), fresh[:280])
    runs: list[int] = []
    original = NetworkFeatures._alone

    def counted(self: Any, program: Any, row: Any) -> Any:
        runs.append(1)
        return original(self, program, row)

    monkeypatch.setattr(networks.NetworkFeatures, "_alone", counted)
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

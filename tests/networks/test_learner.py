"""TorchLearner: the scikit-learn contract, bad input, members that fail."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

from poisonproof.estimators import DPAClassifier
from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.networks import TorchLearner, device
from poisonproof.networks.batches import as_samples, input_shape
from poisonproof.networks.ensemble import restore_members
from tests.networks.partitions import partitioned, random_parts


def small_module():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))


def dropout_module():
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))


def norm_module():
    return nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y


@pytest.fixture(scope="module")
def parts(digits):
    X, y = digits
    return [(X[i::20], y[i::20]) for i in range(6)]


def members(learner, parts, **options):
    return learner.fit_members(partitioned(parts, (64,)), range(len(parts)), 10, 0, **options)


def test_clone_and_parameters_round_trip():
    learner = TorchLearner("mlp", hidden=(32, 16), augmentation={"crop": 2}, epochs=3)
    assert clone(learner).get_params() == learner.get_params()


def test_fits_alone_like_any_classifier(digits):
    X, y = digits
    names = np.array([f"digit {i}" for i in range(10)])
    model = TorchLearner("mlp", epochs=20, schedule="cosine").fit(X[:900], names[y[:900]])
    assert model.score(X[900:], names[y[900:]]) > 0.85
    assert np.allclose(model.predict_proba(X[:5]).sum(axis=1), 1.0, atol=1e-5)


def test_votes_inside_dpa_classifier_and_update_equals_fit(digits):
    X, y = digits
    learner = TorchLearner("linear", epochs=5, stack_width=8)
    model = DPAClassifier(learner, n_partitions=8, classes=range(10)).fit(X[:800], y[:800])
    again = DPAClassifier(learner, n_partitions=8, classes=range(10)).fit(X[:801], y[:801])
    model.update(add=(X[800:801], y[800:801]))
    assert model.ensemble_.digests() == again.ensemble_.digests()
    assert model.votes(X[900:950]).shape == (50, 8)


@pytest.mark.parametrize("network", ["linear", "mlp"])
def test_stacked_and_single_execution_train_the_same_function(parts, network):
    # Other shapes, so other bits; but the same law up to rounding.
    stacked = members(TorchLearner(network, epochs=10), parts)
    single = members(TorchLearner(network, epochs=10, execution="single"), parts)
    for one, other in zip(stacked.members, single.members, strict=True):
        for name in one.tensors:
            assert np.allclose(one.tensors[name], other.tensors[name], atol=2e-4)


def test_dropout_of_a_users_module_draws_from_the_members_own_stream(parts):
    learner = TorchLearner(dropout_module, epochs=2)
    everyone = members(learner, parts).digests()
    data = partitioned(parts, (64,))
    torch.manual_seed(99)
    assert learner.fit_members(data, [3, 1], 10, 0).digests() == [everyone[3], everyone[1]]


@pytest.mark.parametrize("network", [dropout_module, "mlp"])
def test_processes_only_schedule(parts, network):
    learner = TorchLearner(network, execution="single", epochs=2)
    here = members(learner, parts, n_jobs=1)
    assert members(learner, parts, n_jobs=2).digests() == here.digests()


def test_a_member_that_fails_in_a_process_abstains_alone(parts):
    few = [(parts[0][0][:1], parts[0][1][:1]), *parts[1:3]]
    ensemble = members(TorchLearner(norm_module, epochs=1), few, n_jobs=2)
    assert list(ensemble.failures()) == [0]


def test_a_member_whose_module_raises_abstains_and_the_rest_go_on(parts):
    # Batch norm over one row raises in torch.
    few = [(parts[0][0][:1], parts[0][1][:1]), *parts[1:3]]
    ensemble = members(TorchLearner(norm_module, epochs=1), few)
    assert list(ensemble.failures()) == [0]
    votes = ensemble.votes(parts[0][0])
    assert (votes[:, 0] == -1).all()
    assert (votes[:, 1:] >= 0).all()


@pytest.mark.parametrize("execution", ["stacked", "single"])
def test_a_member_with_nan_loss_abstains_and_the_rest_keep_their_bits(parts, execution):
    learner = TorchLearner("mlp", epochs=3, execution=execution)
    good = members(learner, parts)
    poisoned = [*parts]
    poisoned[2] = (np.full_like(parts[2][0], np.nan), parts[2][1])
    bad = members(learner, poisoned)
    assert list(bad.failures()) == [2]
    assert "TrainingDiverged" in bad.failures()[2]
    same = [a == b for a, b in zip(good.digests(), bad.digests(), strict=True)]
    assert same == [True, True, False, True, True, True]


def test_empty_partitions_abstain_without_a_failure(parts):
    empty = (np.zeros((0, 64)), np.zeros(0, dtype=np.int64))
    ensemble = members(TorchLearner("linear", epochs=1), [parts[0], empty])
    assert ensemble.failures() == {}
    assert (ensemble.votes(parts[0][0])[:, 1] == -1).all()


def test_scores_give_the_votes(parts):
    ensemble = members(TorchLearner("mlp", epochs=3), parts)
    X = parts[0][0]
    assert np.array_equal(ensemble.scores(X).argmax(axis=2), ensemble.votes(X))


def test_export_and_restore_keep_digests(parts):
    ensemble = members(TorchLearner("mlp", epochs=1), parts)
    assert restore_members(*ensemble.export()).digests() == ensemble.digests()


def test_cuda_asked_but_absent_is_said(parts):
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(InvalidInputError, match="no CUDA device"):
        members(TorchLearner("mlp", device="cuda"), parts)


def test_instructions_that_were_withheld_are_part_of_the_fingerprint(monkeypatch):
    spec = TorchLearner("mlp").resolve((4,), 2)
    names = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "MKL_CBWR")
    monkeypatch.delenv(names[0], raising=False)
    before = device.fingerprint(spec)
    for name in names:
        with monkeypatch.context() as patch:
            patch.setenv(name, "AVX2")
            assert device.fingerprint(spec) == {**before, name: "AVX2"}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"network": "vgg"}, "network must be one of"),
        ({"network": lambda: None}, "no import path"),
        ({"network": "nin"}, "needs images"),
        ({"dtype": "bfloat16"}, "needs device='cuda'"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"augmentation": "blur"}, "augmentation must be"),
        ({"augmentation": "crop"}, "needs images"),
        ({"image_shape": (1, 7, 7)}, "does not fit samples"),
        ({"schedule": "linear"}, "schedule must be one of"),
        ({"execution": "fused"}, "execution='fused' is for network in"),
        ({"network": "resnet10", "image_shape": (1, 8, 8), "execution": "stacked"}, "stacked"),
    ],
)
def test_wrong_parameters_are_named(parts, params, message):
    with pytest.raises(InvalidInputError, match=message):
        members(TorchLearner(**params), parts)


def test_samples_of_another_width_are_refused(parts):
    ensemble = members(TorchLearner("linear", epochs=1), parts)
    with pytest.raises(InvalidRowsError, match=r"samples of shape \(64,\)"):
        ensemble.votes(np.zeros((2, 63)))


def test_dtype_and_container_of_the_rows_do_not_matter():
    parts = random_parts([20, 30], (64,))
    wide = [(X.astype(np.float64), y) for X, y in parts]
    learner = TorchLearner("linear", epochs=2)
    assert members(learner, parts).digests() == members(learner, wide).digests()


def test_resnet_and_strong_augmentation_train():
    parts = random_parts([12, 9], (3, 16, 16))
    learner = TorchLearner(
        "resnet10",
        width=8,
        epochs=1,
        augmentation="strong",
        mixup=0.2,
        learning_rate=1e-3,
        schedule="cosine",
        warmup_epochs=1,
    )
    data = partitioned(parts, (3, 16, 16))
    ensemble = learner.fit_members(data, [0, 1], 10, 0, n_jobs=2)
    assert ensemble.failures() == {}
    assert ensemble.digests() == learner.fit_members(data, [0, 1], 10, 0).digests()


def test_images_with_channels_last_are_refused_and_not_scrambled() -> None:
    X = np.random.default_rng(0).random((6, 8, 8, 3)).astype(np.float32)
    with pytest.raises(InvalidInputError, match="channels first"):
        input_shape(X, (3, 8, 8))
    assert input_shape(np.moveaxis(X, -1, 1), (3, 8, 8)) == (3, 8, 8)
    assert input_shape(X[..., :1], (1, 8, 8)) == (1, 8, 8)  # one channel: only unpacked
    assert input_shape(X.reshape(6, -1), (3, 8, 8)) == (3, 8, 8)
    spec = TorchLearner("resnet10", image_shape=(3, 8, 8)).resolve((3, 8, 8), 2)
    with pytest.raises(InvalidRowsError, match="channels first"):
        as_samples(X, spec)
    assert as_samples(X.reshape(6, -1), spec).shape == (6, 3, 8, 8)
    flat = TorchLearner("linear").resolve((192,), 2)
    assert as_samples(X, flat).shape == (6, 192)

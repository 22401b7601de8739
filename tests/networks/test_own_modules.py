"""Users' modules: none of their habits carries anything from one member to another."""

from __future__ import annotations

import importlib
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.datasets import load_digits

from poisonproof.estimators import DPAClassifier, load
from poisonproof.exceptions import GuaranteeError, InvalidInputError, StoreError
from poisonproof.networks import TorchLearner
from tests.networks import own_networks as own
from tests.networks.partitions import partitioned, random_parts

OPTIONS = {"epochs": 3, "batch_size": 32, "learning_rate": 0.05, "normalize": "none"}
LAWFUL = {
    None: [
        own.Plain,
        own.DrawsWithPython,
        own.DrawsWithNumpy,
        own.BeginsWithNumpy,
        own.DropsAlways,
        own.KeepsHalves,
        own.WorksInPlace,
        own.RemembersWhatItIsAsked,
        own.CountsSteps,
        own.HiddenMean,
        own.PositionTable,
        own.TurnsOneDNNOff,
    ],
    "graph": [own.Plain, own.BeginsWithNumpy, own.KeepsHalves, own.WorksInPlace, own.PositionTable,
              own.Recurrent],
}  # fmt: skip
REFUSED = [own.DrawsWithPython, own.DrawsWithNumpy, own.DropsAlways, own.CountsSteps,
           own.HiddenMean, own.RemembersWhatItIsAsked]  # fmt: skip
PAIRS = [(execution, factory) for execution in LAWFUL for factory in LAWFUL[execution]]


def learner(factory, execution=None, **changes):
    return TorchLearner(factory, execution=execution, **{**OPTIONS, **changes})


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def attack(model, X):
    """Return rows that fall into the first partition: it trains longer, and then fails to vote."""
    draw = np.random.default_rng(0)
    rows = np.clip(X[draw.integers(0, len(X), 2000)] + draw.integers(0, 2, (2000, 64)) / 16, 0, 1)
    return rows[model.partitioner_.assign(rows) == 0][:35]


@pytest.mark.parametrize(("execution", "factory"), PAIRS)
def test_an_attack_on_one_partition_changes_no_other_member_and_no_certified_prediction(
    digits, execution, factory
):
    (X, y), k = digits, 12
    model = DPAClassifier(learner(factory, execution, stack_width=4), k, classes=range(10))
    before = model.fit(X[:900], y[:900])
    votes, certificates = before.votes(X[900:]), before.certify(X[900:])
    digests = before.ensemble_.digests()
    rows = attack(before, X)
    after = model.fit(np.concatenate([X[:900], rows]), np.append(y[:900], np.zeros(len(rows), int)))
    changed = np.array(digests) != np.array(after.ensemble_.digests())
    assert np.flatnonzero(changed).tolist() == [0]
    assert not (votes != after.votes(X[900:]))[:, 1:].any()
    turned = certificates.labels != after.certify(X[900:]).labels
    assert not (turned & (certificates.radius >= 1)).any()


@pytest.mark.parametrize(("execution", "factory"), PAIRS)
def test_a_member_that_falls_silent_moves_no_other_vote(execution, factory):
    parts = [(x / 255, y) for x, y in random_parts((40, 33, 50), (64,))]
    X = random_parts([30], (64,), seed=1)[0][0] / 255
    maker = learner(factory, execution, stack_width=1)
    before = maker.fit_members(partitioned(parts, (64,)), range(3), 10, 0)
    parts[0] = np.full_like(parts[0][0], np.inf), parts[0][1]
    after = maker.fit_members(partitioned(parts, (64,)), range(3), 10, 0)
    assert list(after.failures()) == [0]
    assert before.digests()[1:] == after.digests()[1:]
    assert np.array_equal(before.scores(X)[:, 1:], after.scores(X)[:, 1:], equal_nan=True)


@pytest.mark.parametrize("factory", LAWFUL[None])
def test_processes_and_repeated_questions_only_schedule(factory):
    parts = [(x / 255, y) for x, y in random_parts((40, 33), (64,))]
    X = random_parts([30], (64,), seed=1)[0][0] / 255
    one, two = (
        learner(factory).fit_members(partitioned(parts, (64,)), range(2), 10, 0, n_jobs=n_jobs)
        for n_jobs in (1, 2)
    )
    assert one.digests() == two.digests()
    assert np.array_equal(one.scores(X), two.scores(X), equal_nan=True)
    assert np.array_equal(one.scores(X), one.scores(X), equal_nan=True)


@pytest.mark.parametrize("factory", REFUSED)
def test_what_members_in_one_module_would_share_is_refused(factory):
    parts = random_parts([20], (64,))
    with pytest.raises(InvalidInputError, match=r"random|writes to .*Use execution='single'"):
        learner(factory, "graph").fit_members(partitioned(parts, (64,)), [0], 10, 0)


@pytest.mark.parametrize("execution", [None, "graph"])
@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (own.one_for_all, "another's weights"),
        (own.SharedHead, "another's weights"),
        (own.RandomAttribute, "register_buffer"),
        (own.UnregisteredLayers, "register_buffer"),
    ],
)
def test_a_module_that_members_would_share_or_lose_is_refused(execution, factory, reason):
    parts = random_parts([20], (64,))
    with pytest.raises(GuaranteeError, match=reason):
        learner(factory, execution).fit_members(partitioned(parts, (64,)), [0], 10, 0)


def test_global_streams_are_left_as_they_were():
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    before = torch.get_rng_state().clone(), np.random.get_state()[1].copy()  # noqa: NPY002
    parts = random_parts([20], (64,))
    ensemble = learner(own.DrawsWithNumpy).fit_members(partitioned(parts, (64,)), [0], 10, 0)
    ensemble.votes(parts[0][0])
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_a_warnings_filter_silences_no_member():
    parts = random_parts([20, 9], (64,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        here = learner(own.Warns).fit_members(partitioned(parts, (64,)), range(2), 10, 0)
        here.votes(parts[0][0])
    assert not here.failures()
    away = learner(own.Warns).fit_members(partitioned(parts, (64,)), range(2), 10, 0, n_jobs=2)
    assert here.digests() == away.digests()


def test_a_module_without_memory_stops_training_instead_of_falling_silent():
    """Its neighbours may have taken the memory, so it says nothing about the partition."""
    parts = [(x / 255, y) for x, y in random_parts([20, 9], (64,))]
    parts[1] = np.ones_like(parts[1][0]), parts[1][1]
    with pytest.raises(RuntimeError, match="allocate memory"):
        learner(own.TakesAllMemory).fit_members(partitioned(parts, (64,)), range(2), 10, 0)


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (own.takes_images, r"batch of shape \(4, 64\).*image_shape=\(channels, height, width\)"),
        (own.three_scores, r"shape \(4, 10\) for 4 rows and 10 classes, but it returns \(4, 3\)"),
        (own.TwoAnswers, "one score per class.*but it returns tuple"),
    ],
)
def test_a_module_that_does_not_fit_the_rows_or_the_classes_is_named_with_the_way_out(
    factory, words
):
    parts = random_parts([20, 9], (64,))
    with pytest.raises(InvalidInputError, match=words):
        learner(factory).fit_members(partitioned(parts, (64,)), range(2), 10, 0)


NETWORK = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.scale = {scale}

    def forward(self, x):
        return self.layer(x.{activation}()) * self.scale

def build():
    return Net()
"""


CHANGES = [{"scale": 2.0}, {"activation": "relu"}]
FIRST = {"scale": 1.0, "activation": "tanh"}


def _write(folder, monkeypatch, name, text):
    """Write a network to a module and import it anew."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (folder / f"{name}.py").write_text(NETWORK.format(**text))
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module(name).build


@pytest.mark.parametrize("change", CHANGES)
def test_members_of_a_network_that_was_rewritten_are_not_taken_for_its_own(
    tmp_path, monkeypatch, change
):
    """Name and shapes stay, so that only the code tells them apart."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"rewritten_{next(iter(change))}"
    parts = random_parts([20], (64,))
    codes, digests = set(), set()
    for text in (FIRST, FIRST | change, FIRST):
        network = _write(tmp_path, monkeypatch, name, text)
        maker = learner(network, input_scale=1 / 255)
        codes.add(maker.specification()["code"])
        digests.update(maker.fit_members(partitioned(parts, (64,)), [0], 10, 0).digests())
    assert len(codes) == 2
    assert len(digests) == 2


@pytest.mark.parametrize("change", CHANGES)
def test_a_stored_model_is_not_asked_through_a_network_that_was_rewritten(
    digits, tmp_path, monkeypatch, change
):
    monkeypatch.syspath_prepend(tmp_path)
    X, y = digits
    name = f"stored_{next(iter(change))}"
    network = _write(tmp_path, monkeypatch, name, FIRST)
    model = DPAClassifier(learner(network), 3, classes=range(10)).fit(X[:90], y[:90])
    model.save(tmp_path / "model")
    trusted = [f"{name}.build"]
    assert np.array_equal(load(tmp_path / "model", trusted=trusted).votes(X), model.votes(X))
    _write(tmp_path, monkeypatch, name, FIRST | change)
    with pytest.raises(StoreError, match="has changed since training"):
        load(tmp_path / "model", trusted=trusted)

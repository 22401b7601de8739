"""What only a CUDA device can show; run with ``pytest -m gpu``."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone
from torch import nn
from torch.nn import functional

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks import TorchLearner
from poisonproof.networks.augmentation import Purpose, Stream, augment
from poisonproof.networks.modules import build, initialise
from poisonproof.networks.specification import Augmentation
from tests.networks.partitions import partitioned, random_parts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def both_devices(compute):
    return compute(torch.device("cpu")), compute(torch.device("cuda")).cpu()


def test_draws_are_the_same_integers_on_cpu_and_cuda():
    def draw(device):
        stream = Stream(2**35 + 1, torch.tensor([3, 1199], device=device))
        return stream.words(Purpose.CROP, 199, torch.arange(5000, device=device))

    assert torch.equal(*both_devices(draw))


def test_first_weights_are_the_same_bits_on_cpu_and_cuda():
    spec = TorchLearner("nin", device="cuda").resolve((1, 28, 28), 10)
    host, device = (
        initialise(build(spec), Stream(0, torch.tensor([7], device=d))) for d in ("cpu", "cuda")
    )
    assert all(torch.equal(host[name], device[name].cpu()) for name in host)


@pytest.mark.parametrize(
    ("rule", "tolerance"),
    [
        (Augmentation(crop=4, flip=True), 0.0),
        (Augmentation(cutout=8), 0.0),
        (Augmentation(rotate=15.0, scale=0.1, shift=0.1), 1e-5),
        (Augmentation(brightness=0.3, contrast=0.3, saturation=0.3), 1e-5),
    ],
)
def test_augmented_images_agree_on_cpu_and_cuda(rule, tolerance):
    images = torch.rand(2, 50, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def change(device):
        stream = Stream(0, torch.tensor([3, 8], device=device))
        rows = torch.arange(50, device=device)
        return augment(images.to(device), rule, lambda p: stream.words(p, 1, rows))

    host, device = both_devices(change)
    assert (host - device).abs().max() <= tolerance


@pytest.mark.parametrize(
    ("shape", "classes"), [((1, 28, 28), 10), ((3, 48, 48), 43)], ids=["mnist", "gtsrb"]
)
def test_one_kernel_step_is_as_close_to_float64_as_autocast(shape, classes):
    from poisonproof.networks.fused.layout import NinLayout, from_tables
    from poisonproof.networks.fused.passes import NinStack
    from poisonproof.networks.fused.trainer import _load

    learner = TorchLearner("nin", device="cuda", stack_width=3, weight_decay=0.0)
    spec = learner.resolve(shape, classes)
    work = NinStack(NinLayout(spec), torch.device("cuda"))
    for buffer in (*work.z, *work.g):
        buffer.fill_(float("nan"))  # what an earlier member left must not matter
    state = initialise(build(spec), Stream(0, torch.tensor([0, 1, 2], device="cuda")))
    _load(work, state)
    draw = torch.Generator("cuda").manual_seed(1)
    work.images.copy_(torch.randn(work.images.shape, device="cuda", generator=draw))
    labels = torch.randint(0, classes, (3, 128), device="cuda", generator=draw)
    work.targets[:, :, :classes] = functional.one_hot(labels, classes).float()
    work.counts.copy_(torch.tensor([50, 0, 81]))
    work.rates.fill_(1.0)
    work.forward(work.images, train=True)
    work.backward()
    after = from_tables(work.layout, work.parameters, work.norm["run_mean"], work.norm["run_var"])
    assert all(torch.equal(after[name][1], state[name][1]) for name in after), "a frozen lane moved"
    for lane, size in ((0, 50), (2, 81)):
        grads = {}
        for kind in ("float64", "autocast"):
            module = build(spec).cuda()
            module.load_state_dict({name: value[lane] for name, value in state.items()})
            x = work.images[lane, :size]
            if kind == "float64":
                module, x = module.double(), x.double()
            with torch.autocast("cuda", torch.bfloat16, enabled=kind == "autocast"):
                scores = module(x)
            functional.cross_entropy(
                scores.float() if kind == "autocast" else scores, labels[lane, :size]
            ).backward()
            grads[kind] = {name: p.grad.double() for name, p in module.named_parameters()}
        for name, exact in grads["float64"].items():
            ours = (state[name][lane] - after[name][lane]).double() / 1.9
            error = ((ours - exact).norm() / exact.norm()).item()
            usual = ((grads["autocast"][name] - exact).norm() / exact.norm()).item()
            assert error < 1.5 * usual + 0.01, name


def small_convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 2),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def dropout_convolutions():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(7200, 10))


def waiting_convolutions():
    return _Waiting()


class _Waiting(nn.Module):
    """Asks the device for a number in the middle of its work, which no graph can record."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3072, 10)

    def forward(self, x):
        return self.linear(x.flatten(1)) * float(x.abs().amax().clamp(1, 1))


MNIST, CIFAR, GTSRB = (1, 28, 28), (3, 32, 32), (3, 48, 48)
STRONG = {"augmentation": "strong", "mixup": 0.2, "schedule": "cosine"}
SHORT = {"epochs": 2, "device": "cuda"}
LEARNERS = {
    "mlp": (TorchLearner("mlp", hidden=(256,), **SHORT), MNIST),
    "resnet-graph": (TorchLearner("resnet10", width=64, **STRONG, **SHORT), CIFAR),
    "resnet-single": (TorchLearner("resnet10", width=16, execution="single", **SHORT), CIFAR),
    "resnet18": (TorchLearner("resnet18", width=16, **SHORT), CIFAR),
    "module-graph": (TorchLearner(small_convolutions, execution="graph", **SHORT), CIFAR),
    "nin-graph": (TorchLearner("nin", execution="graph", **SHORT), MNIST),
    "nin": (TorchLearner("nin", augmentation="crop", **SHORT), MNIST),
    "nin4": (TorchLearner("nin4", augmentation="crop", **SHORT), MNIST),
    "nin-gtsrb": (TorchLearner("nin", augmentation="crop", **SHORT), GTSRB),
}
GRAPHS = [name for name in LEARNERS if "graph" in name]
# A full batch and a rest, one rest only, and a rest of a few rows.
SIZES = (150, 81, 40, 130)


@pytest.mark.parametrize("name", LEARNERS)
def test_cuda_members_keep_their_bits(name):
    learner, shape = LEARNERS[name]
    parts = random_parts(SIZES, shape)
    X, y = parts[0]
    attacked = [(np.concatenate([X, X ^ 1]), np.concatenate([y, y])), *parts[1:]]
    test = random_parts([50], shape, seed=1)[0][0]
    before = learner.fit_members(partitioned(parts, shape), range(4), 10, 0)
    after = learner.fit_members(partitioned(attacked, shape), range(4), 10, 0)
    assert before.failures() == {}
    assert before.digests()[1:] == after.digests()[1:]
    assert before.digests()[0] != after.digests()[0]
    assert np.array_equal(before.votes(test)[:, 1:], after.votes(test)[:, 1:])
    moved = learner.fit_members(partitioned(parts, shape), [2, 0], 10, 0)
    assert moved.digests() == [before.digests()[2], before.digests()[0]]


@pytest.mark.parametrize("name", GRAPHS)
def test_the_number_of_tracks_only_schedules(name):
    learner, shape = LEARNERS[name]
    data = partitioned(random_parts(SIZES, shape), shape)
    bits = [
        [m.digest() for m in clone(learner).set_params(stack_width=n)
         .fit_members(data, range(4), 10, 0).members]
        for n in (1, 2, 4)
    ]  # fmt: skip
    assert bits[0] == bits[1] == bits[2]


def test_a_replayed_graph_trains_the_same_function_as_the_eager_loop():
    options = {"width": 16, "dtype": "float32", "learning_rate": 1e-3}
    data = partitioned(random_parts([150, 40], CIFAR), CIFAR)
    graph, eager = (
        TorchLearner("resnet10", execution=how, **options, **SHORT).fit_members(data, [0, 1], 10, 0)
        for how in ("graph", "single")
    )
    for one, other in zip(graph.members, eager.members, strict=True):
        for name in one.tensors:
            assert np.allclose(one.tensors[name], other.tensors[name], atol=2e-3), name


@pytest.mark.parametrize("factory", [dropout_convolutions, waiting_convolutions])
def test_a_module_that_cannot_be_replayed_is_refused_and_the_device_goes_on(factory):
    data = partitioned(random_parts([40], CIFAR), CIFAR)
    with pytest.raises(InvalidInputError, match="cannot be replayed"):
        TorchLearner(factory, execution="graph", **SHORT).fit_members(data, [0], 10, 0)
    learner, _ = LEARNERS["module-graph"]
    assert learner.fit_members(data, [0], 10, 0).failures() == {}


@pytest.mark.parametrize("name", ["nin", "resnet-graph"])
def test_a_nan_member_abstains_and_its_neighbours_keep_their_bits(name):
    learner, shape = LEARNERS[name]
    parts = [(X.astype(np.float64), y) for X, y in random_parts([25, 81, 40], shape)]
    good = learner.fit_members(partitioned(parts, shape), range(3), 10, 0)
    parts[1] = (np.full_like(parts[1][0], np.nan), parts[1][1])
    bad = learner.fit_members(partitioned(parts, shape), range(3), 10, 0)
    assert list(bad.failures()) == [1]
    assert [good.digests()[i] for i in (0, 2)] == [bad.digests()[i] for i in (0, 2)]
    assert (bad.votes(parts[0][0])[:, 1] == -1).all()


@pytest.mark.parametrize("execution", ["graph", "single"])
def test_no_member_votes_with_the_rounded_weights_of_another(execution):
    learner = TorchLearner("resnet10", width=16, execution=execution, dtype="bfloat16", **SHORT)
    parts = random_parts([40, 25], CIFAR)
    together = learner.fit_members(partitioned(parts, CIFAR), [0, 1], 10, 0)
    scores = together.scores(parts[0][0])
    for place in range(2):
        alone = learner.fit_members(partitioned(parts, CIFAR), [place], 10, 0)
        assert alone.digests() == together.digests()[place : place + 1]
        assert np.array_equal(alone.scores(parts[0][0])[:, 0], scores[:, place])


def alone(measure, *arguments):
    """Measure in a process of its own: memory that earlier tests kept would be used again."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def reserved_after_each_of_two():
    learner, shape = LEARNERS["resnet-graph"]
    data = partitioned(random_parts(SIZES, shape), shape)
    reserved = []
    for _ in range(2):
        learner.fit_members(data, range(4), 10, 0)
        torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved())
    return reserved


def test_graphs_give_their_memory_back():
    once, twice = alone(reserved_after_each_of_two)
    assert twice <= once + 2**25

"""What only a CUDA device can show; run with ``pytest -m gpu``."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from poisonproof.engines.torch import TorchLearner  # noqa: E402
from poisonproof.learners.torch.augmentation import augment  # noqa: E402
from poisonproof.learners.torch.networks import build, initialise  # noqa: E402
from poisonproof.learners.torch.specification import Augmentation  # noqa: E402
from poisonproof.learners.torch.streams import Purpose, Stream  # noqa: E402
from tests.engines.torch.partitions import partitioned, random_parts  # noqa: E402

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


def test_one_kernel_step_is_as_close_to_float64_as_autocast():
    from poisonproof.engines.torch.fused.backward import Backward
    from poisonproof.engines.torch.fused.convert import from_tables
    from poisonproof.engines.torch.fused.forward import Forward
    from poisonproof.engines.torch.fused.layout import Layout
    from poisonproof.engines.torch.fused.trainer import _load
    from poisonproof.engines.torch.fused.workspace import Workspace

    spec = TorchLearner("nin", device="cuda", stack_width=3, weight_decay=0.0).resolve(
        (1, 28, 28), 10
    )
    work = Workspace(Layout(spec), torch.device("cuda"))
    for buffer in (*work.z, *work.g):
        buffer.fill_(float("nan"))  # what an earlier member left must not matter
    state = initialise(build(spec), Stream(0, torch.tensor([0, 1, 2], device="cuda")))
    _load(work, state)
    draw = torch.Generator("cuda").manual_seed(1)
    work.images.copy_(torch.randn(work.images.shape, device="cuda", generator=draw))
    labels = torch.randint(0, 10, (3, 128), device="cuda", generator=draw)
    work.targets[:, :, :10] = functional.one_hot(labels, 10).float()
    work.counts.copy_(torch.tensor([50, 0, 81]))
    work.rates.fill_(1.0)
    Forward(work).run(work.images, train=True)
    Backward(work).run()
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


LEARNERS = {
    "mlp": (TorchLearner("mlp", hidden=(256,), epochs=2, device="cuda"), (1, 28, 28)),
    "resnet": (
        TorchLearner("resnet10", width=16, epochs=2, device="cuda", dtype="bfloat16"),
        (3, 32, 32),
    ),
    "nin": (TorchLearner.from_recipe("nin-mnist", epochs=2, device="cuda"), (1, 28, 28)),
    "nin4": (TorchLearner("nin4", augmentation="crop", epochs=2, device="cuda"), (1, 28, 28)),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_cuda_members_keep_their_bits(name):
    learner, shape = LEARNERS[name]
    parts = random_parts([25, 81, 40, 130], shape)
    X, y = parts[3]
    attacked = [*parts[:3], (np.concatenate([X, X ^ 1]), np.concatenate([y, y]))]
    test = random_parts([50], shape, seed=1)[0][0]
    before = learner.fit_members(partitioned(parts, shape), range(4), 10, 0)
    after = learner.fit_members(partitioned(attacked, shape), range(4), 10, 0)
    assert before.failures() == {}
    assert before.digests()[:3] == after.digests()[:3]
    assert before.digests()[3] != after.digests()[3]
    assert np.array_equal(before.votes(test)[:, :3], after.votes(test)[:, :3])
    moved = learner.fit_members(partitioned(parts, shape), [2, 0], 10, 0)
    assert moved.digests() == [before.digests()[2], before.digests()[0]]


def test_a_nan_member_abstains_and_its_neighbours_keep_their_bits():
    learner, shape = LEARNERS["nin"]
    parts = [(X.astype(np.float64), y) for X, y in random_parts([25, 81, 40], shape)]
    good = learner.fit_members(partitioned(parts, shape), range(3), 10, 0)
    parts[1] = (np.full_like(parts[1][0], np.nan), parts[1][1])
    bad = learner.fit_members(partitioned(parts, shape), range(3), 10, 0)
    assert list(bad.failures()) == [1]
    assert [good.digests()[i] for i in (0, 2)] == [bad.digests()[i] for i in (0, 2)]
    assert (bad.votes(parts[0][0])[:, 1] == -1).all()

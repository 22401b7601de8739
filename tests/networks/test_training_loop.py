"""The engine against an ordinary PyTorch loop."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from poisonproof.networks import TorchLearner
from poisonproof.networks.augmentation import Stream
from poisonproof.networks.batches import member_stream, planned_steps
from poisonproof.networks.fused.layout import NinLayout, from_tables, to_tables
from poisonproof.networks.modules import build, initialise
from tests.networks.partitions import partitioned, random_parts


def test_nin_member_is_an_ordinary_training_loop():
    shape = (1, 12, 12)
    X, y = random_parts([20], shape)[0]
    learner = TorchLearner(
        "nin", image_shape=shape, epochs=3, batch_size=8, milestones=(1, 2), normalize="partition"
    )
    ensemble = learner.fit_members(partitioned([(X, y)], shape), [0], 10, 3)
    spec = learner.resolve(shape, 10)
    stream = member_stream(spec, 3, [0], torch.device("cpu"))
    module = build(spec)
    module.load_state_dict({k: v[0] for k, v in initialise(module, stream).items()})
    optimizer = torch.optim.SGD(
        module.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], 0.2)
    pixels = torch.from_numpy(X.astype(np.float32))
    pixels = (pixels - pixels.mean()) / pixels.std(correction=0)
    labels = torch.from_numpy(y)
    steps = iter(planned_steps(spec, stream, [20]))
    for _ in range(3):
        for _ in range(3):
            step = next(steps)
            rows = step.rows[0, : step.sizes[0]]
            loss = functional.cross_entropy(module(pixels[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    state = module.state_dict()
    for name, array in ensemble.members[0].tensors.items():
        if not name.startswith("normalise."):
            assert np.allclose(array, state[name].numpy(), atol=1e-4), name


def test_every_row_is_used_once_per_epoch():
    spec = TorchLearner("mlp", epochs=3, batch_size=16).resolve((4,), 2)
    stream = member_stream(spec, 0, [2, 5], torch.device("cpu"))
    seen = {0: [], 1: []}
    for step in planned_steps(spec, stream, [40, 10]):
        for lane, size in enumerate(step.sizes):
            seen[lane] += step.rows[lane, :size].tolist()
    assert sorted(seen[0]) == sorted(list(range(40)) * 3)
    assert sorted(seen[1]) == sorted(list(range(10)) * 3)
    assert seen[0][:40] != seen[0][40:80]


def test_one_seed_for_all_gives_equal_members_on_equal_rows():
    part = random_parts([30], (16,))[0]
    data = partitioned([part, part], (16,))
    shared = TorchLearner("linear", epochs=2, seed_rule="shared").fit_members(data, [0, 1], 10, 0)
    own = TorchLearner("linear", epochs=2).fit_members(data, [0, 1], 10, 0)
    assert shared.digests()[0] == shared.digests()[1]
    assert own.digests()[0] != own.digests()[1]


@pytest.mark.parametrize(("network", "shape"), [("nin", (1, 28, 28)), ("nin4", (3, 32, 32))])
def test_kernel_tables_hold_the_whole_network(network, shape):
    spec = TorchLearner(network, device="cuda", stack_width=2).resolve(shape, 10)
    layout = NinLayout(spec)
    state = initialise(build(spec), Stream(0, torch.tensor([1, 2])))
    table, means, variances = to_tables(layout, state)
    back = from_tables(layout, table, means, variances)
    missing = {name for name in state if not name.endswith("num_batches_tracked")} - set(back)
    assert not missing
    assert all(torch.equal(back[name], state[name]) for name in back)
    sides = [(unit.height, unit.width) for unit in layout.units]
    half, quarter = (shape[1] + 1) // 2, (shape[1] + 3) // 4
    assert sides[0] == shape[1:]
    assert sides[3] == (half, half)
    assert sides[-1] == (quarter, quarter)

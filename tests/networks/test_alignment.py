"""No bit of a member depends on where in memory its lane lies."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from poisonproof.exceptions import GuaranteeError
from poisonproof.networks import TorchLearner
from poisonproof.networks import device as alignment
from tests.networks.partitions import partitioned, random_parts


@pytest.mark.parametrize(
    ("hidden", "n_classes"), [((33,), 10), ((33, 17), 10), ((43,), 43), ((256,), 43)]
)
def test_equal_partitions_give_equal_members_in_every_lane(hidden, n_classes):
    (part,) = random_parts([70], (64,))
    learner = TorchLearner(
        "mlp", hidden=hidden, epochs=1, input_scale=1 / 255, seed_rule="shared", stack_width=16,
        batch_size=33, tile_rows=33, vote_rows=7,
    )  # fmt: skip
    ensemble = learner.fit_members(partitioned([part] * 16, (64,)), range(16), n_classes, 0)
    assert len(set(ensemble.digests())) == 1
    scores = ensemble.scores(part[0])
    assert np.array_equal(scores, np.repeat(scores[:, :1], 16, axis=1))


def rounds_by_address(left, right, multiply=torch.bmm):
    found = multiply(left, right)
    found[1::4] *= 1 + 1e-6
    return found


@pytest.fixture
def untested(monkeypatch):
    """Forget that this machine's products were checked, before and after."""
    alignment.require_equal_lanes.cache_clear()
    yield monkeypatch
    alignment.require_equal_lanes.cache_clear()


@pytest.mark.parametrize("execution", ["stacked", "single"])
def test_products_that_depend_on_the_lane_are_refused_where_members_share_launches(
    untested, execution
):
    untested.setattr(torch, "bmm", rounds_by_address)
    data = partitioned(random_parts([20], (64,)), (64,))
    learner = TorchLearner("linear", execution=execution, epochs=1)
    if execution == "single":
        assert len(learner.fit_members(data, [0], 10, 0).digests()) == 1
    else:
        with pytest.raises(GuaranteeError, match="MKL_CBWR=AUTO,STRICT before Python"):
            learner.fit_members(data, [0], 10, 0)


MULTIPLY_FIRST = """
import torch
torch.ones(8, 8) @ torch.ones(8, 8)
from poisonproof.networks.device import require_equal_lanes
require_equal_lanes()
"""


def test_a_mode_that_mkl_hears_too_late_is_found_where_it_matters():
    """Whether products depend on addresses, the processor decides; what is said of them, we do."""
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    late = run(MULTIPLY_FIRST, environment)
    assert late.returncode == 0 or "import poisonproof before torch" in late.stderr
    early = run("import poisonproof" + MULTIPLY_FIRST, environment)
    assert early.returncode == 0, early.stderr


ASK_THE_MODE = """
from poisonproof.networks import TorchLearner
from poisonproof.networks.device import fingerprint
print(fingerprint(TorchLearner("mlp").resolve((4,), 2)).get("mkl"))
"""


@pytest.mark.skipif(alignment.product_mode() is None, reason="torch does not say how it multiplies")
def test_the_fingerprint_tells_a_mode_that_was_heard_from_one_that_was_not():
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    early = run(ASK_THE_MODE, environment)
    late = run("import torch; torch.ones(8, 8) @ torch.ones(8, 8)" + ASK_THE_MODE, environment)
    assert early.returncode == late.returncode == 0
    assert early.stdout != late.stdout


@pytest.mark.parametrize(("given", "kept"), [(None, "AUTO,STRICT"), ("COMPATIBLE", "COMPATIBLE")])
def test_importing_asks_mkl_for_reproducible_products_unless_the_user_has(given, kept):
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    environment |= {"MKL_CBWR": given} if given else {}
    asked = run("import os, poisonproof; print(os.environ['MKL_CBWR'])", environment)
    assert asked.stdout.strip() == kept


def run(code, environment):
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )

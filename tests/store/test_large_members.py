"""Networks stay in their files: mapped, not read."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof import DPAClassifier, load
from poisonproof.networks import TorchLearner
from poisonproof.store.manifest import ModelReader

X = np.random.default_rng(0).integers(0, 255, (16, 64)).astype(np.uint8)
y = np.arange(16) % 2


def lies_in_a_mapped_file(array: Any) -> bool:
    base = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.obj if isinstance(base, memoryview) else base.base
    return isinstance(base, mmap.mmap)


def test_nin_members_are_mapped_and_vote_as_before(tmp_path: Path) -> None:
    network = TorchLearner("nin", epochs=1, image_shape=(1, 8, 8), batch_size=8)
    saved = DPAClassifier(network, 2, classes=[0, 1]).fit(X, y)
    saved.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert np.array_equal(loaded.votes(X), saved.votes(X))
    members = loaded.ensemble_.loaded.members
    assert all(m.tensors and all(map(lies_in_a_mapped_file, m.tensors.values())) for m in members)


def test_large_members_that_finish_one_by_one_share_a_block_in_the_end(tmp_path: Path) -> None:
    network = TorchLearner("mlp", hidden=(600, 500), epochs=1)
    saved = DPAClassifier(network, 2, classes=[0, 1]).fit(X, y)
    DPAClassifier(network, 2, classes=[0, 1]).fit_into(tmp_path / "model", X, y)
    reader = ModelReader.open(tmp_path / "model")
    assert reader.manifest.member_digests == saved.ensemble_.digests()
    assert len(reader.manifest.members) == 1
    assert reader.manifest.members[0].n_bytes > 2**21

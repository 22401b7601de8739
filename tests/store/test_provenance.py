"""What a model knows about the data it was trained on travels with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import poisonproof


def test_provenance_survives_saving(tmp_path: Path) -> None:
    clf = poisonproof.DPAClassifier(n_partitions=3, classes=[0, 1])
    clf.fit(np.arange(20.0).reshape(10, 2), np.arange(10) % 2)
    clf.save(tmp_path / "plain")
    clf.provenance_ = {"schema": {"label": "kind"}, "n_rows": 10, "n_groups": None}
    clf.save(tmp_path / "told")
    assert not hasattr(poisonproof.load(tmp_path / "plain"), "provenance_")
    assert poisonproof.load(tmp_path / "told").provenance_ == clf.provenance_

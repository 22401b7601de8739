"""The public names: adding one is a decision, losing one breaks users."""

from __future__ import annotations

import subprocess
import sys

import poisonproof


def test_the_public_names_are_these() -> None:
    assert sorted(poisonproof.__all__) == [
        "Certificates", "ClusterVoteClassifier", "DPAClassifier",
        "NeighborVoteClassifier",
        "SSDPAClassifier", "WeightedVoteClassifier", "certify_scores", "certify_votes", "load",
    ]  # fmt: skip
    assert all(hasattr(poisonproof, name) for name in poisonproof.__all__)
    assert {*poisonproof.__all__, "TorchLearner"} <= set(dir(poisonproof))
    assert poisonproof.TorchLearner("mlp").network == "mlp"


def test_certificates_need_numpy_alone() -> None:
    code = (
        "import sys, poisonproof; poisonproof.certify_votes([[0, 1, 1]], 2);"
        "others = 'sklearn', 'scipy', 'torch', 'joblib', 'safetensors', 'pandas';"
        "print([module for module in others if module in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"

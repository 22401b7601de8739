"""Models without networks are read without torch: importing it takes longer than asking them."""

from __future__ import annotations

import subprocess
import sys

import pytest

READ = """
import sys
from poisonproof.store.objects import decode_object, encode_object
from sklearn.naive_bayes import GaussianNB
decode_object(encode_object(GaussianNB()), "here")
early = "torch" in sys.modules
import skops.io._trusted_types as types
from sklearn.utils import all_estimators
left_out = {f"{kind.__module__}.{kind.__qualname__}" for _, kind in all_estimators()}
left_out -= set(types.SKLEARN_ESTIMATOR_TYPE_NAMES)
print(early, left_out)
"""


def test_reading_scikit_learns_objects_imports_no_torch_and_knows_all_estimators() -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == ["False", "set()\n"]

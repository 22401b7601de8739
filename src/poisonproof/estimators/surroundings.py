"""What stands in front of the ensemble must learn nothing.

A scaler fitted on the whole training set carries every row into every partition, and the proof is
void. Such a step belongs inside the member:
``DPAClassifier(make_pipeline(StandardScaler(), ...))``.
"""

from __future__ import annotations

import sys
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from poisonproof.exceptions import GuaranteeError
from poisonproof.features.base import learns_nothing

__all__ = ["refuse_learned_steps"]

_FRAMES = 100
"""How far up a pipeline can be from the `fit` it calls: searches, decorators, nested pipelines."""


def refuse_learned_steps(classifier: Any) -> None:
    """Raise `GuaranteeError` if a pipeline that fits `classifier` has learned a step before it.

    scikit-learn does not tell an estimator which pipeline it ends, so the callers are looked at: a
    pipeline whose `fit` is running, and whose `_fit` is not, has come to its last step.
    """
    frame = sys._getframe(1)
    learning: set[int] = set()
    for _ in range(_FRAMES):
        owner = frame.f_locals.get("self")
        if isinstance(owner, Pipeline):
            if frame.f_code.co_name == "_fit":
                learning.add(id(owner))
            elif frame.f_code.co_name.startswith("fit") and id(owner) not in learning:
                _refuse_steps_of(owner, type(classifier).__name__)
        if frame.f_back is None:
            return
        frame = frame.f_back


def _refuse_steps_of(pipeline: Pipeline, classifier: str) -> None:
    for name, step in pipeline.steps[:-1]:
        kind = type(step).__name__
        advice = f"Put the step inside the member: {classifier}(make_pipeline({kind}(), ...))."
        if isinstance(step, FunctionTransformer) and step.func is not None:
            raise GuaranteeError(
                f"Pipeline step {name!r} ({kind}) calls a function on all training rows together "
                f"before {classifier} partitions them, and what it carries from row to row nobody "
                f"knows. {advice}"
            )
        if not learns_nothing(step, stateless=True):
            raise GuaranteeError(
                f"Pipeline step {name!r} ({kind}) learns from all training rows before "
                f"{classifier} partitions them, so one poisoned row could reach every member. "
                f"{advice}"
            )

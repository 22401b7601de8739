"""What stands in front of the ensemble must map every row by itself.

A scaler fitted on the whole training set carries every row into every partition, and the proof is
void. A map that learns nothing still sees all rows in one container, and one float64 row among
float32 rows makes it compute in float64 for all. The first belongs inside the member,
``DPAClassifier(make_pipeline(StandardScaler(), ...))``, the second behind the partitioner,
``DPAClassifier(features=Normalizer())``. Only the maps of `poisonproof.features` may stand in
front: they give a row the same bits in every container.
"""

from __future__ import annotations

import sys
from typing import Any

from sklearn.pipeline import Pipeline

from poisonproof.exceptions import GuaranteeError
from poisonproof.features.base import learns_nothing
from poisonproof.features.pipeline import is_own_map

__all__ = ["refuse_steps_in_front"]

_FRAMES = 100
"""How far up a pipeline can be from the `fit` it calls: searches, decorators, nested pipelines."""


def refuse_steps_in_front(classifier: Any) -> None:
    """Raise `GuaranteeError` if a pipeline that fits `classifier` has a step that mixes rows.

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
        if step in (None, "passthrough") or is_own_map(step):
            continue
        kind = type(step).__name__
        inside = f"Put the step inside the member: {classifier}(make_pipeline({kind}(), ...))"
        if learns_nothing(step, stateless=True):
            raise GuaranteeError(
                f"Pipeline step {name!r} ({kind}) maps all training rows together before "
                f"{classifier} partitions them: one row of another type changes what the others "
                f"become. {inside}, or give it to the ensemble, which shows it canonical values: "
                f"{classifier}(..., features={kind}())."
            )
        raise GuaranteeError(
            f"Pipeline step {name!r} ({kind}) learns from all training rows before "
            f"{classifier} partitions them, so one poisoned row could reach every member. "
            f"{inside}."
        )

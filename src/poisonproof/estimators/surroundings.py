"""What stands in front of the ensemble must learn nothing.

A scaler fitted on the whole training set carries every row into every partition, and the proof is
void. Such a step belongs inside the member:
``DPAClassifier(make_pipeline(StandardScaler(), ...))``.
"""

from __future__ import annotations

import sys
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from poisonproof.exceptions import GuaranteeError

__all__ = ["learns_nothing", "refuse_learned_steps"]

_FRAMES = 12
"""How far up a pipeline can be from the `fit` it calls: decorators and context managers between."""


def learns_nothing(transformer: Any) -> bool:
    """Say whether a transformer is the same whatever it is fitted on.

    Frozen features say so themselves (``learns_nothing = True``); scikit-learn's stateless
    transformers carry the tag ``requires_fit=False``.
    """
    declared = getattr(transformer, "learns_nothing", None)
    if declared is not None:
        return bool(declared)
    if isinstance(transformer, Pipeline):
        return all(learns_nothing(step) for _, step in transformer.steps)
    if transformer is None or transformer in ("passthrough", "drop"):
        return True
    return not get_tags(transformer).requires_fit


def refuse_learned_steps(classifier: Any) -> None:
    """Raise `GuaranteeError` if a pipeline that fits `classifier` has learned a step before it.

    scikit-learn does not tell an estimator which pipeline it ends, so the callers are looked at:
    the pipeline whose `fit` is running holds the very object that is being fitted.
    """
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        owner = frame.f_locals.get("self")
        if isinstance(owner, Pipeline) and owner.steps and owner.steps[-1][1] is classifier:
            for name, step in owner.steps[:-1]:
                if not learns_nothing(step):
                    raise GuaranteeError(
                        f"Pipeline step {name!r} ({type(step).__name__}) learns from all training "
                        f"rows before {type(classifier).__name__} partitions them, so one poisoned "
                        "row could reach every member. Put the step inside the member: "
                        f"{type(classifier).__name__}(make_pipeline({type(step).__name__}(), ...))."
                    )
        if frame.f_back is None:
            return
        frame = frame.f_back

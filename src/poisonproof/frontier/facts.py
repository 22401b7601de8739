"""What a result file keeps of a run beside its certificates."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import sklearn
from numpy.typing import ArrayLike

import poisonproof

__all__ = ["run_facts"]


def run_facts(y_train: ArrayLike, seconds: Mapping[str, float], **more: Any) -> dict[str, Any]:
    """Return size and classes of the training set, times and software, for `Method.facts`.

    Parameters
    ----------
    y_train : array-like of int of shape (n,)
        Training labels, 0 to C - 1.
    seconds : mapping of str to float
        How long each step took.
    **more
        What else is to be kept.

    Examples
    --------
    >>> facts = run_facts([0, 2, 2], {"all": 1.23}, note="small")
    >>> facts["train_class_sizes"], facts["seconds"], facts["note"]
    ([1, 0, 2], {'all': 1.2}, 'small')
    """
    labels = np.asarray(y_train)
    return {
        "n_train": len(labels),
        "train_class_sizes": np.bincount(labels).tolist(),
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "software": {
            "poisonproof": poisonproof.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        **more,
    }

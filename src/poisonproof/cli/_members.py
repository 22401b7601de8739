"""What ``--model`` names: the kinds of member that the command line can train."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from poisonproof.cli._options import choose
from poisonproof.exceptions import InvalidInputError

__all__ = ["AUTO_KINDS", "DEFAULT_KIND", "MEMBER_KINDS", "check_weights", "make_member"]


@dataclass(frozen=True)
class _Kind:
    module: str
    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    scaled: bool = False


_CLOSED_FORM = "poisonproof.learners.closed_form"
_TORCH = "poisonproof.engines.torch"

MEMBER_KINDS = {
    "scaled-kernel": _Kind(_CLOSED_FORM, "ScaledKernelClassifier"),
    "tree": _Kind("sklearn.tree", "DecisionTreeClassifier"),
    "naive-bayes": _Kind("sklearn.naive_bayes", "GaussianNB"),
    "logistic": _Kind(
        "sklearn.linear_model", "LogisticRegression", {"max_iter": 1000}, scaled=True
    ),
    "svc": _Kind("sklearn.svm", "SVC", scaled=True),
    "forest": _Kind("sklearn.ensemble", "RandomForestClassifier", {"n_estimators": 30}),
    "neighbors": _Kind(_CLOSED_FORM, "NeighborsClassifier", {"n_neighbors": 1}),
    "nearest-mean": _Kind(_CLOSED_FORM, "NearestMeanClassifier"),
    "ridge": _Kind(_CLOSED_FORM, "RidgeClassifier"),
    "kernel-ridge": _Kind(
        _CLOSED_FORM, "KernelRidgeClassifier", {"kernel": "rbf", "gamma": 2.0, "alpha": 0.01}
    ),
    "discriminant": _Kind(_CLOSED_FORM, "LinearDiscriminantClassifier"),
    "linear": _Kind(_TORCH, "TorchLearner", {"network": "linear"}),
    "mlp": _Kind(_TORCH, "TorchLearner", {"network": "mlp"}),
    "nin": _Kind(_TORCH, "TorchLearner", {"network": "nin", "augmentation": "crop"}),
    "resnet10": _Kind(_TORCH, "TorchLearner", {"network": "resnet10", "augmentation": "crop"}),
}
"""Where scaling matters the scaler stands inside the member: each learns it from its own rows."""

DEFAULT_KIND = "scaled-kernel"
"""Takes tables as they come, missing values too, and needs no GPU."""

AUTO_KINDS = ("scaled-kernel", "tree", "naive-bayes", "logistic", "ridge", "kernel-ridge")
"""What ``--model auto`` tries on trusted rows: quick to train, different in kind."""


def make_member(name: str, **network_options: Any) -> Any:
    """Return the unfitted classifier that `name` stands for.

    Parameters
    ----------
    name : str
        A key of `MEMBER_KINDS`.
    **network_options
        Parameters of `TorchLearner`; None stands for its default. Other kinds take none.
    """
    kind = MEMBER_KINDS[choose("--model", name, list(MEMBER_KINDS))]
    given = {key: value for key, value in network_options.items() if value is not None}
    if given and kind.module != _TORCH:
        networks = [key for key, other in MEMBER_KINDS.items() if other.module == _TORCH]
        options = ", ".join(f"--{key.replace('_', '-')}" for key in given)
        raise InvalidInputError(
            f"{options} is for networks ({', '.join(networks)}), but --model is {name}."
        )
    estimator = getattr(import_module(kind.module), kind.name)(**kind.parameters, **given)
    if not kind.scaled:
        return estimator
    scaler = import_module("sklearn.preprocessing").StandardScaler()
    return import_module("sklearn.pipeline").make_pipeline(scaler, estimator)


def check_weights(name: str) -> None:
    """Raise if members of this kind cannot use weights."""
    takes = import_module("sklearn.utils.validation").has_fit_parameter
    if not takes(make_member(name), "sample_weight"):
        able = [kind for kind in MEMBER_KINDS if takes(make_member(kind), "sample_weight")]
        raise InvalidInputError(
            f"--model {name} takes no weights. Use one of {', '.join(able)}, or no --weights."
        )

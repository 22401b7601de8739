"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from poisonproof.exceptions import GuaranteeError, InvalidInputError

LabelOption = Annotated[
    str | None,
    typer.Option(
        "--label", "--y-key", metavar="COLUMN", help="Column (npz: array) with the labels."
    ),
]
SamplesOption = Annotated[
    str, typer.Option("--x-key", metavar="ARRAY", help="npz only: the array with the samples.")
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="The label set, declared. Compared as text; 7 and 7.0 in a binary file read '7'.",
    ),
]
ClassesFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The label set from a text file, one label per line."),
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="The feature columns. By default all that no other option names.",
    ),
]
ExpectedRowsOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="How many training rows you expect, known beforehand."),
]
WantedRadiusOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="R", help="The attack size that half of the rows should withstand."
    ),
]
IgnoreOption = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="Columns that are no features.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", help="Worker processes, -1 for all cores. Changes no result, only time."
    ),
]


def parse_list(text: str | None, option: str) -> tuple[str, ...]:
    """Split a comma-separated list; quotes protect commas.

    >>> parse_list('ham, "spam, bulk"', "--classes")
    ('ham', 'spam, bulk')
    """
    if text is None:
        return ()
    try:
        cells = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise InvalidInputError(f"{option} is not a comma-separated list: {error}.") from error
    names = tuple(cell.strip() for cell in cells)
    if not names or "" in names:
        raise InvalidInputError(f"{option} must list names separated by commas. Got {text!r}.")
    return names


def declared_classes(classes: str | None, file: Path | None) -> tuple[str, ...]:
    """Return the declared label set; without one nothing could be certified.

    >>> declared_classes("ham,spam", None)
    ('ham', 'spam')
    """
    if classes is not None and file is not None:
        raise InvalidInputError("Give --classes or --classes-file, not both.")
    if file is not None:
        names = _read_classes(file)
    elif classes is not None:
        names = parse_list(classes, "--classes")
    else:
        raise GuaranteeError(
            "The label set must be declared, for example --classes ham,spam. Read from the data it "
            "would let one poisoned label change every member, and no certificate would hold."
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInputError(f"The classes list {', '.join(map(repr, repeated))} twice.")
    broken = [name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name)]
    if broken:  # how Python shows bytes of the command line that are no text
        raise InvalidInputError(f"The class {broken[0]!r} is not UTF-8 text.")
    if len(names) < 2:
        raise InvalidInputError(f"At least two classes are needed. Got {', '.join(names)!r}.")
    return names


def parse_shape(text: str | None) -> tuple[int, int, int] | None:
    """Read the shape of an image.

    >>> parse_shape("3x32x32")
    (3, 32, 32)
    """
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) != 3 or not all(side.isdecimal() and int(side) > 0 for side in sides):
        raise InvalidInputError(
            f"--image-shape is CHANNELSxHEIGHTxWIDTH, as 1x28x28. Got {text!r}."
        )
    channels, height, width = map(int, sides)
    return channels, height, width


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Read the size of images.

    >>> parse_size("32x48")
    (32, 48)
    """
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(side.isdecimal() and int(side) > 0 for side in sides):
        raise InvalidInputError(f"--size is HEIGHTxWIDTH, as 32x32. Got {text!r}.")
    return int(sides[0]), int(sides[1])


def choose(option: str, value: str, allowed: Sequence[str]) -> str:
    """Return `value` if it is allowed, else raise."""
    if value not in allowed:
        raise InvalidInputError(f"{option} is one of {', '.join(allowed)}. Got {value!r}.")
    return value


def _read_classes(file: Path) -> tuple[str, ...]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file} is not UTF-8 text.") from error
    except OSError as error:
        raise InvalidInputError(f"Cannot read {file}: {error.strerror or error}.") from error
    return tuple(line for line in lines if line)


# What ``--model`` names: the kinds of member that the command line can train.


@dataclass(frozen=True)
class _Kind:
    module: str
    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    scaled: bool = False


_CLOSED_FORM = "poisonproof.members.closed_form"
_TORCH = "poisonproof.networks"

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

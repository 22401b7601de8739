"""The methods that ``poisonproof train`` knows, by name, and the options of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from poisonproof.cli._app import DEFAULT_KIND, choose, make_member
from poisonproof.exceptions import GuaranteeError, InvalidInputError


class _Method(NamedTuple):
    name: str
    """The classifier, as `poisonproof` exports it."""
    does: str
    options: Mapping[str, str]
    """Options of the command line, and the parameters of the classifier that they set."""
    partitioners: tuple[str, ...] = ()
    """None where training rows vote instead of members."""


_SCALE = {"scale": "features"}
METHODS = {
    "dpa": _Method(
        "DPAClassifier",
        "members on partitions",
        {},
        ("content", "pixel_sum", "group"),
    ),
    "neighbors": _Method(
        "NeighborVoteClassifier",
        "near training rows vote",
        {"cosine": "threshold"},
    ),
    "ss-dpa": _Method(
        "SSDPAClassifier",
        "members on partitions, samples trusted",
        _SCALE,
        ("sorted", "content", "pixel_sum", "group"),
    ),
    "clusters": _Method(
        "ClusterVoteClassifier",
        "labels name clusters of trusted samples",
        {
            "clusters": "n_clusters",
            "assignment": "assignment",
            "clusterer": "clusterer",
            **_SCALE,
        },
    ),
    "walks": _Method(
        "WeightedVoteClassifier",
        "rows vote, weighted by walks among trusted samples",
        {"neighbors": "weights", **_SCALE},
    ),
    "grid": _Method(
        "GridClassifier",
        "members on partitions of rows and blocks of columns, pixels or words",
        {"blocks": "blocks", "outer": "outer", "image-shape": "image_shape"},
        ("content", "pixel_sum", "group"),
    ),
}
OF_MEMBERS = (
    "-k", "--model", "--partitioner", "--groups", "--weights", "--image-shape", "--epochs",
    "--device", "--keep-data", "--stream", "--memory", "--cluster",
)  # fmt: skip
"""Options of `poisonproof train` that mean nothing where training rows vote."""

_PANEL = {"rich_help_panel": "Other methods than dpa"}
MethodOption = Annotated[
    str | None,
    typer.Option(
        help="; ".join(f"{name}: {method.does}" for name, method in METHODS.items()) + ".",
        show_default="dpa, or ss-dpa with --threat label_flip",
    ),
]
TrainedThreatOption = Annotated[
    str | None,
    typer.Option(
        help="What the attacker does: insert_delete, label_flip or replace. Chooses the method, or "
        "checks that the method certifies it.",
        show_default="what the method certifies first",
    ),
]
CosineOption = Annotated[
    float | None,
    typer.Option(
        metavar="C",
        min=-1.0,
        max=1.0,
        help="neighbors: least cosine similarity of a row that votes.  [0.9]",
        **_PANEL,
    ),
]
ClustersOption = Annotated[
    int | None,
    typer.Option(min=1, help="clusters: how many.  [one per class]", **_PANEL),
]
AssignmentOption = Annotated[
    str | None,
    typer.Option(help="clusters: local, one_to_one or onto.  [local]", **_PANEL),
]
ClustererOption = Annotated[
    str | None,
    typer.Option(help="clusters: spectral, kmeans or mixture.  [spectral]", **_PANEL),
]
NeighborsOption = Annotated[
    int | None,
    typer.Option(min=1, help="walks: neighbours of a sample in the graph.  [30]", **_PANEL),
]
BlocksOption = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER|KIND:NUMBER",
        help="grid: blocks of features: 16, columns:8, lattice:16, pixels:36, bands:7, words:8, "
        "words:8:2.  [16]",
        **_PANEL,
    ),
]
OuterOption = Annotated[
    str | None,
    typer.Option(
        help="grid: certify f features of the row to predict (rows), or the same f features of all "
        "rows (features).  [rows]",
        **_PANEL,
    ),
]
ScaleOption = Annotated[
    bool,
    typer.Option(
        "--scale",
        help="ss-dpa, clusters, walks: bring columns to one scale by all samples.",
        **_PANEL,
    ),
]


_MADE: Mapping[str, Callable[[Any], Any]] = {
    "neighbors": lambda n: import_module("poisonproof.members.weights").WalkWeights(n),
    "scale": lambda _: import_module("sklearn.preprocessing").StandardScaler(),
}
"""Objects that options stand for; they are imported when they are needed."""


def classifier_of(method: str) -> Any:
    """Return the class of a method."""
    return getattr(import_module("poisonproof.estimators"), METHODS[method].name)


def choose_method(method: str | None, threat: str | None) -> str:
    """Return the method to train: the one named, or the first that certifies the threat."""
    from poisonproof.certificates.threats import parse_threat

    if method is not None:
        choose("--method", method, list(METHODS))
    if threat is None:
        return method or "dpa"
    name = parse_threat(threat).name
    if method is None:
        return "ss-dpa" if name == "label_flip" else "dpa"
    if name not in classifier_of(method).threats:
        able = [known for known in METHODS if name in classifier_of(known).threats]
        raise GuaranteeError(
            f"--method {method} does not certify {name}. Use one of {', '.join(able)}."
        )
    return method


def make_classifier(
    method: str, given: Mapping[str, Any], of_members: Mapping[str, Any], **parameters: Any
) -> Any:
    """Return the unfitted classifier of a method.

    `given` are the values of options that belong to some methods, `of_members` parameters of those
    that train members; `parameters` are common to all.
    """
    known = METHODS[method]
    for option, value in given.items():
        if value in (None, False):
            continue
        if option not in known.options:
            able = [name for name, other in METHODS.items() if option in other.options]
            raise InvalidInputError(
                f"--{option} is for --method {', '.join(able)}, but the method is {method}."
            )
        parameters[known.options[option]] = _MADE.get(option, lambda plain: plain)(value)
    found = classifier_of(method)
    if known.partitioners:
        return found(**of_members, **parameters)
    names = found._get_param_names()
    return found(**{name: value for name, value in parameters.items() if name in names})


def options_of(classifier: Any, model: str = DEFAULT_KIND) -> list[str] | None:
    """Return the options with which ``poisonproof train`` makes such a classifier, if it can.

    >>> from poisonproof import NeighborVoteClassifier
    >>> options_of(NeighborVoteClassifier(threshold=0.8))
    ['--method', 'neighbors', '--cosine', '0.8']
    """
    (method,) = [name for name, m in METHODS.items() if m.name == type(classifier).__name__]
    known, words = METHODS[method], ["--method", method]
    if known.partitioners:
        if repr(classifier.estimator) != repr(make_member(model)):
            return None
        k = classifier.n_partitions
        words += [] if k is None else ["-k", str(k)]
        words += [] if model == DEFAULT_KIND else ["--model", model]
    plain = classifier_of(method)()
    for option, parameter in known.options.items():
        value = getattr(classifier, parameter)
        if repr(value) == repr(getattr(plain, parameter)):
            continue
        if option == "scale":
            words.append("--scale")
        elif isinstance(value, tuple):
            words += [f"--{option}", "x".join(map(str, value))]
        else:
            words += [f"--{option}", str(getattr(value, "n_neighbors", value))]
    return words

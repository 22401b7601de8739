"""The application: commands found by name, the options that they share, and exit codes."""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import poisonproof
from poisonproof.exceptions import GuaranteeError, InvalidInputError, PoisonproofError, needing

if TYPE_CHECKING:
    from poisonproof.data.rows import Missing

BAD_INPUT, BUG, INTERRUPTED = 2, 1, 130

SUMMARY = (
    "Classifiers with a proof: no attacker who poisons up to N training rows can change "
    "a prediction."
)
COMMANDS = {
    "demo": "Certify scikit-learn's handwritten digits against poisoned training data.",
    "schema": "Propose how to read a data source, for you to confirm.",
    "plan": "Choose the method, k and the members on rows that you trust.",
    "train": "Train a model: by default one small member per partition of the rows.",
    "predict": "Predict the label of every row by a vote of the members.",
    "certify": "Prove for every prediction how large an attack on the training data it survives.",
    "report": "Write one self-contained page about what a model withstands.",
    "attack": "Attack a protected and an unprotected model of the same kind with real retraining.",
    "update": "Change the training set; only members whose rows change are trained again.",
    "audit": "Check a model: its files, its rows, and members trained again.",
    "compare": "Compare all methods on your rows: certified accuracy against attack size.",
    "features": "Learn a map from images alone, for certificates against flipped labels.",
}
"""Each command is the function of its name in the module of its name, imported when it is run."""

# typer brings its own copy of click, older releases use the real one; both have this ancestor.
_UsageError: Any = typer.BadParameter.__mro__[2]


class _Commands(TyperGroup):
    """Lists the commands without importing them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and load_command(str(name)), rest


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code: 0, 2 for bad input, 1 for a bug."""
    app = _new_app(SUMMARY, cls=_Commands, no_args_is_help=True)
    app.callback(epilog="Start with: poisonproof demo")(_root)
    group = _finished(app)
    group.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}
    try:
        code = group(list(arguments), prog_name="poisonproof", standalone_mode=False)
    except BaseException as error:
        if os.environ.get("POISONPROOF_TRACEBACK") and isinstance(error, Exception):
            raise
        from poisonproof.data.value_text import escaped

        message, code = explain(error)
        if message:
            sys.stderr.write(f"{escaped(message)}\n")
    return code if isinstance(code, int) else 0


def load_command(name: str) -> Any:
    """Import a command; its examples are one line, ``|`` between them, and shown as a list."""
    module = import_module(f"poisonproof.cli.{name}")
    head, _, examples = module.EPILOG.partition(": ")
    listed = "\n".join(f"- `{example}`" for example in examples.split("  |  "))
    app = _new_app(None)
    app.command(name, epilog=f"{head}:\n\n{listed}")(getattr(module, name))
    return _finished(app)


def _new_app(words: str | None, **options: Any) -> typer.Typer:
    return typer.Typer(
        help=words,
        add_completion=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )


def _finished(app: typer.Typer) -> Any:
    """Return the click command; flags are shown without a value."""
    command = get_command(app)
    for option in command.params:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return command


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"poisonproof {poisonproof.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Hold the options that stand before the command."""


def explain(error: BaseException) -> tuple[str, int]:
    """Return the line to print and the exit code."""
    words = " ".join(str(error).split())
    if isinstance(error, SystemExit):
        return "", error.code if isinstance(error.code, int) else BUG
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "Interrupted.", INTERRUPTED
    if isinstance(error, _UsageError):
        # Without a word after it, a command has printed its help already.
        message = " ".join(error.format_message().split()).replace("?.", "?").rstrip(".")
        if name := re.fullmatch("No such command '.*'", message):
            message = f"{name[0]}. The commands are {', '.join(COMMANDS)}"
        cause = error.__cause__
        if hasattr(cause, "errors"):  # pydantic's, whose words leave out what came
            message += f". Got {cause.errors()[0]['input']!r}"
        command = error.ctx.command_path if error.ctx is not None else "poisonproof"
        end = "" if message.endswith("?") else "."
        return message and f"Error: {message}{end} See: {command} --help", BAD_INPUT
    if isinstance(error, PoisonproofError):
        return f"Error: {words}", BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"Error: {where}{error.strerror or words}.", BAD_INPUT
    if isinstance(error, MemoryError):
        notes = " ".join(getattr(error, "__notes__", ()))
        return f"Error: not enough memory. {words} {notes}".rstrip(), BUG
    return (
        f"Error: {type(error).__name__}: {words} (this is a bug in poisonproof; set "
        "POISONPROOF_TRACEBACK=1 to see where)",
        BUG,
    )


# Options that several commands share, and how their text is read.

FILES = ".csv, .tsv, .parquet, .npz"
"""Files of rows to train on, as help texts name them."""

SchemaOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A frozen schema, made by: poisonproof schema."),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        "--label", "--y-key", metavar="COLUMN", help="Column (npz: array) with the labels."
    ),
]
SamplesOption = Annotated[
    str | None,
    typer.Option("--x-key", metavar="ARRAY", help="npz only: the array with the samples.  [X]"),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="The label set, declared. Compared as text; 7 and 7.0 in a binary file are '7'.",
    ),
]
IgnoreOption = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="Columns that are not features.")
]
GroupsOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="The contributor of each row; certificates then count contributors."
    ),
]
EntitiesOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.csv", help="Whose the accounts of --groups are: account,entity."),
]
WeightsOption = Annotated[str | None, typer.Option(metavar="COLUMN", help="The weight of a row.")]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", help="Worker processes, -1 for all cores. Changes no result, only time."
    ),
]
ModelArgument = Annotated[Path, typer.Argument(help="A model made by poisonproof train.")]
RowsArgument = Annotated[Path, typer.Argument(help=f"Rows: {FILES}, .npy, or a folder of images.")]
HeldOutOption = Annotated[
    bool,
    typer.Option(
        "--held-out", help="DATA is what the model was trained on: take the rows held out of it."
    ),
]
ThreatOption = Annotated[
    str | None,
    typer.Option(
        help="insert_delete, label_flip or replace; a unit may be added: replace/group.",
        show_default="what the model certifies first",
    ),
]
ElectionOption = Annotated[
    str,
    typer.Option(
        help="plurality, or runoff: a second vote between the two leading labels, for members "
        "that score classes."
    ),
]
TrustedOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Full names of types that the model may hold, beyond those that are always loaded; "
        "their code runs.",
    ),
]
FeaturesOption = Annotated[
    int | None,
    typer.Option(
        "--features",
        metavar="F",
        min=0,
        help="grid: write as radius how many rows are withstood while F features differ; -1 where "
        "nothing is proved.  [0]",
    ),
]
JsonOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the outcome as .json.")
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


def declared_classes(classes: str | None) -> tuple[str, ...]:
    """Return the declared label set; without one nothing could be certified."""
    if classes is None:
        raise GuaranteeError(
            "The label set must be declared, for example --classes ham,spam. Read from the data it "
            "would let one poisoned label change every member, and no certificate would hold."
        )
    names = parse_list(classes, "--classes")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInputError(f"The classes list {', '.join(map(repr, repeated))} twice.")
    broken = [name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name)]
    if broken:  # how Python shows bytes of the command line that are not text
        raise InvalidInputError(f"The class {broken[0]!r} is not UTF-8 text.")
    if len(names) < 2:
        raise InvalidInputError(f"At least two classes are needed. Got {', '.join(names)!r}.")
    return names


def parse_sides(text: str | None, option: str, form: str) -> tuple[int, ...] | None:
    """Read the shape of an image.

    >>> parse_sides("3x32x32", "--image-shape", "CHANNELSxHEIGHTxWIDTH")
    (3, 32, 32)
    """
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) != len(form.split("x")) or not all(
        side.isdecimal() and int(side) > 0 for side in sides
    ):
        raise InvalidInputError(f"{option} is {form}, sides in pixels. Got {text!r}.")
    return tuple(map(int, sides))


def choose(option: str, value: str, allowed: Sequence[str]) -> str:
    """Return `value` if it is allowed, else raise."""
    if value not in allowed:
        raise InvalidInputError(f"{option} is one of {', '.join(allowed)}. Got {value!r}.")
    return value


def refuse_given(options: Mapping[str, Any], who: str) -> None:
    """Refuse options that were given although something else says the same."""
    if given := [option for option, value in options.items() if value is not None]:
        raise InvalidInputError(f"{', '.join(given)}: {who} already says that. Leave it out.")


# What ``--model`` names: the kinds of member that the command line can train.


class _Kind(NamedTuple):
    module: str
    name: str
    parameters: Mapping[str, Any] = {}
    scaled: bool = False  # each member learns the scale from its own rows


_CLOSED_FORM = "poisonproof.members.closed_form"
_TORCH = "poisonproof.networks"
_BOOSTED = {"max_iter": 50, "min_samples_leaf": 5}  # members have few rows

MEMBER_KINDS = {
    "scaled-kernel": _Kind(_CLOSED_FORM, "ScaledKernelClassifier"),
    "tree": _Kind("sklearn.tree", "DecisionTreeClassifier"),
    "naive-bayes": _Kind("sklearn.naive_bayes", "GaussianNB"),
    "logistic": _Kind("sklearn.linear_model", "LogisticRegression", {"max_iter": 1000}, True),
    "svc": _Kind("sklearn.svm", "SVC", scaled=True),
    "forest": _Kind("sklearn.ensemble", "RandomForestClassifier", {"n_estimators": 30}),
    "hist-gradient-boosting": _Kind("sklearn.ensemble", "HistGradientBoostingClassifier", _BOOSTED),
    "lightgbm": _Kind(
        "lightgbm",
        "LGBMClassifier",
        {"n_estimators": 50, "min_child_samples": 5, "verbose": -1},
    ),
    "xgboost": _Kind("xgboost", "XGBClassifier", {"n_estimators": 50}),
    "neighbors": _Kind("sklearn.neighbors", "KNeighborsClassifier", {"n_neighbors": 1}),
    "ridge": _Kind(_CLOSED_FORM, "RidgeClassifier"),
    "kernel-ridge": _Kind(
        _CLOSED_FORM, "KernelRidgeClassifier", {"kernel": "rbf", "gamma": 2.0, "alpha": 0.01}
    ),
    "linear": _Kind(_TORCH, "TorchLearner", {"network": "linear"}),
    "mlp": _Kind(_TORCH, "TorchLearner", {"network": "mlp"}),
    "nin": _Kind(_TORCH, "TorchLearner", {"network": "nin", "augmentation": "crop"}),
    "resnet10": _Kind(_TORCH, "TorchLearner", {"network": "resnet10", "augmentation": "crop"}),
}
DEFAULT_KIND = "scaled-kernel"
"""Takes tables as they come, missing values too, and needs no GPU."""

KIND_HELP = f"Kind of member: {', '.join(MEMBER_KINDS)}"


def make_member(name: str, **network_options: Any) -> Any:
    """Return the unfitted classifier that `name` stands for; only networks take options."""
    kind = MEMBER_KINDS[choose("--model", name, list(MEMBER_KINDS))]
    given = {key: value for key, value in network_options.items() if value is not None}
    if given and kind.module != _TORCH:
        networks = [key for key, other in MEMBER_KINDS.items() if other.module == _TORCH]
        options = ", ".join(f"--{key.replace('_', '-')}" for key in given)
        raise InvalidInputError(
            f"{options} is for networks ({', '.join(networks)}), but --model is {name}."
        )
    with needing(kind.module, "boosting") if kind.module == name else nullcontext():
        module = import_module(kind.module)
    estimator = getattr(module, kind.name)(**kind.parameters, **given)
    if not kind.scaled:
        return estimator
    scaler = import_module("sklearn.preprocessing").StandardScaler()
    return import_module("sklearn.pipeline").make_pipeline(scaler, estimator)


def takes_missing(estimator: Any) -> Missing:
    """Say whether an estimator takes missing values, or does not even see the cells that are."""
    if getattr(estimator, "blanks_cells", False):
        return "cells"
    return bool(import_module("sklearn.utils").get_tags(estimator).input_tags.allow_nan)

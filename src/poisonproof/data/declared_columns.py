"""What the columns of a data file mean: declared by the user, never guessed from the cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from poisonproof.data.schema import Limits
from poisonproof.exceptions import InvalidInputError


@dataclass(frozen=True)
class Schema:
    """Which column holds what.

    Features are numbers (float64, an empty cell is a missing value), labels and groups are text,
    weights are finite numbers that are not negative.

    Parameters
    ----------
    classes : sequence of str
        The label set as text, see `label_text`; needed where `label` is named.
    also : sequence of pairs of str
        Other texts that stand for a class, each with the class.
    label, groups, weights : str, optional
        Columns (arrays of an npz file) with the label, the contributor and the weight of a row.
    features : sequence of str, optional
        Names of the feature columns, in the order of the result. By default every column that
        `label`, `groups`, `weights` and `ignore` do not name, in the order of the file.
    ignore : sequence of str
        Columns that are left out.
    others : {"ignore", "raise"}
        What to do with columns that nothing above names, if `features` are given.
    optional : sequence of str
        Columns that are left out where a file has them.
    texts : sequence of str
        Columns that are read as text beside the features, for a `TableSchema` to encode.
    text_numbers : bool
        Whether numbers may be stored as text, as in a Parquet column with one strange cell.
    n_features : int, optional
        How many features there must be.
    allow_missing : bool
        Whether a feature may be missing.
    samples : str
        Name of the array of an npz file that holds the samples.
    limits : Limits
        The largest cell and line; a row with a larger one is rejected alone.
    """

    classes: Sequence[str] = ()
    label: str | None = None
    groups: str | None = None
    weights: str | None = None
    features: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    others: str = "ignore"
    optional: Sequence[str] = ()
    texts: Sequence[str] = ()
    text_numbers: bool = False
    n_features: int | None = None
    allow_missing: bool = True
    samples: str = "X"
    also: Sequence[tuple[str, str]] = ()
    limits: Limits = field(default_factory=Limits)

    def locate(self, header: Sequence[str], file: object) -> Columns:
        """Find the declared columns in the header of a file.

        Parameters
        ----------
        header : sequence of str
            Column names in file order.
        file : object
            What the errors call the file.

        Raises
        ------
        InvalidInputError
            If a column is missing, named twice, or not declared although all must be.

        Examples
        --------
        >>> schema = Schema(label="kind", classes=("ham", "spam"), ignore=("id",))
        >>> schema.locate(["id", "length", "links", "kind"], "mails.csv").features
        (1, 2)
        """
        repeated = _repeated(header)
        if repeated:
            raise InvalidInputError(f"{file} has more than one column named {listed(repeated)}.")
        position = {name: index for index, name in enumerate(header)}
        special = [name for name in (self.label, self.groups, self.weights) if name is not None]
        if len({*special, *self.ignore}) < len(special) + len(self.ignore):
            raise InvalidInputError(
                "Label, groups, weights and ignored columns must be different columns. Got "
                f"{listed([*special, *self.ignore])}."
            )
        named = [*special, *self.ignore, *(self.features or ()), *self.texts]
        missing = [name for name in named if name not in position]
        if missing:
            raise InvalidInputError(
                f"{file} has no column{'s' * (len(missing) > 1)} {listed(missing)}. Its columns "
                f"are {listed(header)}."
            )
        taken = {*special, *self.ignore, *self.optional, *self.texts}
        rest = [name for name in header if name not in taken]
        features = rest if self.features is None else list(self.features)
        self._check_features(features, rest, file)
        return Columns(
            features=tuple(position[name] for name in features),
            label=None if self.label is None else position[self.label],
            groups=None if self.groups is None else position[self.groups],
            weights=None if self.weights is None else position[self.weights],
            texts=tuple(position[name] for name in self.texts),
        )

    def check_count(self, n_features: int, file: object) -> None:
        """Raise if a file has another number of features than declared."""
        if n_features == 0 and not self.texts:
            raise InvalidInputError(f"{file} has no feature columns.")
        if self.n_features is not None and n_features != self.n_features:
            raise InvalidInputError(
                f"{file} has {n_features} features per row, but the model was trained on "
                f"{self.n_features}."
            )

    def _check_features(self, features: list[str], rest: list[str], file: object) -> None:
        known = set(rest)
        twice = {*_repeated(features), *(name for name in features if name not in known)}
        if twice:
            raise InvalidInputError(
                f"Column {listed(sorted(twice))} is declared twice; a feature column is named once "
                "and is not the label, group, weight or an ignored column."
            )
        declared = set(features)
        extra = [name for name in rest if name not in declared]
        if self.others == "raise" and extra:
            raise InvalidInputError(
                f"{file} has the column{'s' * (len(extra) > 1)} {listed(extra)}, which the model "
                "does not know. Ignore what is no feature (on the command line: --ignore "
                f"{','.join(extra[:12])})."
            )
        if "" in features:
            raise InvalidInputError(
                f"Column {rest.index('') + 1} of {file} has no name. A column of row numbers is no "
                "feature: write the file without it (in pandas index=False), or list the features."
            )
        self.check_count(len(features), file)


@dataclass(frozen=True)
class Columns:
    """Positions of the declared columns in a file."""

    features: tuple[int, ...]
    label: int | None
    groups: int | None
    weights: int | None
    texts: tuple[int, ...] = ()


def _shortened(name: str) -> str:
    return repr(name) if len(name) <= 80 else f"{name[:80]!r}..."


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return names in quotes, the first few of many.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(_shortened(name) for name in list(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"

"""Recipes: which rows of the published tables there are, and how each one is made."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from poisonproof.exceptions import InvalidInputError


@dataclass(frozen=True)
class PaperNumbers:
    """Numbers that the paper prints for one row.

    Attributes
    ----------
    clean, base : float
        Accuracy of the ensemble and mean accuracy of its members, in percent.
    median : int or None
        Median certified robustness as printed: one more than the largest certified size.
    minutes : float or None
        Training time of one member on one GPU of 2020.
    """

    clean: float
    base: float
    median: int | None = None
    minutes: float | None = None


@dataclass(frozen=True)
class DataFacts:
    """The dataset a row must be made from.

    Attributes
    ----------
    name, title : str
        Name in the cache of imported datasets, and what people call it.
    n_train, n_test, n_classes : int
        Sizes.
    sha256 : str
        `RowData.digest` of the published files.
    figure : str
        Number of the paper's figure of the rows of table 1; empty if there is none.
    resized : bool
        Whether members see other images than those as published, which decide the partitions.
    """

    name: str
    title: str
    n_train: int
    n_test: int
    n_classes: int
    sha256: str
    figure: str = ""
    resized: bool = False


@dataclass(frozen=True)
class Recipe:
    """One row of a table.

    Attributes
    ----------
    id : str
        Name of the row, and of the folder of its result.
    table : str
        ``"table1"``, ``"table3"``, ...
    method : {"dpa", "ss-dpa"}
        Against inserted and deleted rows, or against flipped labels.
    data : DataFacts
        The dataset.
    partitioner : str
        Name of the rule that makes the partitions.
    n_partitions : int
        Number of members, k.
    partition_sizes : tuple (smallest, largest)
        As published; nothing is trained on partitions of other sizes.
    learner : mapping
        Its `kind` and its parameters.
    seed : int
        Seed of the ensemble.
    deviations : tuple of str
        What differs from the paper's recipe.
    paper : PaperNumbers
        What the paper prints.
    features : str
        Name of the features that members share; empty if they share none.
    degree : int
        Members that a row reaches. With more than one, `n_partitions` counts the buckets of
        finite aggregation, and its members, which see `degree` buckets each.
    """

    id: str
    table: str
    method: str
    data: DataFacts
    partitioner: str
    n_partitions: int
    partition_sizes: tuple[int, int]
    learner: Mapping[str, Any]
    seed: int
    deviations: tuple[str, ...]
    paper: PaperNumbers
    features: str = ""
    degree: int = 1


def load_recipes(folder: str | Path | None = None) -> dict[str, Recipe]:
    """Read all recipe files of a folder, by default those that come with poisonproof.

    Examples
    --------
    >>> load_recipes()["mnist-dpa-1200"].paper.median
    448
    """
    home = resources.files(__package__) / "recipes" if folder is None else Path(folder)
    if not home.is_dir():
        raise InvalidInputError(f"{home} is not a folder of recipe files.")
    files = sorted((f for f in home.iterdir() if f.name.endswith(".toml")), key=_file_rank)
    if not files:
        raise InvalidInputError(f"{home} holds no recipe files (*.toml).")
    found: dict[str, Recipe] = {}
    for file in files:
        for recipe in _read(file.name, file.read_text(encoding="utf-8")):
            if recipe.id in found:
                raise InvalidInputError(f"{file.name}: there are two rows {recipe.id!r}.")
            found[recipe.id] = recipe
    return dict(sorted(found.items(), key=lambda item: item[1].table))


def select_rows(
    recipes: Mapping[str, Recipe], table: str | None, rows: Sequence[str] = ()
) -> list[Recipe]:
    """Return the rows of one table, all of them or those named."""
    tables = list(dict.fromkeys(recipe.table for recipe in recipes.values()))
    if table is not None and table not in tables:
        raise InvalidInputError(f"There is no {table!r}; known are {', '.join(tables)}.")
    known = [r for r in recipes.values() if table in (None, r.table)]
    if not rows:
        return known
    by_name = {recipe.id: recipe for recipe in known}
    for name in rows:
        if name not in by_name:
            raise InvalidInputError(
                f"There is no row {name!r} in {table or 'the recipes'}; known are "
                f"{', '.join(by_name)}."
            )
    return [by_name[name] for name in dict.fromkeys(rows)]


def _file_rank(file: Any) -> tuple[int, str]:
    # as in the paper
    sets = ("mnist", "cifar10", "gtsrb")
    order = [f"{name}{method}.toml" for name in sets for method in ("", "-ssdpa")]
    return (order.index(file.name) if file.name in order else len(order), file.name)


def _read(name: str, text: str) -> Iterable[Recipe]:
    try:
        values = tomllib.loads(text)
        facts = DataFacts(**values["data"])
        for row in values["row"]:
            yield _recipe(facts, values["learner"], {**values.get("rows", {}), **row})
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise InvalidInputError(f"The recipe file {name} is wrong: {reason}.") from error


def _recipe(facts: DataFacts, learners: Mapping[str, Any], row: dict[str, Any]) -> Recipe:
    learner = dict(learners[row.pop("learner")])
    deviations = tuple(learner.pop("deviations", ()))
    learner["seed_rule"] = row.pop("seed_rule")
    smallest, largest = row.pop("partition_sizes")
    paper = PaperNumbers(**row.pop("paper"))
    return Recipe(
        data=facts,
        learner=learner,
        deviations=deviations,
        partition_sizes=(smallest, largest),
        paper=paper,
        **row,
    )

"""The rows of the tables, each with its result if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from poisonproof.exceptions import InvalidInputError
from poisonproof.reproduction.outcome import Outcome, disagreements, evaluate
from poisonproof.reproduction.recipe import Recipe
from poisonproof.reproduction.result import RowResult
from poisonproof.reproduction.result_files import has_result, read_result

__all__ = ["ReportRow", "read_rows"]

_COMPARED = (
    "network",
    "views",
    "epochs",
    "batch_size",
    "optimizer",
    "learning_rate",
    "momentum",
    "nesterov",
    "weight_decay",
    "schedule",
    "milestones",
    "gamma",
    "seed_rule",
)


@dataclass(frozen=True)
class ReportRow:
    """One row of a table.

    Attributes
    ----------
    recipe : Recipe
        How it is made, and what the paper prints.
    result : RowResult or None
        What was computed; None if the row was not run.
    """

    recipe: Recipe
    result: RowResult | None

    @property
    def is_finished(self) -> bool:
        """Whether all members voted."""
        return self.result is not None and self.result.is_complete

    @cached_property
    def outcome(self) -> Outcome:
        """The numbers of a finished row."""
        assert self.result is not None
        return evaluate(self.result)

    @cached_property
    def disagreements(self) -> list[str]:
        """What lies outside the tolerance, in words."""
        return disagreements(self.outcome, self.recipe.paper)

    @property
    def seconds(self) -> tuple[float, float]:
        """Wall time of training and of voting."""
        runs = self.result.runs if self.result is not None else ()
        return sum(run.seconds[0] for run in runs), sum(run.seconds[1] for run in runs)

    @property
    def is_timed(self) -> bool:
        """Whether the row is finished, on a GPU like the paper's."""
        if self.result is None or not self.is_finished:
            return False
        return bool(self.result.law["specification"]["device"] == "cuda")

    @property
    def paper_seconds(self) -> float | None:
        """The paper's training time: minutes per member times members."""
        minutes = self.recipe.paper.minutes
        return None if minutes is None else 60 * minutes * self.recipe.n_partitions


def read_rows(recipes: Mapping[str, Recipe], results: Path) -> list[ReportRow]:
    """Read the results of all rows, and refuse one that its recipe did not make."""
    rows = []
    for recipe in recipes.values():
        folder = results / recipe.id
        result = read_result(folder) if has_result(folder) else None
        if result is not None:
            _require_recipe(recipe, result, folder)
        rows.append(ReportRow(recipe, result))
    return rows


def _require_recipe(recipe: Recipe, result: RowResult, folder: Path) -> None:
    law: Mapping[str, Any] = result.law
    made = law.get("specification", {})
    wanted = {name: recipe.learner[name] for name in _COMPARED if name in recipe.learner}
    facts = {
        "row": (law.get("row"), recipe.id),
        "data": (law.get("data", {}).get("sha256"), recipe.data.sha256),
        "n_partitions": (result.n_partitions, recipe.n_partitions),
        "seed": (law.get("seed"), recipe.seed),
        **{name: (made.get(name), value) for name, value in wanted.items()},
    }
    for name, (found, expected) in facts.items():
        if found != expected:
            raise InvalidInputError(
                f"{folder} was not made by the recipe {recipe.id}: {name} is {found!r}, not "
                f"{expected!r}. Make the row again."
            )

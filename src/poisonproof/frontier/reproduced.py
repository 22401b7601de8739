"""Rows of the paper's table that were made again, as methods of the frontier."""

from __future__ import annotations

from pathlib import Path

from poisonproof.frontier.files import read_method
from poisonproof.frontier.method import Method
from poisonproof.reproduction import certify_result, load_recipes, read_result
from poisonproof.strict import parse_json

__all__ = ["read_folder"]

_REPRODUCTION = "poisonproof reproduction result"


def read_folder(folder: Path) -> list[Method]:
    """Read all results of a folder: methods, and finished rows of table 1 of the paper.

    Parameters
    ----------
    folder : Path
        One folder per result, with a ``result.json``.
    """
    methods = []
    for path in sorted(folder.glob("*/result.json")):
        kind = parse_json(path.read_bytes()).get("format")
        found = _row(path.parent) if kind == _REPRODUCTION else read_method(path.parent)
        if found is not None:
            methods.append(found)
    return methods


def _row(home: Path) -> Method | None:
    recipe = load_recipes().get(home.name)
    if recipe is None or recipe.table != "table1":
        return None
    result = read_result(home)
    if not result.is_complete:
        return None
    words = "the paper's members, trained again"
    return Method(
        recipe.id,
        recipe.data.name,
        recipe.data.title,
        recipe.method,
        f"{recipe.method.upper()}, {recipe.learner['network']}, k = {recipe.n_partitions:,}",
        f"{words}, {recipe.partitioner} partitions",
        "the paper",
        f"poisonproof reproduce table1 --rows {recipe.id}",
        certify_result(result),
        result.labels,
        {"n_train": recipe.data.n_train},
    )

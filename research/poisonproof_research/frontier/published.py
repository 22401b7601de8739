"""What the paper prints for the same data: points to compare with."""

from __future__ import annotations

from dataclasses import dataclass

from poisonproof_research.reproduction.recipe import load_recipes

_THREATS = {"dpa": "insert_delete", "ss-dpa": "label_flip"}


@dataclass(frozen=True)
class PublishedPoint:
    """One row of the paper's table 1.

    Attributes
    ----------
    dataset, threat : str
        As in `Method`.
    title : str
        The method and its number of partitions.
    clean : float
        Accuracy without an attack.
    median : int or None
        Largest attack size with a certified accuracy of one half: the printed number less one.
    """

    dataset: str
    threat: str
    title: str
    clean: float
    median: int | None


def published_points() -> list[PublishedPoint]:
    """Return the rows of table 1 of Levine and Feizi, as the recipes keep them.

    Examples
    --------
    >>> point = published_points()[0]
    >>> point.dataset, point.median, point.title
    ('mnist', 447, 'paper: DPA, k = 1,200')
    """
    return [
        PublishedPoint(
            recipe.data.name,
            _THREATS[recipe.method],
            f"paper: {recipe.method.upper()}, k = {recipe.n_partitions:,}",
            recipe.paper.clean / 100,
            None if recipe.paper.median is None else recipe.paper.median - 1,
        )
        for recipe in load_recipes().values()
        if recipe.table == "table1"
    ]

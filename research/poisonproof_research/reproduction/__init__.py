"""The published tables and figures: recipes, results, and the page that compares them."""

from __future__ import annotations

from poisonproof_research.reproduction.learner import FeatureFolder
from poisonproof_research.reproduction.outcome import (
    Outcome,
    certify_result,
    evaluate,
    read_result,
    write_result,
)
from poisonproof_research.reproduction.recipe import (
    PaperNumbers,
    Recipe,
    load_recipes,
    select_rows,
)
from poisonproof_research.reproduction.result import RowResult, merge_results
from poisonproof_research.reproduction.row_data import (
    RowData,
    data_from_cache,
    data_from_pack,
    make_partitions,
    write_pack,
)
from poisonproof_research.reproduction.running import Options, gather_results, run_row

__all__ = [
    "FeatureFolder",
    "Options",
    "Outcome",
    "PaperNumbers",
    "Recipe",
    "RowData",
    "RowResult",
    "certify_result",
    "data_from_cache",
    "data_from_pack",
    "evaluate",
    "gather_results",
    "load_recipes",
    "make_partitions",
    "merge_results",
    "read_result",
    "run_row",
    "select_rows",
    "write_pack",
    "write_result",
]

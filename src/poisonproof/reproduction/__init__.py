"""The published tables and figures: recipes, results, and the page that compares them."""

from __future__ import annotations

from poisonproof.reproduction.law import FeatureFolder
from poisonproof.reproduction.outcome import Outcome, certify_result, evaluate
from poisonproof.reproduction.packing import data_from_pack, write_pack
from poisonproof.reproduction.recipe import PaperNumbers, Recipe, load_recipes, select_rows
from poisonproof.reproduction.result import RowResult, merge_results
from poisonproof.reproduction.result_files import read_result, write_result
from poisonproof.reproduction.row_data import RowData, data_from_cache, make_partitions
from poisonproof.reproduction.running import Options, gather_results, run_row

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

"""Rows of SS-DPA on MNIST with two kinds of first weights, side by side.

Run: python research/experiments/first_weights/compare.py UNIFORM --out research/experiments/first_weights/rows.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from poisonproof_research.reproduction import RowResult, evaluate, load_recipes, read_result


def numbers(result: RowResult) -> dict[str, float | int | None]:
    """Return accuracies in percent and the median radius."""
    found = evaluate(result)
    return {"clean": round(found.clean, 2), "base": round(found.base, 2), "median": found.median}


def rest_of_law(result: RowResult) -> dict[str, Any]:
    """Return the origin of a row but for its members' first weights."""
    origin = {key: value for key, value in result.origin.items() if key != "specification_sha256"}
    return {**origin, "specification": {**origin["specification"], "first_weights": None}}


def main() -> None:
    """Compare the rows that both folders hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("uniform", type=Path, help="rows made without `first_weights`")
    parser.add_argument("--results", type=Path, default=Path("research/results"))
    parser.add_argument("--out", type=Path, required=True, help="a json file")
    given = parser.parse_args()
    found = {}
    for home in sorted(path.parent for path in given.uniform.glob("*/result.json")):
        uniform, normal = read_result(home), read_result(given.results / home.name)
        if rest_of_law(uniform) != rest_of_law(normal):
            raise SystemExit(f"{home.name}: more than the first weights differs.")
        paper = load_recipes()[home.name].paper
        found[home.name] = {
            "uniform": numbers(uniform),
            "normal": numbers(normal),
            "paper": {"clean": paper.clean, "base": paper.base, "median": paper.median - 1},
        }
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""Labels that all members of a one-seed row favour, from committed rows alone.

    python research/experiments/one_seed/favoured.py --out research/experiments/one_seed/favoured.json

Members that share their first weights share what these weights lean to. With own seeds leanings
differ and cancel; with one seed they add up.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from poisonproof_research.reproduction import certify_result, read_result

ROWS = ("mnist-ssdpa-1200", "mnist-ssdpa-3000", "mnist-dpa-1200", "mnist-dpa-3000")


def leanings(folder: Path) -> dict[str, Any]:
    """Return each label's share of all votes, and how many of its images are classified right."""
    result = read_result(folder)
    labels = range(result.n_classes)
    votes = result.counts.sum(axis=0)
    right = certify_result(result).labels == result.labels
    return {
        "votes_percent": (100 * votes / votes.sum()).round(2).tolist(),
        "right_percent": [
            round(100 * float(right[result.labels == label].mean()), 2) for label in labels
        ],
    }


def main() -> None:
    """Compare every row with its one-seed form."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("research/results"))
    parser.add_argument("--out", type=Path, required=True, help="a json file")
    given = parser.parse_args()
    found = {
        name: leanings(given.results / name) for row in ROWS for name in (row, f"{row}-oneseed")
    }
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name, numbers in found.items():
        print(name, numbers)


if __name__ == "__main__":
    main()

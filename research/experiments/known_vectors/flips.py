"""Label flips at the radius, as `../label_flips/run.py`, of a row that `rows.py` made.

Run: python research/experiments/known_vectors/flips.py gtsrb-ssdpa-200 --features DIR --vectors VECTORS
--data PACK --out research/experiments/label_flips/gtsrb-ssdpa-200.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rows import Known

from poisonproof.networks import load_features
from poisonproof_research.reproduction import data_from_pack, load_recipes, read_result

sys.path.append(str(Path(__file__).parents[1] / "label_flips"))
from run import AttackedRow, attack_all


def main() -> None:
    """Attack one row and write what happened."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("row")
    parser.add_argument("--features", type=Path, required=True, help="--out of features train")
    parser.add_argument("--vectors", type=Path, required=True, help="--out of vectors.py")
    parser.add_argument("--data", type=Path, required=True, help="a packed dataset")
    parser.add_argument("--results", type=Path, default=Path("research/results"))
    parser.add_argument("--attacks", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    data = data_from_pack(given.data)
    known = Known(load_features(given.features), data, given.vectors)
    result = read_result(given.results / given.row)
    row = AttackedRow(load_recipes()[given.row], data, result, known, "cpu")
    found = attack_all(row, given.attacks, given.seed)
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

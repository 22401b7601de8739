"""Orientation histograms of all images as vectors for research/experiments/refined_clusters/run.py.

    python research/experiments/signs/edges.py --data PACK --features FILE --out DIR

FILE is that of ``run.py``, which is computed where it is missing. The map is fixed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from run import CELLS, mapped

from poisonproof_research.reproduction import data_from_pack

sys.path.append(str(Path(__file__).parents[1] / "refined_clusters"))
from vectors import write_parts


def main() -> None:
    """Write the vectors of both splits, labels beside them, and what they are."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = data_from_pack(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for what, vectors in zip(("train", "test"), mapped(rows, options.features), strict=True):
        files |= write_parts(options.out, what, vectors)
    np.savez_compressed(options.out / "labels.npz", train=rows.y_train, test=rows.y_test)
    about = {
        "features_sha256": hashlib.sha256(json.dumps(files).encode()).hexdigest(),
        "kind": "edges",
        "words": f"orientation histograms, 8 directions, cells of {CELLS[rows.name]}, blocks of 2",
        "files": files,
    }
    (options.out / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Map all images of a dataset by learned features, on the machine that learned them.

Run: python research/experiments/known_vectors/vectors.py --features DIR --data PACK --out VECTORS
`rows.py` makes SS-DPA rows from VECTORS, on any machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np

from poisonproof.networks import load_features
from poisonproof_research.reproduction import data_from_pack

PART = 12_500
"""Vectors in a file."""


def main() -> None:
    """Write the vectors of both splits as float16 parts, and what they are."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--features", type=Path, required=True, help="--out of features train")
    parser.add_argument("--data", type=Path, required=True, help="a packed dataset")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    data, frozen = data_from_pack(given.data), load_features(given.features)
    files = {}
    for split, images in (("train", data.x_train), ("test", data.x_test)):
        vectors = frozen.transform(images)
        for number, start in enumerate(range(0, len(vectors), PART)):
            path = given.out / f"{split}-{number}.npy"
            np.save(path, vectors[start : start + PART].astype(np.float16))
            files[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    about = {"features_sha256": frozen.digest(), "data_sha256": data.digest, "files": files}
    (given.out / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

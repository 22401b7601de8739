"""SS-DPA rows on the vectors that `vectors.py` wrote: linear members, trained without a GPU.

Run: python research/experiments/known_vectors/rows.py --features DIR --vectors VECTORS --data PACK
The rows name the features' digest and the epochs behind them, as all rows do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.networks import FrozenNetwork, load_features
from poisonproof_research.reproduction import (
    Options,
    RowData,
    data_from_pack,
    load_recipes,
    run_row,
)


class Known(FrozenNetwork):
    """A map whose values on one dataset are known.

    Parameters
    ----------
    frozen : FrozenNetwork
        The map.
    data : RowData
        The dataset.
    folder : Path
        Its vectors.
    """

    def __init__(self, frozen: FrozenNetwork, data: RowData, folder: Path) -> None:
        super().__init__(frozen.spec, frozen.tensors, frozen.law, frozen.history)
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        if (about["features_sha256"], about["data_sha256"]) != (frozen.digest(), data.digest):
            raise SystemExit(f"{folder} holds vectors of another map or of other images.")
        for name, expected in about["files"].items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != expected:
                raise SystemExit(f"{folder / name} is damaged.")
        self._images = (data.x_train, data.x_test)
        self._vectors = [
            np.concatenate([np.load(folder / name) for name in sorted(about["files"]) if s in name])
            for s in ("train", "test")
        ]

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the known vectors of the training or of the test images."""
        place = [X is images for images in self._images].index(True)
        return self._vectors[place].astype(np.float32)


def main() -> None:
    """Make the rows of a dataset, or go on with them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--features", type=Path, required=True, help="--out of features train")
    parser.add_argument("--vectors", type=Path, required=True, help="--out of vectors.py")
    parser.add_argument("--data", type=Path, required=True, help="a packed dataset")
    parser.add_argument("--rows", nargs="*", help="by default all SS-DPA rows of the dataset")
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    given = parser.parse_args()
    data = data_from_pack(given.data)
    known = Known(load_features(given.features), data, given.vectors)
    for recipe in load_recipes().values():
        if recipe.features == f"simclr-{data.name}" and recipe.id in (given.rows or [recipe.id]):
            command = f"python research/experiments/known_vectors/rows.py --rows {recipe.id}"
            options = Options("cpu", features=known, n_jobs=1, command=command, say=print)
            run_row(recipe, data, given.out, options)


if __name__ == "__main__":
    main()

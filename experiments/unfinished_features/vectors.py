"""Map all images of a dataset by the newest checkpoint of an unfinished `features train`.

Run: python experiments/unfinished_features/vectors.py --run DIR --data PACK --out VECTORS
On the kind of machine that trains. `rows.py` makes SS-DPA rows from VECTORS, on any machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof.engines.torch.device import fingerprint
from poisonproof.pretraining import FrozenNetwork, pretraining_recipe
from poisonproof.pretraining.checkpoint import RunFolder
from poisonproof.pretraining.samples import samples_digest, sorted_images
from poisonproof.reproduction import RowData, data_from_pack

PART = 12_500
"""Vectors in a file."""


def newest(run: Path, data: RowData, machine: dict[str, Any] | None = None) -> FrozenNetwork:
    """Return the map of a run's newest checkpoint, made under the law it names.

    Parameters
    ----------
    run : Path
        The folder ``run`` inside ``--out`` of ``poisonproof features train``.
    data : RowData
        What it learns from.
    machine : dict, optional
        The machine that trains; by default this one.
    """
    spec = pretraining_recipe(
        f"simclr-{data.name}", device="cuda", dtype="bfloat16", engine="compiled"
    )
    law = {
        "specification": spec.to_json(),
        "samples_sha256": samples_digest(sorted_images(data.x_train, spec.input_shape)),
        "machine": machine or fingerprint(spec.machine()),
    }
    found = RunFolder(run, law).load()  # refuses another law
    if found is None:
        raise SystemExit(f"{run} holds no checkpoint.")
    return FrozenNetwork(spec, found.weights, law, found.history)


def main() -> None:
    """Write the vectors of both splits as float16 parts, and what they are."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="the folder of checkpoints")
    parser.add_argument("--data", type=Path, required=True, help="a packed dataset")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    data = data_from_pack(given.data)
    frozen = newest(given.run, data)
    files = {}
    for split, images in (("train", data.x_train), ("test", data.x_test)):
        vectors = frozen.transform(images)
        for number, start in enumerate(range(0, len(vectors), PART)):
            path = given.out / f"{split}-{number}.npy"
            np.save(path, vectors[start : start + PART].astype(np.float16))
            files[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    about = {
        "features_sha256": frozen.digest(),
        "data_sha256": data.digest,
        "machine": frozen.law["machine"],
        "files": files,
    }
    (given.out / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Vectors of all images under a learned map, in the order of the dataset, as float16 files.

    python experiments/refined_clusters/vectors.py --data PACK --features DIR --out OUT

DIR holds ``features.safetensors`` or ``clusters.safetensors``; of the latter the probabilities of
all clusters are written, too. No label is read to make a vector; labels are copied beside them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.pretraining import (
    ClusterNetwork,
    FrozenNetwork,
    load_clusters,
    load_features,
)
from poisonproof.reproduction import data_from_pack

PART = 12_500
"""Rows of one file: below 16 MiB."""


def read(folder: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return training vectors, test vectors and both labels, checked against their digests."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    for name, digest in about["files"].items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise SystemExit(f"{folder / name} is damaged.")

    def joined(what: str) -> NDArray[Any]:
        names = sorted(name for name in about["files"] if name.startswith(f"{what}-"))
        return np.concatenate([np.load(folder / name) for name in names])

    labels = np.load(folder / "labels.npz")
    return joined("train"), joined("test"), labels["train"], labels["test"]


def write_parts(folder: Path, what: str, vectors: NDArray[Any]) -> dict[str, str]:
    """Write vectors as float16 files of some rows each; return their digests by name."""
    digests = {}
    for number, start in enumerate(range(0, len(vectors), PART)):
        path = folder / f"{what}-{number}.npy"
        np.save(path, vectors[start : start + PART].astype(np.float16))
        digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def _epochs(network: FrozenNetwork) -> int:
    """Return how long the features were trained, before any refinement."""
    law = network.law.get("features_law", network.law)
    return len(network.history) if law is network.law else int(law["specification"]["epochs"])


def main() -> None:
    """Map all images and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--device", default=None)
    parser.add_argument("--only-clusters", action="store_true", help="leave out the vectors")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = data_from_pack(options.data)
    refined = (options.features / "clusters.safetensors").is_file()
    network = (load_clusters if refined else load_features)(options.features, device=options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for what, images in (("train", rows.x_train), ("test", rows.x_test)):
        if isinstance(network, ClusterNetwork):
            chances = network.probabilities(images).astype(np.float32)
            np.savez_compressed(options.out / f"clusters-{what}.npz", probabilities=chances)
        if options.only_clusters:
            continue
        files |= write_parts(options.out, what, network.transform(images))
    np.savez_compressed(options.out / "labels.npz", train=rows.y_train, test=rows.y_test)
    about = {
        "features_sha256": network.digest(),
        "epochs": _epochs(network),
        "report": getattr(network, "report", {}),
        "files": files,
    }
    (options.out / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
    print(json.dumps(about))


if __name__ == "__main__":
    main()

"""Vectors of all images under a learned map, in the order of the dataset, as float16 files.

    python research/experiments/refined_clusters/vectors.py --data PACK --features DIR --out OUT
    python research/experiments/refined_clusters/vectors.py --data PACK --features DIR --crops --out OUT

DIR holds ``features.safetensors`` or ``clusters.safetensors``; of the latter the probabilities of
all clusters are written, too, unless ``--only`` says otherwise. ``--crops`` writes the mean vector
of an image's crops. No label is read to make a vector; labels are copied beside them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poisonproof.networks import FrozenNetwork, load_features
from poisonproof_research.networks.refining import ClusterNetwork, load_clusters
from poisonproof_research.reproduction import data_from_pack

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


def crops(images: NDArray[Any], mirrored: bool) -> Iterator[NDArray[np.uint8]]:
    """Yield the corners and the centre, seven eighths of each side, at full size, and mirrored."""
    height, width = images.shape[2:]
    high, wide = round(height * 7 / 8), round(width * 7 / 8)
    down, right = height - high, width - wide
    for top, left in ((0, 0), (0, right), (down, 0), (down, right), (down // 2, right // 2)):
        part = torch.from_numpy(images[:, :, top : top + high, left : left + wide]).float()
        whole = torch.nn.functional.interpolate(part, (height, width), mode="bilinear")
        crop = whole.round().clamp(0, 255).to(torch.uint8).numpy()
        yield crop
        if mirrored:
            yield np.ascontiguousarray(crop[..., ::-1])


def _mean_of_crops(network: FrozenNetwork, images: NDArray[Any]) -> NDArray[np.float32]:
    vectors = [network.transform(crop) for crop in crops(images, network.spec.flip)]
    return np.mean(vectors, axis=0, dtype=np.float32)


def _epochs(network: FrozenNetwork) -> int:
    """Return how long the features were trained, before any refinement."""
    features = network.law.get("features_law")
    return len(network.history) if features is None else int(features["specification"]["epochs"])


def main() -> None:
    """Map all images and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--device", default=None)
    parser.add_argument("--crops", action="store_true", help="mean vectors of crops")
    parser.add_argument("--only", choices=("clusters", "vectors"), help="leave out the other")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = data_from_pack(options.data)
    refined = (options.features / "clusters.safetensors").is_file()
    network = (load_clusters if refined else load_features)(options.features, device=options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for what, images in (("train", rows.x_train), ("test", rows.x_test)):
        if isinstance(network, ClusterNetwork) and options.only != "vectors":
            chances = network.probabilities(images).astype(np.float32)
            np.savez_compressed(options.out / f"clusters-{what}.npz", probabilities=chances)
        if options.only == "clusters":
            continue
        mapped = _mean_of_crops(network, images) if options.crops else network.transform(images)
        files |= write_parts(options.out, what, mapped)
    np.savez_compressed(options.out / "labels.npz", train=rows.y_train, test=rows.y_test)
    digest = network.digest()
    about: dict[str, Any] = {
        "features_sha256": hashlib.sha256(f"{digest} crops".encode()).hexdigest()
        if options.crops
        else digest,
        "epochs": _epochs(network),
        "report": getattr(network, "report", {}),
        "files": files,
    }
    if isinstance(network, ClusterNetwork) and files:
        words = f"SimCLR, {about['epochs']} epochs, refined ({about['report']['stage']})"
        about |= {"kind": "refined-vectors", "words": words}
    elif options.crops:
        about |= {"kind": "crops", "words": f"SimCLR, {about['epochs']} epochs, mean of crops"}
    (options.out / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
    print(json.dumps(about))


if __name__ == "__main__":
    main()

"""Scattering of CIFAR-10's images, of their mirror images and of the test images: a fixed map.

    python experiments/committees/waves.py --data PACK --out FOLDER

Square roots of the coefficients, as of the histograms of edges; three octaves, six directions.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.features import Scattering
from poisonproof.reproduction import data_from_pack

KINDS = ("train", "mirrored", "test")


def main() -> None:
    """Write one file per kind of image."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    data = data_from_pack(options.data)
    waves = Scattering(n_scales=3, n_orientations=6, n_jobs=options.jobs)
    options.out.mkdir(parents=True, exist_ok=True)
    images = (data.x_train, data.x_train[..., ::-1], data.x_test)
    for kind, some in zip(KINDS, images, strict=True):
        mapped: NDArray[Any] = waves.fit_transform(np.moveaxis(some, 1, -1))
        np.save(options.out / f"{kind}.npy", np.sqrt(np.maximum(mapped, 0.0)))
        print(f"{kind}: {mapped.shape}", flush=True)


if __name__ == "__main__":
    main()

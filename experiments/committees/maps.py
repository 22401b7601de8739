"""Fixed maps of CIFAR-10's images, of their mirror images and of the test images.

    python experiments/committees/maps.py --data PACK --out MAPS

Scattering (three octaves, six directions) and responses to patches of photographs (the defaults);
square roots of both, as of the histograms of edges.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from poisonproof.features import PatchResponses, Scattering
from poisonproof.reproduction import data_from_pack

MAPS = {"waves": Scattering(n_scales=3, n_orientations=6), "patches": PatchResponses()}
IMAGES = ("train", "mirrored", "test")


def main() -> None:
    """Write one file per map and kind of image."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=MAPS, help="one of the maps")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    data = data_from_pack(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in [options.only] if options.only else MAPS:
        fixed = MAPS[name].set_params(n_jobs=options.jobs)
        images = (data.x_train, data.x_train[..., ::-1], data.x_test)
        for kind, some in zip(IMAGES, images, strict=True):
            mapped = fixed.transform(np.moveaxis(some, 1, -1))
            np.save(options.out / f"{name}-{kind}.npy", np.sqrt(np.maximum(mapped, 0.0)))
            print(f"{name}, {kind}: {mapped.shape}", flush=True)


if __name__ == "__main__":
    main()

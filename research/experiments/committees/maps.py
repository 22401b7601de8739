"""Fixed maps of CIFAR-10's images, of their copies and of the test images.

    python research/experiments/committees/maps.py --data PACK --out MAPS
    python research/experiments/committees/maps.py --data PACK --out MAPS --moved

Scattering (three octaves, six directions) and responses to patches of photographs (the defaults);
square roots of both, as of the histograms of edges. Without ``--moved`` copies are mirror images;
with it, those of `MOVED`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poisonproof.features import PatchResponses, Scattering, image_copies
from poisonproof_research.reproduction import data_from_pack

sys.path.insert(0, str(Path(__file__).parent.parent / "signs"))
from colours import colours
from run import histogram_of

MAPS = {"waves": Scattering(n_scales=3, n_orientations=6), "patches": PatchResponses()}
PLAIN = (0, 5)
SIX = (0, 5, 4, 1, 8, 7)
MOVED = {"edges": tuple(range(10)), "waves": SIX, "patches": SIX}
"""Copies that members of a kind see, as `image_copies` counts them: the wider a map, the fewer."""


def edges(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return edges and colours of images (n, height, width, 3)."""
    drawn = histogram_of("cifar10").transform(images)
    tinted = colours(np.ascontiguousarray(np.moveaxis(images, -1, 1)))
    return np.concatenate([drawn, tinted], axis=1)


def copies_of(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the ten copies of images, shape (10, n, height, width, channels)."""
    return image_copies(images).images.reshape(-1, *images.shape)


def main() -> None:
    """Write one file per map and copy."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=MAPS, help="one of the maps")
    parser.add_argument("--moved", action="store_true", help="moved images, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    data = data_from_pack(options.data)
    train, test = (np.moveaxis(some, 1, -1) for some in (data.x_train, data.x_test))
    copies = copies_of(train)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in [options.only] if options.only else MAPS:
        fixed = MAPS[name].set_params(n_jobs=options.jobs)
        asked = [
            (str(number), copies[number]) for number in (MOVED[name] if options.moved else PLAIN)
        ]
        for kind, some in [*asked, ("test", test)]:
            file = options.out / f"{name}-{kind}.npy"
            if not file.exists():
                mapped = fixed.transform(some)
                np.save(file, np.sqrt(np.maximum(mapped, 0.0)))
                print(f"{name}, {kind}: {mapped.shape}", flush=True)


if __name__ == "__main__":
    main()

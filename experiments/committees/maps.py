"""Fixed maps of CIFAR-10's images, of their copies and of the test images.

    python experiments/committees/maps.py --data PACK --out MAPS
    python experiments/committees/maps.py --data PACK --out MAPS --moved

Scattering (three octaves, six directions) and responses to patches of photographs (the defaults);
square roots of both, as of the histograms of edges. Without ``--moved`` copies are mirror images;
with it, those of `MOVED`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poisonproof.features import PatchResponses, Scattering
from poisonproof.reproduction import data_from_pack

sys.path.insert(0, str(Path(__file__).parent.parent / "signs"))
from colours import colours
from run import histogram_of

MAPS = {"waves": Scattering(n_scales=3, n_orientations=6), "patches": PatchResponses()}
REACH = 4


class View(NamedTuple):
    """An image moved by some pixels, and mirrored or not."""

    down: int = 0
    across: int = 0
    mirrored: bool = False

    def of(self, images: NDArray[Any]) -> NDArray[Any]:
        """Return images (n, height, width, channels) so seen; borders are reflected."""
        height, width = images.shape[1:3]
        edge = (REACH, REACH)
        wide = np.pad(images, ((0, 0), edge, edge, (0, 0)), mode="reflect")
        top, left = REACH + self.down, REACH + self.across
        seen = wide[:, top : top + height, left : left + width]
        return np.ascontiguousarray(seen[:, :, ::-1] if self.mirrored else seen)

    def __str__(self) -> str:
        if self == View():
            return "train"
        place = f"{self.down:+d}{self.across:+d}" if self.down or self.across else ""
        return "mirrored" * self.mirrored + place


PLAIN = (View(), View(mirrored=True))
CORNERS = ((REACH, REACH), (-REACH, -REACH), (REACH, -REACH), (-REACH, REACH))
_HALF = (
    *PLAIN,
    *(View(*place) for place in CORNERS[:2]),
    *(View(*place, mirrored=True) for place in CORNERS[2:]),
)
MOVED = {
    "edges": (*PLAIN, *(View(*at, mirrored=turned) for at in CORNERS for turned in (False, True))),
    "waves": _HALF,
    "patches": _HALF[:3],
}
"""Copies that members of a kind see: the wider its map, the fewer."""


def edges(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return edges and colours of images (n, height, width, 3)."""
    drawn = histogram_of("cifar10").transform(images)
    tinted = colours(np.ascontiguousarray(np.moveaxis(images, -1, 1)))
    return np.concatenate([drawn, tinted], axis=1)


def main() -> None:
    """Write one file per map and view."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=MAPS, help="one of the maps")
    parser.add_argument("--moved", action="store_true", help="moved images, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    data = data_from_pack(options.data)
    train, test = (np.moveaxis(some, 1, -1) for some in (data.x_train, data.x_test))
    options.out.mkdir(parents=True, exist_ok=True)
    for name in [options.only] if options.only else MAPS:
        fixed = MAPS[name].set_params(n_jobs=options.jobs)
        views = MOVED[name] if options.moved else PLAIN
        asked = [(str(view), view.of(train)) for view in views]
        for kind, some in [*asked, ("test", test)]:
            file = options.out / f"{name}-{kind}.npy"
            if not file.exists():
                mapped = fixed.transform(some)
                np.save(file, np.sqrt(np.maximum(mapped, 0.0)))
                print(f"{name}, {kind}: {mapped.shape}", flush=True)


if __name__ == "__main__":
    main()

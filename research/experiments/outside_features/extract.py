"""Run a network trained elsewhere over all images of a dataset, one image at a time.

    python research/experiments/outside_features/extract.py --data PACK --network lite0 \
        --weights lite0.safetensors --mirrored --out DIR --workers 16

Every image is enlarged to the side the network was trained for, or ``--side``, and mapped alone, by
one thread, so no image can touch the features of another. With ``--mirrored`` the features are the
mean over the image and its mirror image; ``--layer middle`` stops where cells have a stride of 16.
They are kept as integers from -127 to 127 and one scale per row; a part that is there is not
made again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lite import CENTRE, SCALE, SIDES, from_tensors
from safetensors.torch import load_file
from torch.nn.functional import interpolate

from poisonproof_research.reproduction import data_from_pack

PIECE = 250
_worker: dict[str, Any] = {}


def begin(name: str, weights: str, mirrored: bool, side: int, layer: str) -> None:
    """Load the network in a worker."""
    torch.set_num_threads(1)
    network = from_tensors(name, load_file(weights)).to(memory_format=torch.channels_last)
    run = network if layer == "last" else network.middle
    _worker.update(network=run, side=side, mirrored=mirrored)


def features_of(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the features of one image, pixels of shape (3, height, width)."""
    side = _worker["side"]
    image = torch.from_numpy(pixels.astype(np.float32))[None]
    image = interpolate(image, size=(side, side), mode="bicubic", antialias=True)
    image = (image.clamp(0, 255) - CENTRE) / SCALE
    views = [image, image.flip(3)] if _worker["mirrored"] else [image]
    laid = [view.contiguous(memory_format=torch.channels_last) for view in views]
    with torch.inference_mode():
        out = [_worker["network"](view)[0] for view in laid]
        return np.asarray(torch.stack(out).mean(dim=0).numpy())


def codes_of(images: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the features of some images as integers and scales."""
    rows = np.stack([features_of(pixels) for pixels in images])
    scales = np.maximum(np.abs(rows).max(axis=1), np.float32(1e-12)) / np.float32(127)
    return np.rint(rows / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def main() -> None:
    """Make all parts that are not there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--network", choices=sorted(SIDES), required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--mirrored", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--side", type=int, help="another side than the network's own")
    parser.add_argument("--layer", choices=("last", "middle"), default="last")
    parser.add_argument("--rows", type=int, default=25_000, help="images in a part")
    parser.add_argument("--limit-seconds", type=float, default=1e9, help="begin no part after")
    options = parser.parse_args()
    data = data_from_pack(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    side = options.side or SIDES[options.network]
    start = (options.network, options.weights, options.mirrored, side, options.layer)
    with multiprocessing.get_context("spawn").Pool(options.workers, begin, start) as pool:
        for split, images in (("test", data.x_test), ("train", data.x_train)):
            for first in range(0, len(images), options.rows):
                file = options.out / f"{data.name}-{options.network}-{split}-{first:05d}.npz"
                if file.exists():
                    continue
                if time.perf_counter() - began > options.limit_seconds:
                    raise SystemExit("not finished: start it again")
                rows = images[first : first + options.rows]
                pieces = [rows[at : at + PIECE] for at in range(0, len(rows), PIECE)]
                made = []
                for done, piece in enumerate(pool.imap(codes_of, pieces), 1):
                    made.append(piece)
                    if done % 10 == 0:
                        print(
                            f"{file.name}: {done * PIECE:,} rows, "
                            f"{time.perf_counter() - began:.0f} s",
                            flush=True,
                        )
                partial = file.with_suffix(".partial.npz")
                np.savez(
                    partial,
                    codes=np.concatenate([codes for codes, _ in made]),
                    scales=np.concatenate([scales for _, scales in made]),
                )
                partial.rename(file)
    about = {
        "data": data.digest,
        "network": options.network,
        "mirrored": options.mirrored,
        "side": side,
        "layer": options.layer,
        "torch": torch.__version__,
        "machine": f"{platform.processor()} {torch.backends.cpu.get_cpu_capability()}",
        "seconds": round(time.perf_counter() - began, 1),
    }
    (options.out / f"{data.name}-{options.network}.json").write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()

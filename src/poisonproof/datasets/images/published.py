"""Whether what was read is the published dataset, whatever form it was read from.

The arrays are written back in the published form in memory, and the digest of that is compared: a
npz file and the compressed idx files pass or fail alike. GTSRB has thousands of files and no
published digest of their contents: it is checked by count and sum of all pixels, then by a digest
that was recorded from files with those totals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.images.cifar import BATCHES, batch_md5s
from poisonproof.datasets.images.idx import IDX_FILES, idx_md5
from poisonproof.exceptions import InvalidInputError

__all__ = ["check_cifar10", "check_fashion_mnist", "check_gtsrb", "check_mnist"]

Arrays = Mapping[str, NDArray[Any]]

MNIST_MD5 = {
    "x_train": "6bbc9ace898e44ae57da46a324031adb",
    "y_train": "a25bea736e30d166cdddb491f175f624",
    "x_test": "2646ac647ad5339dbf082846283269ea",
    "y_test": "27ae3e4e09519cfbb04c329615203637",
}
FASHION_MNIST_MD5 = {
    "x_train": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "y_train": "9018921c3c673c538a1fc5bad174d6f9",
    "x_test": "8181f5470baa50b63fa0f6fddb340f0a",
    "y_test": "15d484375f8d13e6eb1aabb0c3f46965",
}
CIFAR10_MD5 = {
    "train": [
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
    ],
    "test": ["803d5f7f4d78ea53de84dbe85f74fb6d"],
}
CIFAR10_BATCH = 10_000
GTSRB_TOTALS = {
    "train": {"images": 39_209, "pixel values": 33_616_433_603},
    "test": {"images": 12_630, "pixel values": 10_659_800_307},
}
GTSRB_SHA256 = {
    "train": "fd057ac719e406831b499d64ac4a5ae7a09319c03cbfe60406968ee656b382ae",
    "test": "d690b996ffd496f2ed9e4bf21bae02fe15baa89922b181dd751e416ebdfe7b22",
}


def check_mnist(arrays: Arrays) -> None:
    """Raise unless these are the 70,000 published images of MNIST in their order."""
    _check_idx(arrays, MNIST_MD5, "MNIST")


def check_fashion_mnist(arrays: Arrays) -> None:
    """Raise unless these are the 70,000 published images of Fashion-MNIST in their order."""
    _check_idx(arrays, FASHION_MNIST_MD5, "Fashion-MNIST")


def _check_idx(arrays: Arrays, md5s: Mapping[str, str], title: str) -> None:
    for key, published in md5s.items():
        _compare(title, IDX_FILES[key], "MD5", idx_md5(arrays[key]), published)


def check_cifar10(arrays: Arrays) -> None:
    """Raise unless these are the 60,000 published images of CIFAR-10 in their order."""
    for split, published in CIFAR10_MD5.items():
        images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
        _compare(
            "CIFAR-10", f"the {split} images", "number", len(images), len(published) * CIFAR10_BATCH
        )
        found = batch_md5s(images, labels, CIFAR10_BATCH)
        for name, md5, expected in zip(BATCHES[split], found, published, strict=True):
            _compare("CIFAR-10", f"{name}.bin", "MD5", md5, expected)


def check_gtsrb(arrays: Arrays) -> None:
    """Raise unless these are the 51,839 published images of GTSRB in their order."""
    totals = {"images": "number", "pixel values": "sum"}
    for split, published in GTSRB_TOTALS.items():
        found = {
            "images": len(arrays[f"y_{split}"]),
            "pixel values": int(arrays[f"originals_{split}_values"].sum(dtype=np.int64)),
        }
        for what, expected in published.items():
            _compare("GTSRB", f"the {split} {what}", totals[what], found[what], expected)
        digest = hashlib.sha256(arrays[f"originals_{split}_values"].data)
        digest.update(arrays[f"originals_{split}_shapes"].astype("<u2").data)
        digest.update(arrays[f"y_{split}"].astype(np.uint8).data)
        _compare("GTSRB", f"the {split} set", "SHA-256", digest.hexdigest(), GTSRB_SHA256[split])


def _compare(title: str, part: str, kind: str, found: str | int, expected: str | int) -> None:
    if found != expected:
        raise InvalidInputError(
            f"This is not the published {title}: the {kind} of {part} is {found}, published is "
            f"{expected}. Get the files again, or import them unchecked with --unpublished."
        )

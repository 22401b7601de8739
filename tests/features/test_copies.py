"""Copies of images show the same image, and reach the members that it reaches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poisonproof import DPAClassifier
from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features import OrientationHistogram, image_copies


def photographs(n: int, *shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(5).integers(0, 256, (n, *shape), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(12, 9), (12, 9, 3)])
def test_copies_are_the_image_moved_and_mirrored(shape: tuple[int, ...]) -> None:
    images = photographs(4, *shape)
    seen = image_copies(images, reach=2)
    copies = seen.images.reshape(10, *images.shape)
    assert copies.dtype == images.dtype
    assert np.array_equal(copies[0], images)
    for copy, (down, across) in zip(copies[1:5], [(2, 2), (2, -2), (-2, 2), (-2, -2)], strict=True):
        inside = np.roll(images, (down, across), axis=(1, 2))[:, 2:-2, 2:-2]
        assert np.array_equal(copy[:, 2:-2, 2:-2], inside)
    assert np.array_equal(copies[5:], copies[:5, :, :, ::-1])


def test_borders_are_reflected() -> None:
    image = np.arange(16).reshape(1, 4, 4)
    right_and_down = image_copies(image, reach=1, mirrored=False).images[1]
    assert right_and_down.tolist() == [[5, 4, 5, 6], [1, 0, 1, 2], [5, 4, 5, 6], [9, 8, 9, 10]]


@pytest.mark.parametrize(
    ("reach", "mirrored", "copies"), [(3, True, 10), (3, False, 5), (0, True, 2), (0, False, 1)]
)
def test_every_copy_knows_its_image(reach: int, mirrored: bool, copies: int) -> None:
    images = photographs(3, 8, 8)
    images[2] = images[0]
    seen = image_copies(images, reach=reach, mirrored=mirrored)
    assert seen.origin.tolist() == [0, 1, 2] * copies
    assert len(seen.images) == len(seen.groups) == 3 * copies
    assert (seen.groups[seen.origin == 0] == seen.groups[2]).all()  # equal images, one name
    assert set(seen.groups) == set(seen.groups[:2])


def changed_members(before: tuple[Any, Any], after: tuple[Any, Any]) -> list[int]:
    """Return which members two training sets of colour images do not share."""
    digests = []
    for images, labels in (before, after):
        seen = image_copies(images)
        clf = DPAClassifier(
            n_partitions=20,
            partitioner="group",
            features=OrientationHistogram(),
            classes=range(10),
        )
        clf.fit(seen.images, labels[seen.origin], groups=seen.groups)
        digests.append(clf.ensemble_.digests())
    return [i for i, (one, other) in enumerate(zip(*digests, strict=True)) if one != other]


@pytest.mark.parametrize("attack", ["new", "a copy of another", "another label", "huge pixels"])
def test_an_inserted_image_and_its_copies_reach_one_member(attack: str) -> None:
    images, labels = photographs(400, 32, 32, 3).astype(np.float64), np.arange(400) % 10
    inserted = {
        "new": images[0, ::-1],
        "a copy of another": image_copies(images[:1]).images[1],
        "another label": images[0],
        "huge pixels": images[0] * 1e30,
    }[attack]
    more = np.concatenate([images, inserted[np.newaxis]]), np.append(labels, 7)
    assert len(changed_members((images, labels), more)) == 1


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(InvalidRowsError, match=r"shape \(5, 64\)"):
        image_copies(photographs(5, 64))
    for reach in (8, -1, 1.5):
        with pytest.raises(InvalidInputError, match="from 0 to 7"):
            image_copies(photographs(2, 9, 8), reach=reach)  # type: ignore[arg-type]

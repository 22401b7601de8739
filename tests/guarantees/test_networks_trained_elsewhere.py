"""Image folders through a network trained elsewhere: files come and go, certificates stand."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from poisonproof import DPAClassifier, NeighborVoteClassifier
from poisonproof.data import ImageColumn, Schema, freeze_schema
from poisonproof.data.sources import read_table
from poisonproof.members.closed_form import RidgeClassifier
from tests.features.small_network import network_file

from .checks import assert_only_touched_change

CLASSES = tuple(map(str, range(10)))
N_TRAIN = 500


def schema() -> Schema:
    file = network_file(side=16)
    image = ImageColumn(
        name="image", height=16, width=16, encoder="network", model=str(file),
        digest=hashlib.sha256(Path(file).read_bytes()).hexdigest(), size=24 * 4 * 4,
    )  # fmt: skip
    about: dict[str, Any] = {"label": "folder", "classes": CLASSES, "kind": "images"}
    return freeze_schema(Schema(columns=(image,), test_share=0.0, **about))


@dataclass(frozen=True)
class Photos:
    """A folder of digits as files, and images to ask about."""

    folder: Path

    def write(self, name: str, pixels: NDArray[Any], label: str) -> Path:
        file = self.folder / label / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15).astype(np.uint8)).resize((20, 20)).save(file)
        return file

    def rows(self) -> tuple[NDArray[Any], NDArray[Any]]:
        found = read_table(self.folder, schema())
        return found.X, np.array(CLASSES)[found.labels]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Photos:
    monkeypatch.setenv("POISONPROOF_CACHE", str(tmp_path / "cache"))
    made = Photos(tmp_path / "photos")
    digits = load_digits()
    for i in range(N_TRAIN):
        made.write(str(i), digits.images[i], str(digits.target[i]))
    return made


@pytest.fixture
def asked(tmp_path: Path, photos: Photos) -> NDArray[Any]:
    others = Photos(tmp_path / "asked")
    for i in range(N_TRAIN, N_TRAIN + 120):
        others.write(str(i), load_digits().images[i], "0")
    return others.rows()[0]


def members(X: Any, y: Any) -> DPAClassifier:
    return DPAClassifier(RidgeClassifier(), 25, classes=CLASSES).fit(X, y)


def neighbours(X: Any, y: Any) -> NeighborVoteClassifier:
    return NeighborVoteClassifier(None, 0.95, classes=CLASSES).fit(X, y)


def poison(photos: Photos, budget: int, rival: str, seed: int) -> None:
    """Delete some files of other classes than `rival` and put made-up ones of `rival` there."""
    rng = np.random.default_rng(seed)
    files = sorted(file for file in photos.folder.rglob("*.png") if file.parent.name != rival)
    n_deleted = int(rng.integers(0, budget + 1))
    for at in rng.choice(len(files), n_deleted, replace=False):
        files[at].unlink()
    digits = load_digits()
    for new in range(budget - n_deleted):
        image = np.clip(digits.images[N_TRAIN + new % 120] + rng.integers(0, 3, (8, 8)), 0, 16)
        photos.write(f"new-{seed}-{new}", image, rival)


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("make", [members, neighbours])
def test_no_files_within_the_radius_change_a_certified_prediction(
    make: Any, seed: int, photos: Photos, asked: NDArray[Any]
) -> None:
    before = make(*photos.rows())
    certificates = before.certify(asked)
    budget = max(2, int(np.quantile(certificates.radius, 0.5 + 0.1 * seed)))
    safe = certificates.radius >= budget
    assert safe.sum() >= 12
    poison(photos, budget, CLASSES[seed], seed)
    after = make(*photos.rows())
    assert np.array_equal(after.predict(asked)[safe], certificates.labels[safe])


@pytest.mark.parametrize("seed", range(2))
def test_members_of_untouched_partitions_keep_their_bits(
    seed: int, photos: Photos, asked: NDArray[Any]
) -> None:
    X, y = photos.rows()
    before = members(X, y)
    poison(photos, 3, CLASSES[seed], seed)
    Image.fromarray(np.zeros((300, 2), np.uint8)).save(photos.folder / "0" / "strange.png")
    X_after, y_after = photos.rows()
    partitions = before.partitioner_
    rows = [
        set(zip(partitions.assign(each).tolist(), map(bytes, each), labels.tolist(), strict=True))
        for each, labels in ((X, y), (X_after, y_after))
    ]
    touched = {partition for partition, _, _ in rows[0] ^ rows[1]}
    assert 0 < len(touched) <= 4
    assert_only_touched_change(before, members(X_after, y_after), asked, touched)


def test_what_was_kept_before_the_attack_changes_nothing(
    photos: Photos, asked: NDArray[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos.rows()
    poison(photos, 5, "3", 0)
    kept = photos.rows()[0]
    monkeypatch.setenv("POISONPROOF_CACHE", str(tmp_path / "another"))
    assert np.array_equal(photos.rows()[0], kept)

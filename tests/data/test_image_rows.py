"""A large folder of images is read with a bar that counts its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from poisonproof.data import ImageColumn, Schema, freeze_schema, read_table


class Counting:
    """A listener that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def start(self, total: int, description: str) -> None:
        self.told.append((total, description))

    def advance(self, amount: int = 1) -> None:
        self.told.append(amount)

    def stop(self) -> None:
        self.told.append("stop")


def test_the_bar_counts_every_file_also_one_that_is_no_image(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for number in range(3):
            pixels = np.full((8, 8), 40 * number, dtype="uint8")
            Image.fromarray(pixels).save(tmp_path / label / f"{number}.png")
    (tmp_path / "dog" / "broken.png").write_bytes(b"no image")
    column = ImageColumn(name="image", height=8, width=8, gray=True)
    schema = freeze_schema(
        Schema(kind="images", columns=(column,), label="folder", classes=("cat", "dog"))
    )
    bar = Counting()
    rows = read_table(tmp_path, schema, progress=bar)
    assert (len(rows), len(rows.problems)) == (6, 1)
    assert bar.told == [(7, "Reading images"), *[1] * 7, "stop"]

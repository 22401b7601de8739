"""A small table of mails with a column of every type, as CSV and as Parquet."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from poisonproof.data import (
    CategoryColumn,
    DateColumn,
    NumberColumn,
    Schema,
    TextColumn,
    freeze_schema,
)

HEADER = ["length", "links", "land", "body", "sent", "user", "kind"]
HAM = ("meeting", "report", "lunch", "team", "tomorrow", "plan")
SPAM = ("free", "money", "win", "click", "offer", "now")

SCHEMA = freeze_schema(
    Schema(
        columns=(
            NumberColumn(name="length", missing=100.0, center=100.0, scale=50.0),
            NumberColumn(name="links"),
            CategoryColumn(name="land", categories=("DE", "FR"), missing="reject"),
            TextColumn(name="body", size=64, missing="reject"),
            DateColumn(name="sent", missing="2024-06-30", origin="2024-06-30", scale=180.0),
        ),
        label="kind",
        classes=("spam", "ham"),
        groups="user",
        test_share=0.25,
    )
)


def mail_rows(n: int, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        spam = rng.random() < 0.5
        words = rng.choice(SPAM if spam else HAM, 6)
        rows.append(
            [
                repr(float(rng.integers(10, 200))),
                str(rng.integers(0, 4) + 3 * spam),
                ["DE", "FR"][rng.integers(2)],
                " ".join(words),
                f"2024-{rng.integers(1, 13):02}-{rng.integers(1, 29):02}",
                f"u{rng.integers(60)}",
                "spam" if spam else "ham",
            ]
        )
    return rows


def write_csv(path: Path, rows: Sequence[Sequence[str]], header: Sequence[str] = HEADER) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    return path


def write_parquet(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    """Write numbers as numbers, unless a strange cell turns the column into text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {}
    for name, cells in zip(HEADER, zip(*rows, strict=True), strict=True):
        try:
            values: list[object] = [float(cell) if cell else None for cell in cells]
        except ValueError:
            values = [cell or None for cell in cells]
        columns[name] = values
    pq.write_table(pa.table(columns), path)
    return path

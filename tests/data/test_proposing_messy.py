"""A messy export: what the proposal points at, so that a reader need not find it."""

from __future__ import annotations

import csv
from pathlib import Path

from poisonproof.data.proposing import ProposalOptions, propose_table


def messy(path: Path) -> Path:
    rows = [
        [
            i + 1,
            f"2023-{i % 12 + 1:02}-{i % 28 + 1:02}" if i % 8 else f"{i % 28 + 1}.1.2023",
            i % 7,
            ["good", "bad"][i % 2],
        ]
        for i in range(600)
    ]
    rows[3][3] = rows[4][3] = "Good"
    rows[5][3] = rows[6][3] = "bad "
    rows += rows[:20]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "day", "stars", "verdict"], *rows])
    return path


def test_numbers_of_rows_are_seen_although_some_rows_are_there_twice(tmp_path: Path) -> None:
    proposal = propose_table(messy(tmp_path / "m.csv"), ProposalOptions(label="verdict"))
    assert "id" in proposal.schema.ignore
    assert "counts the rows" in proposal.notes["id"]


def test_a_column_of_mostly_dates_is_not_called_an_identifier(tmp_path: Path) -> None:
    proposal = propose_table(messy(tmp_path / "m.csv"), ProposalOptions(label="verdict"))
    assert "day" in proposal.schema.ignore
    assert "87 % are dates such as 2020-01-31" in proposal.notes["day"]


def test_a_column_of_repeated_names_is_proposed_as_contributors(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    rows = [[f"worker_{i % 120}", f"key{i}", i % 7, "ab"[i % 2]] for i in range(600)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["worker", "key", "stars", "verdict"], *rows])
    notes = propose_table(path, ProposalOptions(label="verdict")).notes
    assert "contributors? Then --groups worker, or --category worker" in notes["worker"]
    assert notes["key"].endswith("an identifier?")

"""Vote matrices from every format, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from poisonproof.data import read_votes
from poisonproof.exceptions import InvalidInputError

VOTES = np.array([[0, 2, -1], [1, 1, 2]], dtype=np.int16)


def test_every_format_gives_the_same_votes(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", votes=VOTES, other=np.zeros(3))
    np.save(tmp_path / "v.npy", VOTES)
    (tmp_path / "v.csv").write_text("0,2,-1\n1,1,2\n")
    (tmp_path / "v.tsv").write_text("0\t2\t-1\n1\t1\t2\n")
    for suffix in ("npz", "npy", "csv", "tsv"):
        votes = read_votes(tmp_path / f"v.{suffix}")
        np.testing.assert_array_equal(votes, VOTES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,2\n0,x\n", "line 2: 'x' is not a vote"),
        ("0,m1\n0,1\n", "line 1: 'm1' is not a vote"),
        ("0,2\n0,1.5\n", "line 2: '1.5' is not a vote"),
        ("0,2\n0,\n", "line 2: '' is not a vote"),
        ("0,2\n0\n", "line 2: 1 votes where line 1 has 2 cells"),
        ("0,2\n\n0,1\n", "line 2: it is blank, but votes follow"),
        ("\n0,2\n", "line 1: it is blank, but votes follow"),
        ("2\n\ufeff1\n", "line 2: '.*1' is not a vote"),
        ("\n", "holds no votes"),
        ("0," + "9" * 30 + "\n", "is not a vote"),
    ],
)
def test_a_line_that_holds_no_votes_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "v.csv").write_text(text)
    with pytest.raises(InvalidInputError, match=words):
        read_votes(tmp_path / "v.csv")


@pytest.mark.parametrize(
    ("votes", "words"),
    [
        (np.zeros((2, 3)), "dtype float64"),
        (np.zeros(3, dtype=int), r"shape \(3,\)"),
        (np.zeros((3, 0), dtype=int), r"shape \(3, 0\)"),
        (np.zeros((0, 3), dtype=int), r"shape \(0, 3\)"),
    ],
)
def test_an_array_that_is_no_vote_matrix_is_refused(
    tmp_path: Path, votes: np.ndarray, words: str
) -> None:
    np.save(tmp_path / "v.npy", votes)
    with pytest.raises(InvalidInputError, match=words):
        read_votes(tmp_path / "v.npy")

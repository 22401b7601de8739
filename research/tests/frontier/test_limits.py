"""No certificate is larger than the limit that the page names for its kind of vote."""

from __future__ import annotations

import pytest

from poisonproof.certificates import certify_row_votes, make_threat
from poisonproof_research.frontier.goals import limit_table

from .conftest import make_method

THREATS = {
    "insert_delete": (make_threat("insert_delete"), "n_c", "40 to 60"),
    "label_flip": (make_threat("label_flip", touches=2), "n_c / 2", "20 to 30"),
}


@pytest.mark.parametrize("name", THREATS)
def test_neighbours_of_one_class_reach_the_limit_and_not_more(name: str) -> None:
    threat, limit, here = THREATS[name]
    certificates = certify_row_votes([[60, 0], [0, 40]], 100, threat=threat)
    lowest, highest = (int(number) for number in here.split(" to "))
    assert highest - 1 <= certificates.radius[0] <= highest
    assert lowest - 1 <= certificates.radius[1] <= lowest
    table = limit_table([make_method("rows", "neighbors", certificates, [0, 1])])
    assert f"| {limit} | {here} |" in table

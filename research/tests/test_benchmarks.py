"""The benchmark of all certificates runs on today's functions and committed votes."""

from __future__ import annotations

from benchmarks import certificates


def test_every_certificate_equals_the_formula_written_down_row_by_row() -> None:
    found = certificates.measure_speed(n=20, checked=2)
    assert [result["equal_to_reference"] for result in found] == [1.0] * 4
    assert {result["certificate"] for result in found} == {
        "finite aggregation",
        "run-off",
        "run-off, finite aggregation",
    }


def test_small_cases_run() -> None:
    assert certificates.check_cases("run-off, finite aggregation", 5)["kept"]


def test_the_votes_of_the_collective_certificates_are_committed() -> None:
    for row, *_ in certificates.COLLECTIVE:
        home = certificates.BUCKETS if row in certificates.SHARED else certificates.RESULTS
        assert [*(home / row).glob("votes-*.npz")], row

"""Members without a learner, and a list of members as an ensemble."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poisonproof.certificates import certify_votes
from poisonproof.exceptions import MemberWarning
from poisonproof.members.member import AbstainingMember, ConstantMember, Member, MemberList
from poisonproof.progress import Silent

X = np.arange(12.0).reshape(4, 3)


class Raising(Member):
    """A member that cannot vote."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def votes(self, X: Any) -> Any:
        raise self.error

    def digest(self) -> str:
        return "raising"


class Echo(Member):
    """A member that votes its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def votes(self, X: Any) -> Any:
        return np.full(len(X), self.number, dtype=np.int16)

    def digest(self) -> str:
        return f"echo:{self.number}"


class Counter(Silent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.total, self.done, self.stopped = 0, 0, False

    def start(self, total: int, description: str) -> None:
        self.total = total

    def advance(self, amount: int = 1) -> None:
        self.done += amount

    def stop(self) -> None:
        self.stopped = True


def test_a_constant_member_votes_its_class_and_an_abstaining_one_none() -> None:
    assert ConstantMember(3).votes(X).tolist() == [3, 3, 3, 3]
    assert AbstainingMember().votes(X).tolist() == [-1, -1, -1, -1]
    assert AbstainingMember().failure is None
    assert AbstainingMember("ValueError: x").failure == "ValueError: x"


def test_digests_tell_members_apart() -> None:
    members = [ConstantMember(0), ConstantMember(1), AbstainingMember(), AbstainingMember("x")]
    assert len({member.digest() for member in members}) == 4


@pytest.mark.parametrize("n_jobs", [1, 2, None])
@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_columns_stay_in_the_order_of_the_partitions(n_jobs: int | None, k: int) -> None:
    progress = Counter()
    ensemble = MemberList([Echo(number) for number in range(k)])
    votes = ensemble.votes(X, n_jobs=n_jobs, progress=progress)
    assert votes.shape == (4, k)
    assert (votes == np.arange(k)).all()
    assert (progress.done, progress.total, progress.stopped) == (k, k, True)


def test_a_member_that_raises_abstains_and_the_first_reason_is_told() -> None:
    ensemble = MemberList([Echo(0), Raising(ValueError("no")), Echo(2)])
    with pytest.warns(MemberWarning, match="1 of 3 members abstain.*member 1: ValueError: no"):
        votes = ensemble.votes(X, n_jobs=1, progress=Silent())
    assert votes.tolist() == [[0, -1, 2]] * 4


@pytest.mark.parametrize("error", [ValueError("no"), FileNotFoundError(2, "no", "cat.png")])
def test_how_many_members_have_a_model_turns_no_answer_into_an_error(error: Exception) -> None:
    """An attacker who silences the others would decide whether there is an answer at all."""
    ensemble = MemberList([ConstantMember(0), Raising(error), AbstainingMember()])
    with pytest.warns(MemberWarning, match="1 of 3 members abstain.*no"):
        votes = ensemble.votes(X, n_jobs=1, progress=Silent())
    assert votes.tolist() == [[0, -1, -1]] * 4
    with pytest.warns(MemberWarning, match="1 of 1 members abstain.*no"):
        alone = MemberList([Raising(error)]).votes(X, n_jobs=1, progress=Silent())
    certificates = certify_votes(alone, 3)
    assert certificates.labels.tolist() == [0] * 4
    assert certificates.radius.tolist() == [0] * 4


class Choosy(Member):
    """A member that raises on the rows of certain numbers, and counts how often it is asked."""

    def __init__(self, refused: range) -> None:
        self.refused = refused
        self.asked = 0

    def votes(self, X: Any) -> Any:
        self.asked += 1
        if any(int(row[0]) in self.refused for row in X):
            raise ValueError("not this row")
        return np.full(len(X), 2, dtype=np.int16)

    def digest(self) -> str:
        return "choosy"


def voted_on(refused: range) -> tuple[list[int], int]:
    """Return on which of 1,000 rows a choosy member voted, and how often it was asked."""
    member = Choosy(refused)
    rows = np.arange(1000.0)[:, np.newaxis]
    with pytest.warns(MemberWarning, match="1 of 2 members abstain"):
        votes = MemberList([member, Echo(1)]).votes(rows, n_jobs=None, progress=Silent())
    assert (votes[:, 1] == 1).all()
    assert set(votes[:, 0]) <= {-1, 2}
    return np.flatnonzero(votes[:, 0] == 2).tolist(), member.asked


@pytest.mark.parametrize(
    "refused",
    [range(1), range(999, 1000), range(500, 501), range(64), range(1, 700), range(1000)],
    ids=["first", "last", "middle", "many at first", "all but a few", "all"],
)
def test_a_member_abstains_on_the_rows_it_raises_on_and_on_no_other(refused: range) -> None:
    voted, asked = voted_on(refused)
    assert voted == [row for row in range(1000) if row not in refused]
    assert asked < 2000


def test_errors_of_the_machine_are_raised() -> None:
    progress = Counter()
    for error in (MemoryError("full"), OSError(28, "disk")):
        with pytest.raises(type(error)):
            MemberList([Raising(error), Echo(1)]).votes(X, n_jobs=1, progress=progress)
    assert progress.stopped


def test_replacing_members_leaves_the_original_alone() -> None:
    ensemble = MemberList([Echo(number) for number in range(5)])
    other = ensemble.replaced([1, 3], MemberList([Echo(11), Echo(13)]))
    assert other.digests() == ["echo:0", "echo:11", "echo:2", "echo:13", "echo:4"]
    assert ensemble.digests()[1] == "echo:1"
    with pytest.raises(ValueError, match="zip"):
        ensemble.replaced([1], MemberList([]))


def test_failures_are_listed_by_member() -> None:
    ensemble = MemberList([Echo(0), AbstainingMember(), AbstainingMember("KeyError: 'x'")])
    assert ensemble.failures() == {2: "KeyError: 'x'"}

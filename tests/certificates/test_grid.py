"""No attack on the rows and features of a grid does more than is certified."""

from __future__ import annotations

import dataclasses
from itertools import combinations, product

import numpy as np
import pytest

from poisonproof.certificates import (
    Certificates,
    GridCertificates,
    certify_grid,
    certify_grid_scores,
    certify_scores,
    certify_votes,
    grid,
)
from poisonproof.evaluation import certified_accuracy
from poisonproof.exceptions import InvalidInputError, InvalidVotesError, StoreError

from .oracle import plurality_types, true_staircase

VARIANTS = [("rows", False), ("features", False), ("features", True)]
variants = pytest.mark.parametrize(("outer", "shared"), VARIANTS)


def plain_election(votes, n_classes, axis):
    """Return labels of the last axis of votes, -1 where nobody votes."""
    counts = np.stack([(votes == label).sum(axis=axis) for label in range(n_classes)])
    return np.where(counts.any(axis=0), counts.argmax(axis=0), -1)


def predict(votes, n_classes, outer):
    """Elect in two steps; votes of shape (..., k, B)."""
    first = plain_election(votes, n_classes, -1 if outer == "rows" else -2)
    return np.maximum(plain_election(first, n_classes, -1), 0)


def some_votes(rng, n, k, n_blocks, n_classes):
    """Return grids in which blocks differ in how often they are right, and abstentions occur."""
    right = rng.integers(0, n_classes, (n, 1, 1))
    wrong = rng.integers(-1, n_classes, (n, k, n_blocks))
    liked = rng.integers(-1, n_classes, (n, 1, n_blocks))
    wrong = np.where(rng.random(wrong.shape) < 0.5, liked, wrong)
    share = rng.beta(3, rng.choice([0.5, 1, 2]), (n, 1, n_blocks))
    return np.where(rng.random(wrong.shape) < share, right, wrong)


# The truth by changing votes one by one, in all ways.


def raw_staircases(k, n_blocks, outer, shared):
    """Return all grids of two labels and abstentions, and their true staircases."""
    grids = np.array(list(product((-1, 0, 1), repeat=k * n_blocks))).reshape(-1, k, n_blocks)
    labels = predict(grids, 2, outer)
    powers = 2 ** np.arange(k * n_blocks)
    masks = powers.reshape(k, n_blocks)

    def within(cells, r, f):
        for blocks in combinations(range(n_blocks), f):
            rest = np.delete(cells, blocks, axis=1)
            changed = (
                rest.any(axis=1).sum()
                if outer == "rows" or shared
                else rest.sum(axis=0).max(initial=0)
            )
            if changed <= r:
                return True
        return False

    all_cells = (np.arange(2 ** (k * n_blocks))[:, None, None] & masks) > 0
    allowed = {
        (r, f): np.array([within(cells, r, f) for cells in all_cells])
        for r in range(k + 1)
        for f in range(n_blocks + 1)
    }
    found = []
    for votes, label in zip(grids, labels, strict=True):
        changed = ((grids != votes) * masks).sum(axis=(1, 2))[labels != label]
        holds = {size: not some[changed].any() for size, some in allowed.items()}
        found.append(
            [next((r - 1 for r in range(k + 1) if not holds[r, f]), k) for f in range(n_blocks + 1)]
        )
    return grids, np.array(found)


@variants
@pytest.mark.parametrize(("k", "n_blocks"), [(2, 2), (3, 2), (2, 3), (1, 3), (3, 1)])
def test_raw_brute_force_finds_what_is_certified_and_what_the_oracle_finds(
    k, n_blocks, outer, shared
):
    grids, truth = raw_staircases(k, n_blocks, outer, shared)
    rows = certify_grid(grids, 2, outer, n_blocks, shared_rows=shared).rows
    np.testing.assert_array_equal(rows, truth)
    for i in range(0, len(grids), 17):
        oracle = true_staircase(plurality_types(2), grids[i] + 1, 2, outer, shared)
        assert oracle == truth[i].tolist()


# A stochastic attacker on grids too large for the truth.


def attack(rng, votes, n_classes, outer, shared, r, f, label, rival):
    """Change r partitions and f blocks, those that seem to matter most, in favour of the rival."""
    k, n_blocks = votes.shape
    shuffle = rng.random(n_blocks) * rng.choice([0.1, 1.0, 50.0])
    loyal = (votes == label).sum(axis=0) - (votes == rival).sum(axis=0) + shuffle
    if outer == "features":  # blocks that vote for the label
        loyal += 1000 * (plain_election(votes, n_classes, 0) == label)
    blocks = np.argsort(-loyal)[:f]

    def lead(blocks):
        after = votes.copy()
        after[:, blocks] = rival
        first = plain_election(after, n_classes, -1 if outer == "rows" else -2)
        return (first == label).sum() - (first == rival).sum()

    for _ in range(6 * (0 < f < n_blocks)):  # exchange blocks while that helps
        other = blocks.copy()
        other[rng.integers(f)] = rng.choice(np.setdiff1d(np.arange(n_blocks), blocks))
        blocks = other if lead(other) < lead(blocks) else blocks
    after = votes.copy()
    after[:, blocks] = rival
    if outer == "rows" or shared:
        loyal = (after == label).sum(axis=1) - (after == rival).sum(axis=1) + rng.random(k)
        if outer == "rows":
            loyal += 1000 * (plain_election(after, n_classes, 1) == label)
        after[np.argsort(-loyal)[:r]] = rival
    else:
        for column in after.T:
            column[np.argsort((column == rival) - 1.0 * (column == label), kind="stable")[:r]] = (
                rival
            )
    return after


def attacked_cases(n_cases, seed):
    """Attack as far as is certified, in vain, and one unit further; return how often that works."""
    rng = np.random.default_rng(seed)
    beyond = dict.fromkeys(VARIANTS, 0)
    for case in range(n_cases):
        outer, shared = VARIANTS[case % 3]
        k, n_blocks, n_classes = rng.integers(2, 21), rng.integers(2, 15), rng.integers(2, 7)
        votes = some_votes(rng, 1, k, n_blocks, n_classes)
        found = certify_grid(votes, n_classes, outer, shared_rows=shared)
        label = int(found.labels[0])
        assert label == predict(votes[0], n_classes, outer)
        f = int(rng.integers(found.rows.shape[1]))
        r = int(found.rows[0, f])
        for extra in (0, 1):
            if not 0 <= r + extra <= k:
                continue
            broken = any(
                predict(
                    attack(rng, votes[0], n_classes, outer, shared, r + extra, f, label, rival),
                    n_classes,
                    outer,
                )
                != label
                for rival in {*range(n_classes)} - {label}
                for _ in range(3)
            )
            assert not (broken and extra == 0)
            beyond[outer, shared] += bool(broken and extra)
    return {variant: 3 * n / n_cases for variant, n in beyond.items()}


def test_no_stochastic_attack_within_the_certificate_succeeds():
    assert min(attacked_cases(600, seed=0).values()) > 0.5  # the attacker is not a weak one


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_none_of_ten_thousand_stochastic_attacks_succeeds():
    assert min(attacked_cases(10_000, seed=1).values()) > 0.5


# The staircase.


@variants
@pytest.mark.parametrize("target", [None, 1])
def test_staircases_descend_and_begin_with_the_radius(outer, shared, target):
    votes = some_votes(np.random.default_rng(0), 200, 12, 7, 4)
    found = certify_grid(votes, 4, outer, target=target, shared_rows=shared)
    assert (np.diff(found.rows) <= 0).all()
    np.testing.assert_array_equal(found.rows[:, 0], found.radius)
    np.testing.assert_array_equal(found.labels, predict(votes, 4, outer))
    whole = certify_grid(votes, 4, outer, 7, target=target, shared_rows=shared).rows
    last = found.rows.shape[1]
    assert (found.rows[:, -1] >= 0).any()
    np.testing.assert_array_equal(whole[:, :last], found.rows)
    assert (whole[:, last:] == -1).all()


@pytest.mark.parametrize("threat", ["insert_delete", "replace"])
@pytest.mark.parametrize("target", [None, 0])
def test_without_changed_features_it_is_the_vote_of_the_row_partitions(threat, target):
    votes = some_votes(np.random.default_rng(1), 200, 15, 6, 3)
    found = certify_grid(votes, 3, threat=threat, target=target)
    plain = certify_votes(plain_election(votes, 3, -1), 3, threat, target)
    for name in ("labels", "radius", "runner_up", "counts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))
    assert (found.n_members, found.n_blocks) == (15, 6)


def test_one_row_partition_certifies_features_alone():
    votes = some_votes(np.random.default_rng(2), 100, 1, 9, 3)
    inner = certify_votes(votes[:, 0], 3)
    for outer in ("rows", "features"):
        found = certify_grid(votes, 3, outer, 9)
        np.testing.assert_array_equal((found.rows >= 0).sum(axis=1) - 1, inner.radius)
        assert set(found.rows.ravel()) == {-1, 0}


@variants
def test_a_unit_that_touches_two_partitions_counts_twice(outer, shared):
    votes = some_votes(np.random.default_rng(3), 100, 12, 5, 3)
    one = certify_grid(votes, 3, outer, 5, shared_rows=shared).rows
    two = certify_grid(votes, 3, outer, 5, "replace", shared_rows=shared).rows
    np.testing.assert_array_equal(two, np.where(one < 0, -1, one // 2))


def test_the_same_rows_in_all_blocks_are_never_certified_for_less_and_sometimes_for_more():
    votes = some_votes(np.random.default_rng(4), 400, 12, 8, 3)
    apart = certify_grid(votes, 3, "features", 8).rows
    shared = certify_grid(votes, 3, "features", 8, shared_rows=True).rows
    assert (shared >= apart).all()
    assert (shared > apart).any()


@variants
def test_rows_are_certified_apart_from_each_other(outer, shared, monkeypatch):
    votes = some_votes(np.random.default_rng(5), 90, 10, 8, 4)
    whole = certify_grid(votes, 4, outer, 8, shared_rows=shared)
    monkeypatch.setattr(grid, "_BLOCK", 300)
    assert certify_grid(votes, 4, outer, 8, shared_rows=shared).equals(whole)
    some = [5, 80, 31]
    assert whole[some].equals(certify_grid(votes[some], 4, outer, 8, shared_rows=shared))


@variants
def test_a_single_class_and_no_test_rows_are_fine(outer, shared):
    one = certify_grid(np.zeros((2, 5, 3), int), 1, outer, shared_rows=shared)
    assert one.rows.tolist() == [[5] * 4] * 2
    none = certify_grid(np.zeros((0, 5, 3), int), 4, outer, shared_rows=shared)
    assert none.rows.shape == (0, 1)
    assert "0 predictions" in str(none)


# Scores.


def test_run_offs_of_blocks_with_one_row_partition_are_those_of_certify_scores():
    scores = np.random.default_rng(6).integers(0, 4, (150, 1, 9, 4))
    plain = certify_scores(scores[:, 0])
    found = certify_grid_scores(scores, max_features=9)
    np.testing.assert_array_equal(found.labels, plain.labels)
    np.testing.assert_array_equal((found.rows >= 0).sum(axis=1) - 1, plain.radius)
    aimed = certify_grid_scores(scores, max_features=9, target=2)
    np.testing.assert_array_equal(
        (aimed.rows >= 0).sum(axis=1) - 1, certify_scores(scores[:, 0], target=2).radius
    )


@pytest.mark.parametrize("outer", ["rows", "features"])
def test_pluralities_of_scores_are_those_of_first_choices(outer):
    scores = np.random.default_rng(7).random((40, 6, 5, 3))
    scores[3, 2], scores[5, :, 1] = np.nan, np.nan
    first = np.where(np.isnan(scores[..., 0]), -1, np.nan_to_num(scores).argmax(axis=-1))
    found = certify_grid_scores(scores, outer, inner="plurality")
    assert found.equals(certify_grid(first, 3, outer))


@pytest.mark.parametrize("inner", ["runoff", "plurality"])
@pytest.mark.parametrize("target", [None, 1])
def test_an_iterator_of_blocks_gives_what_the_whole_array_gives(inner, target, monkeypatch):
    scores = np.random.default_rng(8).random((40, 6, 5, 3)).astype(np.float32)
    scores[3, 2], scores[30:, :, 1] = np.nan, np.nan
    whole = certify_grid_scores(scores, target=target, inner=inner)
    parts = iter([scores[:7], scores[7:30], scores[30:]])
    monkeypatch.setattr(grid, "_SCORES", 500)
    assert certify_grid_scores(parts, target=target, inner=inner).equals(whole)


# The result as other certificates.


@pytest.fixture
def certificates():
    return certify_grid(some_votes(np.random.default_rng(9), 60, 9, 6, 3), 3)


def test_a_step_of_the_staircase_is_a_certificate_that_says_what_differs(certificates):
    votes_last = certify_grid(np.zeros((1, 3, 4), int), 2, "features", threat="replace/group")
    for found, where in ((certificates, " of the test row"), (votes_last, "")):
        step = found.at(1)
        assert type(step) is Certificates
        assert step.radius.tolist() == found.rows[:, 1].tolist()
        assert step.threat.assumptions[-1].startswith(
            f"at most 1 of {found.n_blocks} feature blocks{where} differ"
        )
        assert found.at(0).radius.tolist() == found.radius.tolist()
        assert f"no feature block{where} differs" in found.at(0).threat.assumptions
    truth = certificates.labels
    held = certified_accuracy(certificates.at(2), truth, [0])
    assert held[0] == (certificates.rows[:, 2] >= 0).mean()
    for f in (-1, certificates.rows.shape[1], 1.0, True):
        with pytest.raises(InvalidInputError, match="number of feature blocks"):
            certificates.at(f)


def test_cutting_text_columns_and_equality_know_the_staircase(certificates):
    cut = certificates[10:20].with_classes(["a", "b", "c"])
    assert isinstance(cut, GridCertificates)
    np.testing.assert_array_equal(cut.rows, certificates.rows[10:20])
    last = certificates.rows.shape[1] - 1
    assert list(cut.columns())[-1] == f"rows_{last}"
    assert "9 row partitions" in str(certificates)
    assert f"Medians while 0 to {last} of 6 feature blocks differ: " in str(certificates)
    assert not certificates.equals(certificates.at(0))
    assert not certificates.at(0).equals(certificates)
    shorter = dataclasses.replace(certificates, rows=certificates.rows[:, :2])
    assert not certificates.equals(shorter)
    with pytest.raises(ValueError, match="read-only"):
        certificates.rows[0, 0] = 9


@pytest.mark.parametrize("target", [None, 1])
@pytest.mark.parametrize("classes", [None, ["a,b", "rows_0", ""]])
def test_files_keep_the_staircase(tmp_path, target, classes):
    votes = some_votes(np.random.default_rng(10), 30, 7, 5, 3)
    for n in (30, 0):
        found = certify_grid(votes[:n], 3, "features", target=target, threat="replace/group")
        found = found if classes is None else found.with_classes(classes)
        found.save(tmp_path / "c.csv")
        assert Certificates.load(tmp_path / "c.csv").equals(found)


@pytest.mark.parametrize(
    ("old", "new"), [("rows_1", "rows_7"), ('"outer": "rows"', '"outer": "cows"'), ("rows_0", "r")]
)
def test_files_that_lost_a_step_are_refused(tmp_path, certificates, old, new):
    path = tmp_path / "c.csv"
    certificates.save(path)
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new))
    with pytest.raises(StoreError, match="holds no readable certificates"):
        Certificates.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": np.zeros((60, 8), int)},
        {"rows": np.zeros((60, 0), int)},
        {"rows": np.zeros(60, int)},
        {"rows": np.zeros((60, 2))},
        {"rows": np.full((60, 2), 99)},
        {"outer": "columns"},
    ],
)
def test_staircases_that_do_not_fit_are_refused(certificates, change):
    with pytest.raises(InvalidInputError, match=r"rows|outer"):
        dataclasses.replace(certificates, **change)
    rising = np.stack([certificates.radius, certificates.radius + 1], axis=1)
    with pytest.raises(InvalidInputError, match="exceeds"):
        dataclasses.replace(certificates, rows=rising)


# Mistakes.

VOTES = np.zeros((2, 3, 4), int)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        (VOTES[0], "three dimensions"),
        (VOTES[:, :0], "three dimensions"),
        (VOTES[:, :, :0], "three dimensions"),
        (VOTES.astype(float), "must be integers"),
        (VOTES + 2, r"votes\[0, 0, 0\] is 2"),
        (VOTES - 2, r"votes\[0, 0, 0\] is -2"),
        (np.ma.masked_array(VOTES), "masked"),
        ([[[0, 1], [0]]], "must be a block"),
    ],
)
def test_bad_votes_are_named(votes, message):
    with pytest.raises(InvalidVotesError, match=message):
        certify_grid(votes, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outer": "columns"}, "outer is one of rows, features"),
        ({"max_features": 5}, "from 0 to 4"),
        ({"max_features": -1}, "from 0 to 4"),
        ({"max_features": True}, "from 0 to 4"),
        ({"target": 2}, "target is 2"),
        ({"threat": "steal"}, "threat"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InvalidInputError, match=message):
        certify_grid(VOTES, 2, **options)
    with pytest.raises(InvalidInputError, match=message):
        certify_grid_scores(np.zeros((*VOTES.shape, 2)), **options)


SCORES = np.zeros((2, 3, 4, 2))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (SCORES[0], "four dimensions"),
        (SCORES[..., :0], "four dimensions"),
        (SCORES > 0, "real numbers"),
        (np.ma.masked_array(SCORES), "masked"),
        (np.where(np.arange(2) > 0, np.inf, SCORES), r"scores\[0, 0, 0, 1\] is inf"),
        (np.where(np.arange(2) > 0, np.nan, SCORES), r"scores\[0, 0, 0, 1\] is nan"),
        (iter([]), "without any array"),
        (iter([SCORES, SCORES[:, 1:]]), "same members"),
    ],
)
def test_bad_scores_are_named(scores, message):
    with pytest.raises(InvalidInputError, match=message):
        certify_grid_scores(scores)


def test_bad_inner_elections_and_targets_of_iterators_are_named():
    with pytest.raises(InvalidInputError, match="inner is one of runoff, plurality"):
        certify_grid_scores(SCORES, inner="borda")
    with pytest.raises(InvalidInputError, match="one class index where scores is an iterator"):
        certify_grid_scores(iter([SCORES]), target=[0, 1])

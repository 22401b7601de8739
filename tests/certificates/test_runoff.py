"""The run-off election: who wins, exact radii, and scores in every form they come in."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poisonproof.certificates import certify_scores, certify_votes
from poisonproof.certificates import runoff as ballots
from poisonproof.exceptions import InvalidInputError

from .oracle import elections, order_types, scores_of, true_radius


def realistic(n, k, n_classes, seed=0, dtype=np.float32):
    """Return scores with clear, close and hopeless rows, coarse enough to tie now and then."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((n, k, n_classes))
    scores[np.arange(n), :, rng.integers(0, n_classes, n)] += rng.exponential(1.0, (n, 1))
    scores = np.round(scores * 4) / 4
    scores[rng.random((n, k)) < 0.03] = np.nan
    return scores.astype(dtype)


@pytest.mark.parametrize(("n_classes", "k"), [(2, 5), (3, 1), (3, 2), (3, 3), (3, 4)])
def test_winner_and_radius_are_right_for_every_small_election(n_classes, k):
    types = order_types(n_classes)
    states, winners = elections(types, k, n_classes)
    rows = np.stack([np.repeat(np.arange(len(types)), state) for state in states])
    scores = scores_of(types, rows, n_classes)
    certificates = certify_scores(scores)
    np.testing.assert_array_equal(certificates.labels, winners)
    members = np.arange(k)[:, None]
    truth = [true_radius(types, row, members, n_classes) for row in rows]
    np.testing.assert_array_equal(certificates.radius, truth)
    for target in range(n_classes):
        truth = [true_radius(types, row, members, n_classes, target) for row in rows]
        np.testing.assert_array_equal(certify_scores(scores, target=target).radius, truth)


def attacked_winners(scores, n_members, n_classes):
    """Yield (changed members, winner) of all attacks that rank a target or its opponent first."""
    for target, opponent in permutations(range(n_classes), 2):
        first, second = np.zeros(n_classes), np.zeros(n_classes)
        first[target], second[opponent], second[target] = 2.0, 2.0, 1.0
        plans = np.array(list(product(range(3), repeat=n_members)))
        after = np.where((plans == 1)[:, :, None], first, scores)
        after = np.where((plans == 2)[:, :, None], second, after)
        yield (plans > 0).sum(axis=1), certify_scores(after).labels


@pytest.mark.parametrize(("n_classes", "k"), [(4, 6), (5, 5)])
def test_radius_is_exact_with_several_third_labels(n_classes, k):
    rng = np.random.default_rng(0)
    orders = rng.integers(0, 3, (8, k, n_classes)).astype(float)
    for scores in orders:
        shortest = np.full(n_classes, k + 1)
        for sizes, labels in attacked_winners(scores, k, n_classes):
            np.minimum.at(shortest, labels, sizes)
        certificates = certify_scores(scores[None])
        label = int(certificates.labels[0])
        assert shortest[label] == 0
        assert certificates.radius[0] == np.delete(shortest, label).min() - 1
        for target in range(n_classes):
            assert certify_scores(scores[None], target=target).radius[0] == shortest[target] - 1


@pytest.mark.parametrize(("n", "k", "n_classes"), [(300, 50, 10), (60, 400, 10), (12, 50, 43)])
def test_the_untargeted_radius_is_the_smallest_targeted_one_at_real_shapes(n, k, n_classes):
    scores = realistic(n, k, n_classes)
    overall = certify_scores(scores)
    smallest = np.full(n, k)
    for target in range(n_classes):
        radius = certify_scores(scores, target=target).radius
        assert ((radius == -1) == (overall.labels == target)).all()
        smallest = np.where(radius == -1, smallest, np.minimum(smallest, radius))
    np.testing.assert_array_equal(smallest, overall.radius)
    assert overall.radius.max() > 5


def strongest_members(scores, label, rival, size):
    """Return the members whose change to `rival` hurts `label` most."""
    loyal = scores[:, label] > scores[:, rival]
    first = np.nan_to_num(scores, nan=-np.inf).argmax(axis=1)
    return np.lexsort((first != label, ~loyal))[:size]


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["insert_delete", "replace"]))
def test_no_attack_within_the_radius_changes_a_real_election(seed, threat):
    scores = realistic(1, 50, 10, seed)
    before = certify_scores(scores, threat=threat)
    label, reach = int(before.labels[0]), int(before.radius[0]) * before.threat.touches
    rng = np.random.default_rng(seed)
    attacks = []
    for rival in set(range(10)) - {label}:
        for members in (
            strongest_members(scores[0], label, rival, reach),
            rng.permutation(50)[:reach],
        ):
            after = scores[0].copy()
            after[members] = np.eye(10)[rival]
            attacks.append(after)
            after = after.copy()
            after[members[: reach // 2]] = np.eye(10)[(rival + 1) % 10]
            attacks.append(after)
    assert set(certify_scores(np.stack(attacks)).labels) == {label}


def test_two_classes_are_a_plurality_vote():
    scores = realistic(200, 31, 2)
    votes = np.where(np.isnan(scores[:, :, 0]), -1, scores[:, :, 1] > scores[:, :, 0])
    for target in (None, 0, 1):
        one, two = certify_scores(scores, target=target), certify_votes(votes, 2, target=target)
        for name in ("labels", "radius", "runner_up", "counts"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_the_plurality_method_equals_certify_votes_on_first_choices():
    scores = realistic(100, 30, 5)
    first = np.where(np.isnan(scores[:, :, 0]), -1, np.nan_to_num(scores).argmax(axis=2))
    assert certify_scores(scores, "plurality").equals(certify_votes(first, 5))
    assert certify_scores(scores, "plurality", "replace", 3).equals(
        certify_votes(first, 5, "replace", 3)
    )


def test_a_replaced_row_halves_the_radius():
    scores = realistic(100, 50, 4)
    whole, half = certify_scores(scores), certify_scores(scores, threat="replace")
    np.testing.assert_array_equal(half.radius, whole.radius // 2)
    assert half.threat.name == "replace"


def test_equal_scores_rank_by_smaller_index():
    tied = np.zeros((1, 5, 3))
    found = certify_scores(tied)
    assert found.counts.tolist() == [[5, 0, 0]]
    assert (found.labels[0], found.runner_up[0], found.radius[0]) == (0, 1, 2)


def test_a_row_on_which_all_abstain_is_the_smallest_label_with_radius_zero():
    found = certify_scores(np.full((1, 4, 3), np.nan))
    assert (found.labels[0], found.runner_up[0], found.radius[0]) == (0, 1, 0)
    assert certify_scores(np.full((1, 4, 3), np.nan), target=2).radius[0] == 0


def test_a_single_class_cannot_be_attacked():
    found = certify_scores(np.ones((2, 3, 1)))
    assert found.radius.tolist() == [3, 3]
    assert certify_scores(np.ones((2, 3, 1)), target=0).radius.tolist() == [-1, -1]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4", "longdouble"])
def test_the_dtype_of_the_scores_does_not_matter(dtype):
    scores = realistic(40, 20, 6)
    assert certify_scores(scores.astype(dtype)).equals(certify_scores(scores))


def test_integer_scores_are_scores():
    scores = np.nan_to_num(realistic(40, 20, 6) * 4)
    assert certify_scores(scores.astype(np.int8)).equals(certify_scores(scores))


def test_only_the_order_of_the_scores_matters():
    scores = realistic(40, 20, 6)
    assert certify_scores(np.exp(3 * scores)).equals(certify_scores(scores))


@pytest.mark.parametrize("target", [None, 2])
def test_memory_maps_are_read_in_pieces_and_pieces_do_not_matter(tmp_path, monkeypatch, target):
    scores = realistic(50, 20, 6)
    whole = certify_scores(scores, target=target)
    np.save(tmp_path / "scores.npy", scores)
    mapped = np.load(tmp_path / "scores.npy", mmap_mode="r")
    monkeypatch.setattr(ballots, "_BLOCK", 3 * 20 * 6)
    assert certify_scores(mapped, target=target).equals(whole)


def test_no_rows_give_no_certificates():
    assert len(certify_scores(np.zeros((0, 4, 3)))) == 0


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinite_scores_and_partial_abstentions_are_named(value, monkeypatch):
    scores = np.zeros((9, 4, 3))
    scores[7, 2, 1] = value
    monkeypatch.setattr(ballots, "_BLOCK", 24)
    with pytest.raises(InvalidInputError, match=r"scores\[7, 2, 1\] is -?(inf|nan).*abstains"):
        certify_scores(scores)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros((3, 4)), "three dimensions"),
        (np.zeros((3, 0, 2)), "at least one member"),
        (np.zeros((3, 2, 0)), "at least one class"),
        (np.array([[["a"]]]), "real numbers"),
        (np.zeros((1, 1, 2), dtype=complex), "real numbers"),
        (np.ma.zeros((1, 1, 2)), "masked"),
    ],
)
def test_what_is_no_score_matrix_is_refused(scores, message):
    with pytest.raises(InvalidInputError, match=message):
        certify_scores(scores)


def test_unknown_methods_targets_and_threats_are_refused():
    scores = np.zeros((2, 3, 2))
    for options in ({"method": "borda"}, {"target": 2}, {"target": [0, 1, 1]}, {"threat": "rain"}):
        with pytest.raises(InvalidInputError):
            certify_scores(scores, **options)


def test_saved_certificates_remember_the_method(tmp_path):
    certificates = certify_scores(realistic(10, 8, 3), target=1)
    certificates.save(tmp_path / "c.csv")
    assert type(certificates).load(tmp_path / "c.csv").equals(certificates)
    assert "run-off election of 8 members" in str(certificates)

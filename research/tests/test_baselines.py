"""Label smoothing, checked by enumeration over all noisy labels and flips; random ablation."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.baselines import (
    LabelSmoothingClassifier,
    flip_radius,
    largest_miss,
    plot_poisoned_shares,
    poisoned_share_disjoint,
    poisoned_share_random,
)


def noise(noisy, true, q, n_classes):
    """Return the probability of noisy label vectors (N, m) under true labels (m,)."""
    same = noisy == np.asarray(true)
    return np.where(same, 1 - q, q / (n_classes - 1)).prod(axis=1)


def most_by_enumeration(miss, r, q, n_classes):
    """Fill an event of probability `miss` with single outcomes, the best for the attacker first."""
    noisy = np.array(list(product(range(n_classes), repeat=r)))
    old, new = noise(noisy, [0] * r, q, n_classes), noise(noisy, [1] * r, q, n_classes)
    left, found = miss, 0.0
    for place in np.argsort(-new / old, kind="stable"):
        part = min(left, old[place])
        found += new[place] * part / old[place]
        left -= part
    return found


@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("r", [1, 2, 3, 4])
@pytest.mark.parametrize(("miss", "q"), [(0.4, 0.1), (0.1, 0.3), (0.01, 0.45), (1e-9, 0.02)])
def test_the_largest_miss_is_that_of_the_worst_event(n_classes, r, miss, q):
    expected = most_by_enumeration(miss, r, q, n_classes)
    assert largest_miss(miss, r, q, n_classes) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("miss", "q", "n_classes"), [(0.01, 0.3, 2), (1e-4, 0.4, 2), (1e-3, 0.5, 10), (1e-40, 0.1, 10)]
)
def test_the_radius_is_the_last_size_with_a_majority(miss, q, n_classes):
    radius = int(flip_radius(miss, q, n_classes))
    assert radius > 0
    assert largest_miss(miss, radius, q, n_classes) < 0.5
    assert largest_miss(miss, radius + 1, q, n_classes) >= 0.5


def test_misses_too_small_for_a_float_do_not_certify_everything():
    assert 0 < flip_radius(1e-100, 0.3, 2) < 1000
    assert flip_radius(0.0, 0.01, 2) < 1000


def exact_shares(weights, labels, q, n_classes):
    """Return the probability of every prediction under noise, by all noisy label vectors."""
    noisy = np.array(list(product(range(n_classes), repeat=len(labels))))
    scores = np.stack([(noisy == c) @ weights for c in range(n_classes)], axis=1)
    chances = noise(noisy, labels, q, n_classes)
    return np.bincount(scores.argmax(axis=1), weights=chances, minlength=n_classes)


@pytest.mark.parametrize(("codes", "q"), [([0, 1] * 5, 0.05), ([0] * 7 + [1, 2], 0.02)])
def test_no_certified_label_changes_under_any_flips_within_its_radius(codes, q):
    rng = np.random.default_rng(0)
    codes, m, n_classes = np.array(codes), len(codes), max(codes) + 1
    X = 3 * np.eye(n_classes)[codes] + rng.normal(0, 0.2, (m, n_classes))
    clf = LabelSmoothingClassifier(q, ridge=0.1, classes=range(n_classes)).fit(X, codes)
    tests = X[[0, 1, m - 1]] + rng.normal(0, 0.1, (3, n_classes))
    found = clf.certify(tests)
    certified = 0
    for row, weights in enumerate(clf.weights(tests)):
        label, radius = int(found.labels[row]), int(found.radius[row])
        shares = exact_shares(weights, codes, q, n_classes)
        assert 1 - shares[label] <= found.miss[row] + 1e-12
        for places in combinations(range(m), radius):
            for values in product(range(n_classes), repeat=radius):
                attacked = codes.copy()
                attacked[list(places)] = values
                if radius:
                    certified += 1
                    assert exact_shares(weights, attacked, q, n_classes).argmax() == label
    assert certified > 0


@pytest.mark.parametrize("q", [0.0, 0.5, 0.7])
def test_noise_that_hides_the_labels_is_refused(q):
    with pytest.raises(InvalidInputError, match=r"q must lie between 0 and 0\.500"):
        LabelSmoothingClassifier(q).fit([[0.0], [1.0]], [0, 1])


def test_the_papers_example():
    assert round(float(poisoned_share_random(60000, 50, 200)), 3) == 0.154
    assert round(float(poisoned_share_disjoint(60000, 50, 200)), 3) == 0.167


@pytest.mark.parametrize(("m", "s"), [(10, 3), (25, 1), (8, 8)])
def test_random_subsets_are_counted_exactly(m, s):
    expected = [1 - comb(m - r, s) / comb(m, s) for r in range(m + 1)]
    assert poisoned_share_random(m, s, np.arange(m + 1)) == pytest.approx(expected)


def test_partitions_never_look_better_than_random_subsets_on_paper():
    flips = np.arange(0, 60001, 37)
    random = poisoned_share_random(60000, 50, flips)
    assert (poisoned_share_disjoint(60000, 50, flips) >= random - 1e-12).all()


def test_impossible_sizes_are_refused():
    with pytest.raises(InvalidInputError, match="1 <= s <= m"):
        poisoned_share_random(10, 11, 1)


def test_both_curves_are_drawn():
    pytest.importorskip("matplotlib")
    ax = plot_poisoned_shares(largest=100)
    assert [line.get_label() for line in ax.lines] == ["disjoint partitions", "random subsets"]
    assert ax.lines[0].get_ydata()[-1] == pytest.approx(100 * 100 * 50 / 60000)

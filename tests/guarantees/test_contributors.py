"""Attackers who control whole contributors, sources, days or entities change no certified label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from poisonproof import DPAClassifier, certify_votes
from poisonproof.data import DataSource, Schema, freeze_schema, number_columns
from poisonproof.estimators import fit_stream
from poisonproof.estimators.saving import model_fingerprint
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.partition import GroupHash, NamedSources, TimeBlocks

ATTACKS = 500
K = 25
CLASSES = np.array(["ham", "spam"])


def reported(n: int, rng: np.random.Generator) -> tuple[NDArray, NDArray, NDArray]:
    """Return rows of 120 contributors, some of whom report far more than others."""
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 6)) + np.where(y == 1, 0.7, -0.7)[:, np.newaxis]
    groups = np.array([f"user{int(120 * u * u)}" for u in rng.random(n)])
    return X, CLASSES[y], groups


def attacked(
    X: NDArray, y: NDArray, groups: NDArray, bad: NDArray, aim: NDArray, lie: str,
    rng: np.random.Generator,
) -> tuple[NDArray, NDArray, NDArray]:  # fmt: skip
    """Rewrite everything that the contributors `bad` hand in: delete, flood, copy the target."""
    honest = ~np.isin(groups, bad)
    parts = [(X[honest], y[honest], groups[honest])]
    for name in bad:
        n = int(rng.choice([0, 1, 20, 150]))
        spread = rng.choice([0.0, 0.1, 3.0])
        labels = np.full(n, lie) if rng.random() < 0.8 else rng.choice(CLASSES, n)
        parts.append((aim + spread * rng.normal(size=(n, 6)), labels, np.full(n, name)))
    order = rng.permutation(sum(len(part[1]) for part in parts))
    Xs, ys, gs = (np.concatenate(column)[order] for column in zip(*parts, strict=True))
    return Xs, ys, gs


def test_500_attacks_by_contributors_change_no_certified_prediction() -> None:
    rng = np.random.default_rng(0)
    X, y, groups = reported(800, rng)
    X_test, _, _ = reported(60, rng)
    clf = DPAClassifier(RidgeClassifier(), n_partitions=K, partitioner="group", classes=CLASSES)
    certificates = clf.fit(X, y, groups=groups).certify(X_test)
    assert certificates.threat.unit == "group"
    before = clf.votes(X_test)
    names = np.unique(groups)
    certified = np.flatnonzero(certificates.radius >= 1)
    assert len(certified) > 40
    changed_votes = full_size = overturned = 0
    for _ in range(ATTACKS):
        target = rng.choice(certified)
        radius = int(certificates.radius[target])
        size = radius if rng.random() < 0.7 else int(rng.integers(1, radius + 1))
        full_size += size == radius
        bad = rng.choice(names, size, replace=False)
        lie = CLASSES[certificates.labels[target] != CLASSES][0]
        poisoned = attacked(X, y, groups, bad, X_test[target], lie, rng)
        clf.fit(poisoned[0], poisoned[1], groups=poisoned[2])
        votes = clf.votes(X_test)
        labels = CLASSES[certify_votes(votes, 2).labels]
        safe = certificates.radius >= size
        assert safe[target]
        assert np.array_equal(labels[safe], certificates.labels[safe])
        overturned += int((labels != certificates.labels).sum())
        moved = (votes != before).any(axis=0)
        assert moved.sum() <= size
        changed_votes += int(moved.sum())
    assert full_size > ATTACKS / 2
    assert changed_votes > ATTACKS  # the attacks do reach members
    assert overturned  # and turn predictions that are certified against fewer contributors


RULES: dict[str, tuple[Any, list[list[str]]]] = {
    # Of each rule: the units, and the groups under which each of them may hand in rows.
    "source": (NamedSources([f"site {i}" for i in range(21)]), [[f"site {i}"] for i in range(21)]),
    "day": (
        TimeBlocks("2020-01-01", n_partitions=25),
        [[f"2020-0{m}-{d:02} {h:02}:00" for h in range(24)] for m in (1, 2) for d in range(1, 29)],
    ),
    "block": (
        TimeBlocks("2020-01-01", days=2, n_partitions=25),
        [[f"2020-01-{d:02}", f"2020-01-{d + 1:02} 22:15"] for d in range(1, 31, 2)],
    ),
    "entity": (
        GroupHash(n_partitions=25, entities={f"a{i}": f"owner {i // 3}" for i in range(90)}),
        [[f"a{3 * i + j}" for j in range(3)] for i in range(30)] + [[f"b{i}"] for i in range(9)],
    ),
}


@pytest.mark.filterwarnings("ignore:n_partitions:poisonproof.exceptions.MemberWarning")
@pytest.mark.parametrize("unit", RULES)
def test_attacks_by_whole_units_move_a_member_each_and_no_certified_label(unit: str) -> None:
    rng = np.random.default_rng(1)
    rule, units = RULES[unit]
    X, y, _ = reported(900, rng)
    owner = rng.integers(0, len(units), len(y))
    groups = np.array([rng.choice(units[i]) for i in owner])
    X_test, _, _ = reported(50, rng)
    clf = DPAClassifier(RidgeClassifier(), partitioner=rule, classes=CLASSES)
    clf.fit(X, y, groups=groups)
    before, digests = clf.votes(X_test), np.array(clf.ensemble_.digests())
    for threat in ("replace", "insert_delete", "label_flip"):
        certificates = clf.certify(X_test, threat, require_declared=True)
        assert (certificates.threat.unit, certificates.threat.touches) == (unit, 1)
    turned = moved = 0
    for _ in range(60):
        size = int(rng.integers(1, 13))
        bad = rng.choice(len(units), size, replace=False)
        honest = ~np.isin(owner, bad)
        parts = [(X[honest], y[honest], groups[honest])]
        for number in bad:  # withdraw, relabel, or flood under any of the unit's names
            mine = owner == number
            what = rng.integers(3)
            if what == 1:
                parts.append((X[mine], CLASSES[(y[mine] == CLASSES[0]).astype(int)], groups[mine]))
            elif what == 2:
                n = int(rng.integers(1, 90))
                rows = X_test[0] + rng.normal(size=(n, 6))
                parts.append((rows, np.full(n, rng.choice(CLASSES)), rng.choice(units[number], n)))
        order = rng.permutation(sum(len(part[1]) for part in parts))
        rows, labels, names = (np.concatenate(c)[order] for c in zip(*parts, strict=True))
        clf.fit(rows, labels, groups=names)
        changed = np.array(clf.ensemble_.digests()) != digests
        assert changed.sum() <= size
        assert not (clf.votes(X_test) != before)[:, ~changed].any()
        poisoned = CLASSES[certify_votes(clf.votes(X_test), 2).labels]
        safe = certificates.radius >= size
        assert np.array_equal(poisoned[safe], certificates.labels[safe])
        turned += int((poisoned != certificates.labels).sum())
        moved += int(changed.sum())
    assert moved > 60
    assert turned  # beyond the radius, labels do fall


@pytest.mark.parametrize("unit", RULES)
def test_rows_of_no_declared_unit_are_left_out_alone(unit: str) -> None:
    rng = np.random.default_rng(2)
    rule, units = RULES[unit]
    X, y, _ = reported(300, rng)
    groups = np.array([rng.choice(units[i]) for i in rng.integers(0, len(units), 300)], object)
    stranger = None if unit == "entity" else "nobody's"
    strange = np.append(groups, [stranger] * 40)
    more = np.concatenate([X, X[:40] + 5]), np.append(y, y[:40])
    clf = DPAClassifier(RidgeClassifier(), partitioner=rule, classes=CLASSES)
    digests = clf.fit(X, y, groups=groups).ensemble_.digests()
    with pytest.raises(InvalidInputError, match=r"Row 300 has (no|the) group"):
        clf.fit(*more, groups=strange)
    clf.set_params(invalid_rows="drop").fit(*more, groups=strange)
    assert clf.n_dropped_ == 40
    assert clf.ensemble_.digests() == digests


def test_one_source_cannot_decide_how_many_cells_a_row_has() -> None:
    rng = np.random.default_rng(3)
    X, y, _ = reported(60, rng)
    clf = DPAClassifier(
        RidgeClassifier(), partitioner=NamedSources(["a", "b"]), classes=CLASSES,
        invalid_rows="drop",
    )  # fmt: skip
    flood = [[0.0]] * 500
    with pytest.raises(InvalidInputError, match="different numbers of cells"):
        clf.fit([*X.tolist(), *flood], [*y, *["ham"] * 500], groups=["a"] * 60 + ["b"] * 500)


def test_the_partitioner_comes_back_with_a_saved_model(tmp_path: Any) -> None:
    import poisonproof

    rng = np.random.default_rng(4)
    X, y, _ = reported(400, rng)
    prints = set()
    for rule, units in RULES.values():
        groups = [units[i % len(units)][0] for i in range(400)]
        clf = DPAClassifier(RidgeClassifier(), partitioner=rule, classes=CLASSES)
        clf.fit(X, y, groups=groups).save(tmp_path / rule.unit, keep_data=True)
        again = poisonproof.load(tmp_path / rule.unit)
        assert again.partitioner_ == clf.partitioner_
        assert again.n_partitions == clf.partitioner_.k
        assert again.certify(X[:9]).threat == clf.certify(X[:9]).threat
        again.update(add=(X[:3] + 1, y[:3], groups[:3]), remove=(X[5:9], y[5:9], groups[5:9]))
        rows = np.concatenate([X[:5], X[9:], X[:3] + 1])
        labels = np.concatenate([y[:5], y[9:], y[:3]])
        clf.fit(rows, labels, groups=[*groups[:5], *groups[9:], *groups[:3]])
        assert again.ensemble_.digests() == clf.ensemble_.digests()
        prints.add(again._fingerprint())
    assert len(prints) == len(RULES)


def test_accounts_of_another_type_than_the_declared_ones_are_invalid() -> None:
    """Integers declared, texts read: every account would be an attacker of its own."""
    X, y = np.arange(12.0).reshape(6, 2), [0, 1, 0, 1, 0, 1]
    rule = GroupHash(n_partitions=50, entities={1: 7, 2: 7})
    assert rule.units([1, 2.0, 7, 9, "1", None]) == [7, 7, 7, 9, None, None]
    schema = freeze_schema(
        Schema(columns=number_columns("ab"), label="y", classes=("0", "1"), groups="who")
    )
    table = pd.DataFrame(X, columns=list("ab")).assign(y=y, who=[1, 2, 7] * 2)
    with pytest.raises(InvalidInputError):
        DPAClassifier(schema=schema, partitioner=rule).fit(table)
    texts = GroupHash(n_partitions=2, entities={"1": "7", "2": "7"})
    clf = DPAClassifier(schema=schema, partitioner=texts).fit(table)
    assert (clf.n_groups_, np.count_nonzero(clf.partition_sizes_)) == (1, 1)


@pytest.mark.parametrize("by", ["source", "time", "entity"])
def test_streamed_rows_have_the_declared_partitions(by: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    rules = {
        "source": NamedSources(["ann", "bo", "cy"]),
        "time": TimeBlocks("2020-01-01", days=2),
        "entity": GroupHash(entities={"ann": "bo"}),
    }
    whose = [f"2020-01-{day:02}" for day in range(1, 20)] if by == "time" else ["ann", "bo", "cy"]
    table = pd.DataFrame(rng.normal(size=(300, 2)).round(3), columns=list("ab"))
    table = table.assign(y=rng.integers(0, 2, 300), who=rng.choice(whose, 300))
    table.to_csv(tmp_path / "rows.csv", index=False)
    schema = freeze_schema(
        Schema(
            columns=number_columns("ab"),
            label="y",
            classes=("0", "1"),
            groups="who",
            partition=rules[by],
        )
    )
    k = {"source": None, "time": 7, "entity": 2}[by]
    one, other = (DPAClassifier(None, k, schema=schema, partitioner="group") for _ in range(2))
    one.fit(table)
    fit_stream(other, tmp_path / "m", DataSource(tmp_path / "rows.csv", schema), self_check=False)
    assert other.partitioner_ == one.partitioner_
    assert model_fingerprint(other) == model_fingerprint(one)
    assert one.without_schema().partitioner == one.partitioner_

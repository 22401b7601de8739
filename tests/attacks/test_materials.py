"""Forged rows of every material pass for clean ones, and attacks on them stay within the proof."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from poisonproof import DPAClassifier
from poisonproof.attacks import (
    ATTACK_KINDS,
    Backdoor,
    CellMaterial,
    Material,
    NearInsertions,
    NumberMaterial,
    PartitionAware,
    Target,
    TargetedFlips,
    TextMaterial,
    Victim,
    attack_study,
)
from poisonproof.data import CategoryColumn, NumberColumn, Schema, TextColumn
from poisonproof.exceptions import InvalidInputError
from poisonproof.features import HashedNGrams
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.partition import GroupHash

WORDS = {"ham": "lunch budget meeting report train slides friday", "spam": "prize win money pills"}
SCHEMA = Schema(
    columns=(
        NumberColumn(name="links", scale=3.0),
        NumberColumn(name="score", missing="nan"),
        CategoryColumn(name="client", categories=("web", "phone", "fax")),
        TextColumn(name="body", size=64),
    ),
    label="kind",
    classes=("ham", "spam"),
)


def mails(count: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    y = rng.choice(["ham", "spam"], count)
    rows = np.empty((count, 4), dtype=object)
    for row, kind in zip(rows, y, strict=True):
        words = " ".join(rng.choice(WORDS[kind].split(), 4))
        score = float("nan") if rng.random() < 0.1 else float(rng.normal(kind == "spam"))
        row[:] = [float(rng.integers(0, 5)), score, str(rng.choice(["web", "phone"])), words]
    return rows, y


ROWS, Y = mails(240, 0)
TEXTS = ROWS[:, 3]


def numbers_of(rows: Any) -> Any:
    return rows[:, 0].astype(float)


def test_look_alikes_of_a_text_keep_its_words() -> None:
    material = TextMaterial(TEXTS)
    for text in material.near(TEXTS[0], 200, np.random.default_rng(0)):
        assert set(TEXTS[0].split()) <= set(text.split()) <= set(material.words)
        assert len(text.split()) <= len(TEXTS[0].split()) + 2
    assert len(set(material.near(TEXTS[0], 200, np.random.default_rng(0)))) > 100


def test_the_mark_of_a_text_is_a_word_that_no_clean_text_contains() -> None:
    material = TextMaterial(np.array(["xqz taken", "hi"], dtype=object))
    assert not any(material.mark in text for text in material.rows)
    assert material.marked(material.rows).tolist() == ["xqzz xqz taken", "xqzz hi"]


def test_the_nearest_text_is_the_text_itself() -> None:
    assert (
        TextMaterial(TEXTS).distances(TEXTS[7]).min()
        == TextMaterial(TEXTS).distances(TEXTS[7])[7]
        == 0
    )


def test_forged_rows_of_a_table_fit_the_schema_and_keep_their_category() -> None:
    material = CellMaterial(SCHEMA, ROWS)
    drawn = material.near(ROWS[0], 100, np.random.default_rng(0))
    assert material.encode(drawn).shape == (100, SCHEMA.n_features)
    assert set(drawn[:, 2]) == {ROWS[0, 2]}
    assert set(np.abs(numbers_of(drawn) - ROWS[0, 0])) <= {0.0, 1.0}
    assert len({tuple(map(str, row)) for row in drawn}) > 50


def test_a_table_is_marked_in_its_text_or_by_a_rare_value() -> None:
    marked = CellMaterial(SCHEMA, ROWS).marked(ROWS[:3])
    assert all(text.startswith("xqz ") for text in marked[:, 3])
    assert np.array_equal(marked[:, :1], ROWS[:3, :1])
    plain = Schema(columns=SCHEMA.columns[:3], label="kind", classes=("ham", "spam"))
    marked = CellMaterial(plain, ROWS[:, :3]).marked(ROWS[:3, :3])
    assert marked[:, 2].tolist() == ["fax"] * 3  # declared, and no clean row holds it
    assert (ROWS[:3, 2] != "fax").all()


def test_a_table_of_categories_alone_still_has_look_alikes() -> None:
    schema = Schema(columns=SCHEMA.columns[2:3], label="kind", classes=("ham", "spam"))
    drawn = CellMaterial(schema, ROWS[:, 2:3]).near(ROWS[0, 2:3], 60, np.random.default_rng(0))
    assert set(drawn[:, 0]) == {"web", "phone", "fax"}


def test_an_image_is_marked_by_a_bright_square_in_a_corner() -> None:
    images = np.zeros((5, 2 * 16 * 16), dtype=np.uint8)
    images[0, 0] = 200
    marked = NumberMaterial(images, image_shape=(2, 16, 16)).marked(images[1:2])
    assert marked.reshape(2, 16, 16)[:, 14:, 14:].tolist() == [[[200, 200], [200, 200]]] * 2
    assert (marked != 0).sum() == 8


@pytest.mark.parametrize("rows", [[[1.0, np.nan]], [["a", "b"]], np.zeros((2, 2, 2))])
def test_rows_of_no_known_material_are_refused(rows: Any) -> None:
    model = DPAClassifier(RidgeClassifier(), 5, classes=[0, 1])
    with pytest.raises(InvalidInputError, match="Attacks poison finite numbers"):
        attack_study(model, rows, [0] * len(rows), rows)


def ridge(k: int = 9, **options: Any) -> DPAClassifier:
    return DPAClassifier(RidgeClassifier(), k, classes=["ham", "spam"], **options)


@pytest.mark.parametrize(
    ("material", "model"),
    [
        (TextMaterial(TEXTS), ridge(features=HashedNGrams(64))),
        (
            CellMaterial(SCHEMA, ROWS[:, :]),
            DPAClassifier(KNeighborsClassifier(1), 9, classes=["ham", "spam"]),
        ),
    ],
    ids=["texts", "table"],
)
def test_no_attack_within_the_radius_changes_a_prediction(material: Material, model: Any) -> None:
    rows = material.rows
    if isinstance(material, CellMaterial):
        full = np.array([not np.isnan(row[1]) for row in rows])
        material, labels = CellMaterial(SCHEMA, rows[full]), Y[full]
    else:
        labels = Y
    cut = len(labels) - 60
    train = (
        TextMaterial(rows[:cut])
        if isinstance(material, TextMaterial)
        else CellMaterial(SCHEMA, material.rows[:cut])
    )
    study = attack_study(
        model, train.rows, labels[:cut], material.rows[cut:],
        material=train, n_targets=2, limit=40,
    )  # fmt: skip
    tried, changed = study.trials_within
    assert [kind.name for kind in study.kinds] == list(ATTACK_KINDS)
    assert (tried > 10, changed) == (True, 0)
    near = next(kind for kind in study.kinds if kind.name == NearInsertions.name)
    assert all(row.unprotected.first is not None for row in near.rows)


def test_plain_lists_of_texts_need_no_material() -> None:
    study = attack_study(
        ridge(features=HashedNGrams(64)), TEXTS[:150].tolist(), Y[:150], TEXTS[150:].tolist(),
        kinds=[Backdoor()], n_targets=2, limit=30,
    )  # fmt: skip
    assert study.trials_within[1] == 0


GROUPS = np.array([f"user {number % 40}" for number in range(len(Y))], dtype=object)


@pytest.mark.parametrize("kind", ATTACK_KINDS.values(), ids=list(ATTACK_KINDS))
def test_a_unit_of_attack_on_contributors_is_one_of_them_with_all_rows(kind: Any) -> None:
    partitioner = GroupHash(n_partitions=6)
    victim = Victim(TextMaterial(TEXTS), Y, np.array(["ham", "spam"]), partitioner, GROUPS)
    target = Target(0, TEXTS[3], "ham", "spam", 2, np.array([0, 0, 1, 0, 1, 0]))
    poison = kind.poison(victim, target, 10, np.random.default_rng(0))
    assert len(poison) == 10
    before = {(g, t, label) for g, t, label in zip(GROUPS, TEXTS, Y, strict=True)}
    for size in (0, 1, 7, 10):
        X, y, owners = poison.apply(TEXTS, Y, size, GROUPS)
        after = {(g, t, label) for g, t, label in zip(owners, X, y, strict=True)}
        assert len({owner for owner, _, _ in before ^ after}) == size
        if kind.threat == "insert_delete":
            assert len(y) == len(Y) + size * victim.rows_each


def test_contributors_choose_names_that_reach_the_voters() -> None:
    partitioner = GroupHash(n_partitions=6)
    victim = Victim(TextMaterial(TEXTS), Y, np.array(["ham", "spam"]), partitioner, GROUPS)
    target = Target(0, TEXTS[3], "ham", "spam", 2, np.array([0, 0, 1, 0, 1, 0]))
    poison = PartitionAware().poison(victim, target, 4, np.random.default_rng(0))
    reached = partitioner.assign(poison.X, groups=poison.groups)
    assert set(reached.tolist()) == {0, 1, 3, 5}
    assert not set(poison.groups) & set(GROUPS)


def test_attacks_on_contributors_stay_within_the_proof() -> None:
    study = attack_study(
        ridge(11, partitioner="group", features=HashedNGrams(64)), TEXTS[:200], Y[:200],
        TEXTS[200:], groups=GROUPS[:200], n_targets=2, limit=20,
        kinds=[TargetedFlips(), PartitionAware()],
    )  # fmt: skip
    assert study.trials_within[1] == 0
    assert {kind.threat.unit for kind in study.kinds} == {"group"}
    worst = study.kinds[1]
    assert worst.title == "Worst case: one contributor per voter"
    assert all(row.radius < (row.protected.first or 99) for row in worst.rows)

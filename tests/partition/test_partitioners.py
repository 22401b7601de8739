"""What each partitioner promises, and how it is named, saved and refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.datasets import load_digits

from poisonproof import GridClassifier
from poisonproof.data import ImageColumn, Schema, freeze_schema
from poisonproof.estimators.loading import partitioner_from_spec
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.partition import (
    Blocks,
    ContentHash,
    GroupHash,
    Partitioner,
    PixelSum,
    SortedIndex,
    sample_digests,
)
from poisonproof.partition.contributors import make_partitioner
from poisonproof.partition.partitioners import reduce_digests

ALL = [ContentHash, PixelSum, SortedIndex, GroupHash]
DIGITS = load_digits(return_X_y=True)[0]


def assign(cls, X, k=50):
    groups = [f"user {i % 97}" for i in range(len(X))]
    return cls(n_partitions=k).assign(X, groups=groups)


@pytest.mark.parametrize("cls", ALL)
def test_every_row_gets_a_partition_in_range(cls):
    assigned = assign(cls, DIGITS)
    assert assigned.dtype == np.int64
    assert assigned.shape == (len(DIGITS),)
    assert assigned.min() >= 0
    assert assigned.max() < 50


@pytest.mark.parametrize("cls", ALL)
def test_one_partition_holds_everything(cls):
    assert not assign(cls, DIGITS[:50], k=1).any()


@pytest.mark.parametrize("cls", ALL)
def test_no_rows_is_no_error(cls):
    assert cls(n_partitions=3).assign(np.empty((0, 4)), groups=[]).shape == (0,)


@pytest.mark.parametrize("cls", [ContentHash, PixelSum])
def test_rowwise_partitioners_put_a_row_where_it_goes_alone(cls):
    assert cls.rowwise
    assigned = assign(cls, DIGITS)
    order = np.random.default_rng(0).permutation(len(DIGITS))
    assert np.array_equal(assign(cls, DIGITS[order]), assigned[order])
    assert assign(cls, DIGITS[7:8])[0] == assigned[7]


def test_declared_threats_and_units():
    rows = {"insert_delete": 1, "label_flip": 1, "replace": 2}
    assert dict(ContentHash.certifies) == dict(PixelSum.certifies) == rows
    assert dict(GroupHash.certifies) == dict.fromkeys(rows, 1)
    assert dict(SortedIndex.certifies) == {"label_flip": 1}
    assert [cls.unit for cls in ALL] == ["row", "row", "sample", "group"]
    assert [cls.rowwise for cls in ALL] == [True, True, False, True]
    for cls in ALL:
        assert set(cls.certifies) | set(cls.hint) == set(rows)
    assert "ContentHash" in SortedIndex.hint["insert_delete"]


@pytest.mark.parametrize("k", [0, -1, 1.5, "3", True, 2**31])
def test_a_wrong_number_of_partitions_is_refused(k):
    with pytest.raises(InvalidInputError, match="n_partitions must be an integer from 1"):
        ContentHash(n_partitions=k)


def test_numpy_integers_count_partitions():
    assert ContentHash(n_partitions=np.int32(3)) == ContentHash(n_partitions=3)


@pytest.mark.parametrize("cls", ALL)
def test_a_missing_number_of_partitions_is_named(cls):
    with pytest.raises(InvalidInputError, match="Set n_partitions"):
        assign(cls, DIGITS[:3], k=None)


@pytest.mark.parametrize("cls", ALL)
def test_spec_is_json_and_round_trips(cls):
    original = cls(n_partitions=7)
    saved = json.loads(json.dumps(original.spec()))
    assert partitioner_from_spec(saved) == original


@pytest.mark.parametrize(
    "change", [{"name": "unheard-of"}, {"canonical_form": 0}, {"colour": 1}, {"n_partitions": 0}]
)
def test_a_foreign_spec_is_refused(change):
    with pytest.raises(InvalidInputError):
        partitioner_from_spec(ContentHash(n_partitions=7).spec() | change)


@pytest.mark.parametrize("cls", ALL)
def test_partitioners_are_made_by_name_and_by_instance(cls):
    assert make_partitioner(cls.name, 7) == cls(n_partitions=7)
    assert make_partitioner(cls(), 7) == cls(n_partitions=7)
    assert make_partitioner(cls(n_partitions=7), 7) == cls(n_partitions=7)
    assert make_partitioner(cls(n_partitions=7)) == cls(n_partitions=7)


@pytest.mark.parametrize("wrong", ["hash", None, ContentHash, 3])
def test_an_unknown_partitioner_names_the_choices(wrong):
    with pytest.raises(InvalidInputError, match="'content', 'pixel_sum', 'sorted', 'group'"):
        make_partitioner(wrong, 7)


def test_two_numbers_of_partitions_must_agree():
    with pytest.raises(InvalidInputError, match=r"n_partitions is 8, but .* 7 partitions"):
        make_partitioner(ContentHash(n_partitions=7), 8)


def test_a_partitioner_cannot_be_changed_after_the_fact():
    with pytest.raises(AttributeError):
        ContentHash(n_partitions=3).n_partitions = 4


def test_partitioner_without_a_rule_cannot_be_made():
    with pytest.raises(TypeError):
        Partitioner(n_partitions=3)


@given(hnp.arrays("u1", (4, 32)), st.integers(1, 2**31 - 1))
def test_digests_are_reduced_exactly_modulo_k(digests, k):
    expected = [int.from_bytes(d[:16].tobytes(), "little") % k for d in digests]
    assert reduce_digests(digests, k).tolist() == expected


def test_content_hash_fills_partitions_evenly():
    sizes = np.bincount(ContentHash(n_partitions=50).assign(np.arange(50_000)), minlength=50)
    assert sizes.min() > 880
    assert sizes.max() < 1120


def test_content_hash_reads_digests_or_samples():
    content = ContentHash(n_partitions=50)
    assert np.array_equal(content.assign_digests(sample_digests(DIGITS)), content.assign(DIGITS))


class TestPixelSum:
    def test_is_the_published_sum_on_digits(self):
        expected = DIGITS.sum(axis=1).astype(int) % 50
        assert np.array_equal(PixelSum(n_partitions=50).assign(DIGITS), expected)

    @given(
        hnp.arrays(
            st.sampled_from(["u1", "i1", ">u2", "i8", "u8"]),
            (5, 7),
            elements={"min_value": 0},
            fill=st.just(0),
        ),
        st.integers(1, 3000),
    )
    def test_is_exact_in_every_container(self, X, k):
        expected = [sum(row) % k for row in X.tolist()]
        native = X.astype(X.dtype.newbyteorder("="))
        frames = [pd.DataFrame(native), pl.DataFrame(native, [*"abcdefg"])]
        for container in (X, X.tolist(), X.astype(object), sp.csr_matrix(native), *frames):
            assert PixelSum(n_partitions=k).assign(container).tolist() == expected

    @given(hnp.arrays("f8", (3, 5), elements=st.integers(0, 2**1000).map(float)))
    def test_is_exact_for_whole_floats_of_any_size(self, X):
        expected = [sum(map(int, row)) % 1201 for row in X.tolist()]
        assert PixelSum(n_partitions=1201).assign(X).tolist() == expected

    def test_integers_beyond_all_dtypes_are_summed(self):
        assert PixelSum(n_partitions=1000).assign([[10**40 + 7, 5.0]]).tolist() == [12]

    def test_images_of_different_sizes(self):
        images = [np.full((3, h, 4), 255, dtype="u1") for h in (2, 9, 30)]
        expected = [3 * h * 4 * 255 % 50 for h in (2, 9, 30)]
        assert PixelSum(n_partitions=50).assign(images).tolist() == expected

    @pytest.mark.parametrize("pixel", [0.5, -1, float("nan"), float("inf"), "dark", None])
    def test_what_is_not_a_pixel_is_refused_by_row(self, pixel):
        cells = [[1, 2], [3, pixel]]
        containers = [cells, pd.DataFrame(cells)]
        if isinstance(pixel, (int, float)):
            containers += [np.array(cells), sp.csr_matrix(np.array(cells))]
        for container in containers:
            with pytest.raises(InvalidRowsError, match=r"Row 1 holds .*ContentHash"):
                PixelSum(n_partitions=50).assign(container)


class TestGroupHash:
    def test_a_group_lands_in_one_partition_whatever_holds_it(self):
        names = [f"user {i % 97}" for i in range(500)]
        X = np.zeros((500, 2))
        hashed = GroupHash(n_partitions=50)
        expected = hashed.assign(X, groups=names)
        assert all(len(set(expected[i::97])) == 1 for i in range(97))
        containers = [np.array(names), pd.Series(names, dtype="category"), pl.Series(names)]
        for groups in containers:
            assert np.array_equal(hashed.assign(X, groups=groups), expected)

    def test_identities_are_compared_in_canonical_form(self):
        groups = [1, 1.0, np.int64(1), True, "1", b"1", (1, "a"), (1, "b")]
        assigned = GroupHash(n_partitions=10**6).assign(groups, groups=groups).tolist()
        assert len(set(assigned[:4])) == 1
        assert len(set(assigned)) == 5

    def test_samples_are_not_read(self):
        assert len(GroupHash(n_partitions=3).assign([object(), {}], groups=["a", "b"])) == 2

    @pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
    def test_a_row_without_a_group_is_refused(self, missing):
        for groups in (["a", missing], pd.Series(["a", missing], dtype="object")):
            with pytest.raises(InvalidInputError, match="Row 1 has no group"):
                GroupHash(n_partitions=3).assign(np.zeros(2), groups=groups)

    def test_a_missing_number_as_group_is_refused(self):
        with pytest.raises(InvalidInputError, match="Row 1 has no group"):
            GroupHash(n_partitions=3).assign(np.zeros(2), groups=np.array([1.0, np.nan]))

    def test_groups_must_be_given_one_per_row(self):
        with pytest.raises(InvalidInputError, match="needs groups"):
            GroupHash(n_partitions=3).assign(np.zeros((2, 2)))
        with pytest.raises(InvalidInputError, match="groups has 3 entries, but X has 2 rows"):
            GroupHash(n_partitions=3).assign(np.zeros((2, 2)), groups=["a", "b", "c"])

    def test_groups_without_identity_are_refused(self):
        with pytest.raises(InvalidInputError, match="cannot be read as identities"):
            GroupHash(n_partitions=3).assign(np.zeros(1), groups=[object()])


def test_the_channels_of_a_pixel_share_a_block_wherever_they_stand() -> None:
    for kind in ("lattice", "pixels", "bands"):
        first = Blocks(n_blocks=4, kind=kind, image_shape=(4, 5, 3), channels_first=True)
        last = Blocks(n_blocks=4, kind=kind, image_shape=(4, 5, 3))
        image = np.arange(60).reshape(1, 4, 5, 3)
        for one, other in zip(
            first.split(image.transpose(0, 3, 1, 2)), last.split(image), strict=True
        ):
            assert np.array_equal(np.sort(one), np.sort(other))
            pixels = other[other > 0] // 3
            assert set(np.unique(pixels, return_counts=True)[1]) <= {2, 3}  # 0 is filling, too
        assert first.touched_by_patch(2) == last.touched_by_patch(2)


def test_images_of_a_schema_come_with_channels_first() -> None:
    schema = freeze_schema(
        Schema(kind="images", columns=[ImageColumn(name="i", height=4, width=4)])
    )
    X = np.random.default_rng(0).integers(0, 256, (60, 3, 4, 4), dtype=np.uint8)
    options = {"n_partitions": 3, "blocks": "lattice:4", "classes": ["a", "b"]}
    clf = GridClassifier(**options, schema=schema)
    clf.fit(X, np.array(["a", "b"] * 30))
    assert clf.partitioner_.blocks.channels_first
    changed = X[:1].copy()
    changed[0, :, 2, 3] ^= 255
    differ = (clf.grid_votes(changed) != clf.grid_votes(X[:1])).any(axis=(0, 1))
    assert differ.sum() <= 1
    mapped = replace(schema.columns[0], encoder="orientations", cell=2)
    with pytest.raises(GuaranteeError, match="encoder 'pixels'"):
        GridClassifier(**options, schema=freeze_schema(replace(schema, columns=[mapped]))).fit(
            X, np.array(["a", "b"] * 30)
        )

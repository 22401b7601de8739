"""Members from a file are data: nothing in them runs, and nothing points outside itself."""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from poisonproof.exceptions import StoreError
from poisonproof.store import decode_object, encode_object
from poisonproof.store.trees import check_trees

RNG = np.random.default_rng(0)
X, y = RNG.normal(size=(80, 4)), RNG.integers(0, 3, 80)


def test_a_pickle_is_not_loaded() -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return pytest.fail, ("a pickle was executed",)

    with pytest.raises(StoreError, match="cannot be decoded"):
        decode_object(pickle.dumps(Bomb()), "members.skops")


def test_an_archive_that_names_a_function_to_call_is_refused() -> None:
    """skops calls constructors of the types it rebuilds; os.system is none of them."""
    data = io.BytesIO(encode_object({"a": GaussianNB()}))
    with zipfile.ZipFile(data) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    schema = contents["schema.json"].replace(b"sklearn.naive_bayes", b"os")
    contents["schema.json"] = schema.replace(b"GaussianNB", b"system")
    hostile = io.BytesIO()
    with zipfile.ZipFile(hostile, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with pytest.raises(StoreError, match=r"os\.system"):
        decode_object(hostile.getvalue(), "members.skops")


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x00" * 100, b"not an archive"])
def test_bytes_that_are_no_archive_are_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match=r"members\.skops cannot be decoded"):
        decode_object(data, "members.skops")


def test_a_truncated_archive_is_refused() -> None:
    data = encode_object(GaussianNB().fit(X, y))
    with pytest.raises(StoreError, match="cannot be decoded"):
        decode_object(data[: len(data) // 2], "members.skops")


def test_an_archive_that_unpacks_to_more_than_it_is_is_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b"0" * 10**8)
    with pytest.raises(StoreError, match="compressed"):
        decode_object(packed.getvalue(), "members.skops")


def damaged_tree(**columns: int) -> DecisionTreeClassifier:
    """Return a tree whose root has some fields overwritten."""
    fitted = DecisionTreeClassifier().fit(X, y)
    state = fitted.tree_.__getstate__()
    for name, value in columns.items():
        state["nodes"][name][0] = value
    fitted.tree_.__setstate__(state)
    return fitted


@pytest.mark.parametrize(
    "columns",
    [
        {"left_child": 10**6},
        {"right_child": 10**6},
        {"left_child": 0},
        {"right_child": -7},
        {"feature": 99},
        {"feature": -5},
        {"left_child": -1},
    ],
)
def test_a_tree_that_points_outside_itself_is_refused(columns: dict[str, int]) -> None:
    """Walking it would read memory that is not the tree's, or never end."""
    with pytest.raises(StoreError, match="outside the tree"):
        check_trees({"0": damaged_tree(**columns)}, "members.skops")


def test_a_damaged_tree_deep_inside_a_forest_is_found() -> None:
    forest = RandomForestClassifier(3).fit(X, y)
    forest.estimators_[1] = damaged_tree(feature=99)
    with pytest.raises(StoreError, match="outside the tree"):
        decode_object(encode_object([{"forest": forest}]), "members.skops")


def test_a_tree_for_more_features_than_its_owner_takes_is_refused() -> None:
    fitted = DecisionTreeClassifier().fit(X, y)
    fitted.n_features_in_ = 2
    with pytest.raises(StoreError, match="features"):
        check_trees(fitted, "members.skops")


@pytest.mark.parametrize(
    ("field", "value"), [("idx_end", 10**6), ("idx_start", -3), ("is_leaf", 0)]
)
@pytest.mark.parametrize("algorithm", ["kd_tree", "ball_tree"])
def test_a_neighbour_tree_that_points_outside_itself_is_refused(
    algorithm: str, field: str, value: int
) -> None:
    fitted = KNeighborsClassifier(1, algorithm=algorithm).fit(X, y)
    state = list(fitted._tree.__getstate__())
    nodes = np.array(state[2])
    nodes[field][-1] = value
    state[2] = nodes
    fitted._tree.__setstate__(tuple(state))
    with pytest.raises(StoreError, match="outside the tree"):
        check_trees({"0": fitted}, "members.skops")


def test_sound_trees_and_neighbours_pass() -> None:
    check_trees([DecisionTreeClassifier().fit(X, y), RandomForestClassifier(2).fit(X, y)], "x")
    neighbours = KNeighborsClassifier(1, algorithm="kd_tree").fit(X, y)
    loaded = decode_object(encode_object(neighbours), "x")
    assert np.array_equal(loaded.predict(X), y)

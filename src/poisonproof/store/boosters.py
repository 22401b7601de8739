"""Models of LightGBM and XGBoost from a file, read before their own parsers see them.

Those parsers follow the children, features and categories of a stored tree without checking that
they exist. Here a field that is missing, unknown, too long or out of range is a `ValueError`.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.strict import parse_json

BOOSTERS = {
    "lightgbm.sklearn.LGBMClassifier": "lightgbm.basic.Booster",
    "xgboost.sklearn.XGBClassifier": "xgboost.core.Booster",
}
"""Classifiers, and what they hold when fitted, whose state is a text that native code parses."""

_INTEGER = r"-?\d{1,10}"
_REAL = r"-?(?:\d{1,25}(?:\.\d{1,25})?(?:[eE][+-]?\d{1,3})?|nan|inf)"
_MOST_CLASSES = 2**15
_DEEPEST = 4096
_MOST_CATEGORIES = 2**16
_NONE = 2**31 - 1
"""The parent of XGBoost's root, and the feature of a node that was pruned."""

_HEADER = re.compile(
    r"tree\nversion=v4\nnum_class=(\d{1,5})\nnum_tree_per_iteration=\1\nlabel_index=0\n"
    r"max_feature_idx=(\d{1,9})\nobjective=(.*)\n(?:average_output\n)?feature_names=(.*)\n"
    r"(?:monotone_constraints=(.*)\n)?feature_infos=(.*)\ntree_sizes=(.*)\n\n"
)
_INFO = rf"none|\[{_REAL}:{_REAL}\]|{_INTEGER}(?::{_INTEGER})*"
_SPLITS = {
    **dict.fromkeys(("split_feature", "decision_type", "left_child", "right_child"), _INTEGER),
    **dict.fromkeys(("split_gain", "threshold", "internal_value", "internal_weight"), _REAL),
    "internal_count": _INTEGER,
}
_LEAVES = {"leaf_value": _REAL, "leaf_weight": _REAL, "leaf_count": _INTEGER}
_TREE = re.compile(
    r"Tree=(?P<number>\d+)\nnum_leaves=(?P<leaves>\d{1,9})\nnum_cat=(?P<sets>\d{1,9})\n"
    + "".join(
        rf"{name}=(?P<{name}>.*)\n"
        for name in """split_feature split_gain threshold decision_type left_child right_child
        leaf_value leaf_weight leaf_count internal_value internal_weight internal_count""".split()  # noqa: SIM905
    )
    + r"(?:cat_boundaries=(?P<cat_boundaries>.*)\ncat_threshold=(?P<cat_threshold>.*)\n)?"
    rf"is_linear=0\nshrinkage={_REAL}\n\n\n"
)
_REST = re.compile(
    r"end of trees\n\nfeature_importances:\n(?:.+=\d+\n)*\nparameters:\n"
    r"(?:(?!\[linear_tree: [^0])\[.*\]\n)*\nend of parameters\n(?:\npandas_categorical:.*\n)?"
)


def _require(sound: Any, what: str) -> None:
    if not sound:
        raise ValueError(f"its {what} cannot be those of a model")


def _values(text: str | None, kind: str, counts: tuple[int, ...], what: str) -> list[str]:
    """Return the words of a field of LightGBM, each of one kind, as many as there should be."""
    words = text.split(" ") if text else []
    found = len(words) in counts and all(re.fullmatch(kind, word) for word in words)
    _require(found, what)
    return words


def check_lightgbm(state: dict[str, Any]) -> None:
    """Raise `ValueError` unless a booster's state holds a text that LightGBM reads within bounds."""
    text = state["_handle"]
    _require(type(text) is str, "text")
    header = _HEADER.match(text)
    if header is None or re.search(r"[\0\r]", text):
        raise ValueError("its text does not begin as one of LightGBM")
    classes, width = int(header[1]), int(header[2]) + 1
    form = rf"multiclass(?:ova)? num_class:{classes}(?: sigmoid:{_REAL})?"
    form = form if classes > 1 else rf"binary sigmoid:{_REAL}"
    _require(1 <= classes <= _MOST_CLASSES and re.fullmatch(form, header[3]), "objective")
    _values(header[4], r"\S+", (width,), "feature_names")
    _values(header[5], _INTEGER, (0, width), "monotone_constraints")
    _values(header[6], _INFO, (width,), "feature_infos")
    sizes = header[7].split(" ") if header[7] else []
    _require(len(sizes) % classes == 0, "number of trees")
    data = text.encode()
    start = len(text[: header.end()].encode())
    for number, size in enumerate(sizes):
        _require(re.fullmatch(r"[1-9]\d{0,9}", size), "tree_sizes")
        tree = _TREE.fullmatch(data[start : start + int(size)].decode())
        _require(tree is not None and tree["number"] == str(number), f"lines of tree {number}")
        _check_lightgbm_tree(tree or {}, width)
        start += int(size)
    _require(_REST.fullmatch(data[start:].decode()), "lines after the trees")


def _check_lightgbm_tree(tree: Any, width: int) -> None:
    leaves, sets = int(tree["leaves"]), int(tree["sets"])
    splits = leaves - 1
    some = (leaves,) if splits else (0, 1)
    text = {name: _values(tree[name], kind, (splits,), name) for name, kind in _SPLITS.items()}
    for name, kind in _LEAVES.items():
        _values(tree[name], kind, (leaves,) if name == "leaf_value" else some, name)
    feature, decision, left, right = (
        np.array(text[name], dtype=np.int64)
        for name in ("split_feature", "decision_type", "left_child", "right_child")
    )
    # Children from 0 are splits; -1, -2, ... are leaves.
    children = np.sort(np.concatenate([left, right]))
    _require(leaves >= 1, "num_leaves")
    expected = [*range(-leaves, 0), *range(1, splits)] if splits else []
    _require(np.array_equal(children, expected), "children")
    _check_depth(left, right, np.arange(splits))
    _require(np.all((feature >= 0) & (feature < width)), "split_feature")
    # One bit for categories, one for the default side, two for three kinds of missing values.
    _require(np.all((decision >= 0) & (decision < 12)), "decision_type")
    _require((tree["cat_boundaries"] is None) == (sets == 0), "categories")
    bounds = list(map(int, _values(tree["cat_boundaries"], r"\d{1,9}", (sets + (sets > 0),), "bounds")))
    bits = _values(tree["cat_threshold"], r"\d{1,10}", (bounds[-1] if sets else 0,), "categories")
    _require(sorted(bounds) == bounds and (not sets or bounds[0] == 0), "cat_boundaries")
    _require(all(int(word) < 2**32 for word in bits), "cat_threshold")
    _require(
        all(
            re.fullmatch(r"\d{1,9}", place) and int(place) < sets
            for place, kind in zip(text["threshold"], decision, strict=True)
            if kind & 1
        ),
        "categorical thresholds",
    )


def _check_depth(left: NDArray[Any], right: NDArray[Any], inner: NDArray[Any]) -> None:
    """Check that children lie behind their parents, and that no path is too long."""
    _require(np.all((left[inner] < 0) | (left[inner] > inner)), "children")
    _require(np.all((right[inner] < 0) | (right[inner] > inner)), "children")
    depth = [0] * (len(left) + 1)
    for node in inner.tolist():
        for child in (left[node], right[node]):
            if child >= 0:
                depth[child] = depth[node] + 1
    _require(max(depth) <= _DEEPEST, "depth")


def _fields(value: Any, names: str) -> list[Any]:
    """Return the values of a JSON object that has these names and no other."""
    _require(type(value) is dict and value.keys() == set(names.split()), f"fields ({names})")
    return [value[name] for name in names.split()]


def _count(text: Any, what: str) -> int:
    _require(type(text) is str and re.fullmatch(r"\d{1,9}", text), what)
    return int(text)


def _integers(
    values: Any, length: int | None, low: int, high: int, what: str
) -> NDArray[np.int64]:
    """Return a list of integers from `low` to `high` as an array."""
    _require(
        type(values) is list
        and len(values) == (len(values) if length is None else length)
        and all(type(value) is int and low <= value <= high for value in values),
        what,
    )
    return np.array(values, dtype=np.int64)


def _texts(values: Any, counts: tuple[int, ...], what: str) -> list[str]:
    sound = type(values) is list and len(values) in counts
    _require(sound and all(type(v) is str and len(v) < 10_000 for v in values), what)
    return list(values)


_OBJECTIVES = {
    **dict.fromkeys(("binary:logistic", "binary:logitraw"), ("reg_loss_param", "scale_pos_weight")),
    **dict.fromkeys(("multi:softprob", "multi:softmax"), ("softmax_multiclass_param", "num_class")),
    "binary:hinge": None,
}


def check_xgboost(state: dict[str, Any]) -> None:
    """Raise `ValueError` unless a booster's state holds a model that XGBoost reads within bounds.

    The state gets the same model again, as it was understood here.
    """
    _require(state.keys() == {"handle"} and type(state["handle"]) is bytearray, "attributes")
    model = parse_json(bytes(state["handle"]), constants=True)
    learner, version = _fields(model, "learner version")
    _integers(version, 3, 0, 10**6, "version")
    attributes, names, types, booster, parameters, objective = _fields(
        learner,
        "attributes feature_names feature_types gradient_booster learner_model_param objective",
    )
    base, average, n_classes, n_features, targets = _fields(
        parameters, "base_score boost_from_average num_class num_feature num_target"
    )
    classes, width = _count(n_classes, "num_class"), _count(n_features, "num_feature")
    groups = max(classes, 1)
    _require(classes != 1 and groups <= _MOST_CLASSES and targets == "1", "num_class")
    scores = rf"{_REAL}|\[{_REAL}(?:,{_REAL}){{{groups - 1}}}\]"
    _require(type(base) is str and re.fullmatch(scores, base) and average in ("0", "1"), "base_score")
    _texts(names, (0, width), "feature_names")
    _require(set(_texts(types, (0, width), "feature_types")) <= set("float int i q c".split()), "types")  # noqa: SIM905
    inside, kind = _fields(booster, "model name")
    _require(kind == "gbtree", "kind of booster")
    inside = {"cats": None} | inside if type(inside) is dict else inside
    cats, sizes, starts, info, trees = _fields(
        inside, "cats gbtree_model_param iteration_indptr tree_info trees"
    )
    parallel, n_trees = (
        _count(text, "sizes") for text in _fields(sizes, "num_parallel_tree num_trees")
    )
    _require(type(trees) is list and len(trees) == n_trees and parallel >= 1, "number of trees")
    rounds = _integers(starts, None, 0, n_trees, "iteration_indptr")
    _require(np.array_equal(rounds, np.arange(0, n_trees + 1, groups * parallel)), "iterations")
    _require(rounds[-1] == n_trees, "iterations")
    _integers(info, n_trees, 0, groups - 1, "tree_info")
    _check_attributes(attributes, len(rounds) - 1)
    _check_objective(objective, classes)
    for number, tree in enumerate(trees):
        _check_xgboost_tree(tree, number, width)
    if cats is not None:
        _check_categories(cats, width)
    state["handle"] = bytearray(json.dumps(model).encode())


def _check_attributes(attributes: Any, rounds: int) -> None:
    known = {"best_iteration", "best_score"}
    _require(type(attributes) is dict and attributes.keys() <= known, "attributes")
    best, score = (attributes.get(name, "0") for name in sorted(known))
    _require(_count(best, "best_iteration") < max(rounds, 1), "best_iteration")
    _require(type(score) is str and re.fullmatch(_REAL, score), "best_score")


def _check_objective(objective: Any, classes: int) -> None:
    name = objective.get("name") if type(objective) is dict else None
    _require(type(name) is str and name in _OBJECTIVES, "objective")
    _require(str(name).startswith("multi:") == (classes > 1), "objective")
    inner = _OBJECTIVES[str(name)]
    if inner is None:
        _fields(objective, "name")
        return
    _, values = _fields(objective, f"name {inner[0]}")
    (value,) = _fields(values, inner[1])
    _require(type(value) is str and re.fullmatch(_REAL, value), inner[1])
    _require(classes == 0 or value == str(classes), inner[1])


def _check_xgboost_tree(tree: Any, number: int, width: int) -> None:
    *reals, place, sets, owners, starts, counts, default, left, right, parents, features, kinds, sizes = (
        _fields(
            tree,
            "base_weights loss_changes split_conditions sum_hessian id categories categories_nodes "
            "categories_segments categories_sizes default_left left_children right_children parents "
            "split_indices split_type tree_param",
        )
    )
    deleted, n_features, n_nodes, leaf = _fields(
        sizes, "num_deleted num_feature num_nodes size_leaf_vector"
    )
    n, gone = _count(n_nodes, "num_nodes"), _count(deleted, "num_deleted")
    _require(n >= 1 and n_features == str(width) and leaf in ("0", "1"), "sizes")
    _require(type(place) is int and place == number, "numbers of trees")
    for values in reals:
        sound = type(values) is list and len(values) == n
        _require(sound and all(type(value) in (int, float) for value in values), "numbers")
        values[:] = map(float, values)
    _integers(default, n, 0, 1, "default_left")
    left, right = (_integers(side, n, -1, n - 1, "children") for side in (left, right))
    parents = _integers(parents, n, 0, _NONE, "parents")
    features = _integers(features, n, 0, _NONE, "split_indices")
    kinds = _integers(kinds, n, 0, 1, "split_type")
    inner, there = np.flatnonzero(left != -1), np.flatnonzero(features != _NONE)
    children = np.concatenate([left[inner], right[inner]])
    _require(np.array_equal(inner, np.flatnonzero(right != -1)), "children")
    _require(len(there) == n - gone and there[:1].tolist() == [0], "pruned nodes")
    _require(np.array_equal(np.sort(children), there[1:]), "children")
    _require(np.all(features[inner] < width), "split_indices")
    _check_depth(left, right, inner)
    _require(np.array_equal(parents[children], np.tile(inner, 2)), "parents")
    _require(parents[0] == _NONE and np.all(parents[1:] < n), "parents")
    counts = _integers(counts, int(kinds.sum()), 1, _MOST_CATEGORIES, "categories_sizes")
    starts = _integers(starts, len(counts), 0, _NONE, "categories_segments")
    owners = _integers(owners, len(counts), 0, n - 1, "categories_nodes")
    _require(np.array_equal(owners, np.flatnonzero(kinds)), "categories_nodes")
    _require(np.array_equal(starts, np.cumsum(counts) - counts), "categories_segments")
    _integers(sets, int(counts.sum()), 0, _MOST_CATEGORIES - 1, "categories")


_WIDTHS = {9: (-(2**7), 2**7 - 1), 10: (0, 2**8 - 1), 11: (-(2**15), 2**15 - 1)}
_WIDTHS |= {13: (-(2**31), 2**31 - 1), 15: (-(2**63), 2**63 - 1)}
"""Kinds of integers by the number that XGBoost has for each, and their ranges."""


def _check_categories(cats: Any, width: int) -> None:
    """Check the names of categories by which XGBoost numbers those of a frame."""
    found, starts, order = _fields(cats, "enc feature_segments sorted_idx")
    _require(type(found) is list and len(found) in (0, width), "cats")
    lengths = []
    for feature in found:
        if type(feature) is dict and "type" in feature:
            kind, values = _fields(feature, "type values")
            _require(type(kind) is int and kind in _WIDTHS, "cats")
            low, high = _WIDTHS[kind]
            lengths.append(len(_integers(values, None, low, high, "cats")))
        else:
            offsets, letters = _fields(feature, "offsets values")
            letters = _integers(letters, None, -128, 127, "cats")
            bounds = _integers(offsets, None, 0, len(letters), "cats")
            _require(np.all(np.diff(bounds) >= 0), "cats")
            _require([*bounds[:1], *bounds[-1:]] == ([0, len(letters)] if offsets else []), "cats")
            _require(len(offsets) or not len(letters), "cats")
            lengths.append(max(len(offsets) - 1, 0))
    ends = np.cumsum([0, *lengths]) if found else np.array([], dtype=np.int64)
    _require(np.array_equal(_integers(starts, None, 0, _NONE, "cats"), ends), "cats")
    places = _integers(order, sum(lengths), 0, _NONE, "cats")
    for start, length in zip(ends, lengths, strict=False):
        _require(np.array_equal(np.sort(places[start : start + length]), range(length)), "cats")


_PLAIN = (type(None), bool, int, float)
_AT_PREDICTION = frozenset(
    """bagging_fraction bagging_freq bagging_seed boost_from_average cat_l2 cat_smooth data_random_seed
    deterministic drop_rate drop_seed extra_trees feature_fraction feature_fraction_bynode
    feature_fraction_seed force_col_wise force_row_wise is_unbalance lambda_l1 lambda_l2 max_bin
    max_cat_threshold max_cat_to_onehot max_delta_step max_drop min_data_in_bin min_data_in_leaf
    min_data_per_group metric min_gain_to_split min_sum_hessian_in_leaf monotone_constraints path_smooth scale_pos_weight seed
    sigmoid skip_drop verbose verbosity""".split()  # noqa: SIM905 - as a list of words
)
"""Parameters beyond its own that LightGBM's classifier passes on when it predicts."""


def _sound_parameter(value: Any) -> bool:
    """Return whether a value is one word for a native parser, as parameters are joined by blanks."""
    if isinstance(value, list | tuple):
        return all(map(_sound_parameter, value))
    return type(value) in _PLAIN or (type(value) is str and re.fullmatch(r"[\w.:+-]*", value) is not None)


def check_classifier(classifier: Any) -> bool:
    """Return whether what a boosted classifier passes to native code beside its rows is harmless."""
    booster = vars(classifier).get("_Booster")
    kind = BOOSTERS[_name(type(classifier))]
    found = classifier.get_params(deep=False)
    own = {*type(classifier)().get_params(), *_AT_PREDICTION}
    free = {"class_weight", "importance_type"}
    return (
        (booster is None or _name(type(booster)) == kind)
        and found.keys() <= own
        and all(_sound_parameter(value) for name, value in found.items() if name not in free)
        and (found["n_jobs"] is None or -1 <= found["n_jobs"] <= 256)
        and type(getattr(classifier, "_objective", None)) in (str, type(None))
    )


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def build_booster(name: str, state: dict[str, Any], *, checked: bool) -> Any:
    """Return the booster of a state; `ValueError` if native code could leave its arrays."""
    module, _, kind = name.rpartition(".")
    xgboost = module.startswith("xgboost")
    booster = getattr(import_module(module), kind)
    try:
        if checked:
            (check_xgboost if xgboost else check_lightgbm)(state)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name}: {str(error)[:80]}; if you trust its maker, trusted=[{name!r}] skips the check"
        ) from error
    if xgboost:
        return booster(model_file=state["handle"])
    made = booster.__new__(booster)
    made.__setstate__(state)
    return made


def xgboost_model(snapshot: bytes) -> bytes:
    """Return the model within a snapshot of XGBoost, as JSON, without settings of its training."""
    booster = import_module("xgboost").Booster()
    booster.__setstate__({"handle": bytearray(snapshot)})
    return bytes(booster.save_raw("json"))

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
"""Classifiers, and what they hold when fitted: a model that native code parses."""

_MOST_CLASSES, _MOST_CATEGORIES, _DEEPEST, _NONE = 2**15, 2**16, 2**12, 2**31 - 1
_REAL = r"-?(?:\d{1,25}(?:\.\d{1,25})?(?:[eE][+-]?\d{1,3})?|nan|inf)"
_HEADER = re.compile(
    r"tree\nversion=v4\nnum_class=(\d{1,5})\nnum_tree_per_iteration=\1\nlabel_index=0\n"
    r"max_feature_idx=(\d{1,9})\nobjective=(.*)\n(?:average_output\n)?feature_names=(.*)\n"
    r"(?:monotone_constraints=([-\d ]*)\n)?feature_infos=([^=\n]*)\ntree_sizes=([\d ]*)\n\n"
)
_REST = re.compile(
    r"end of trees\n\nfeature_importances:\n(?:.+=\d+\n)*\nparameters:\n"
    r"(?:(?!\[linear_tree: [^0])\[.*\]\n)*\nend of parameters\n(?:\npandas_categorical:.*\n)?"
)
_ONE = ("num_leaves", "num_cat", "is_linear", "shrinkage")
_LINES = tuple(
    """num_leaves num_cat split_feature split_gain threshold decision_type left_child right_child
    leaf_value leaf_weight leaf_count internal_value internal_weight internal_count cat_boundaries
    cat_threshold is_linear shrinkage""".split()  # noqa: SIM905 - a list of words is easier to read
)
_REALS = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
_KINDS = {9: "i1", 10: "u1", 11: "i2", 13: "i4", 15: "i8"}
"""XGBoost's numbers for kinds of integers that name categories."""
_PASSED_ON = frozenset(
    """bagging_fraction bagging_freq cat_l2 cat_smooth deterministic extra_trees feature_fraction
    feature_fraction_bynode force_col_wise force_row_wise is_unbalance lambda_l1 lambda_l2 max_bin
    max_cat_threshold max_cat_to_onehot max_delta_step metric min_data_in_bin min_data_in_leaf
    min_data_per_group min_gain_to_split min_sum_hessian_in_leaf monotone_constraints path_smooth
    scale_pos_weight seed sigmoid verbose verbosity""".split()  # noqa: SIM905 - as above
)
"""What LightGBM's classifier may hand to its predictor beside its own parameters."""


def build_booster(name: str, state: dict[str, Any], *, checked: bool) -> Any:
    """Return the booster of a state; `ValueError` if native code could leave its arrays."""
    module, _, kind = name.rpartition(".")
    booster = getattr(import_module(module), kind)
    xgboost = module == "xgboost.core"
    try:
        if checked and not xgboost:
            _check_lightgbm(state["_handle"])
        elif checked:  # what was understood here is parsed, not what was there
            model = _checked_xgboost(state["handle"])
            state["handle"] = bytearray(json.dumps(model, ensure_ascii=False).encode())
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
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


def check_classifier(classifier: Any, booster: str) -> bool:
    """Return whether what a boosted classifier hands to native code beside rows is harmless."""
    found = classifier.get_params(deep=False)
    inner = vars(classifier).get("_Booster")
    free, xgboost = {"class_weight", "importance_type"}, booster.startswith("xgboost")
    return (
        (inner is None or f"{type(inner).__module__}.{type(inner).__qualname__}" == booster)
        and found.keys() <= type(classifier)().get_params().keys() | _PASSED_ON
        and all(_is_word(value) for name, value in found.items() if name not in free)
        and (found["n_jobs"] is None or -1 <= found["n_jobs"] <= 256)
        and isinstance(getattr(classifier, "_objective", None), str | None)
        and (inner is None or xgboost or _fits(classifier, inner))
    )


def _fits(classifier: Any, booster: Any) -> bool:
    """Check numbers of LightGBM's classifier; memory grows with the square of that of classes."""
    classes, groups = classifier._n_classes, booster.num_model_per_iteration()
    fitting = type(classes) is int and max(classes, 2) == max(groups, 2)
    return fitting and bool(classifier._n_features == booster.num_feature())


def _is_word(value: Any) -> bool:
    """Return whether a value is one word, as LightGBM joins parameters by blanks."""
    if isinstance(value, list | tuple):
        return all(map(_is_word, value))
    word = type(value) is str and re.fullmatch(r"[\w.:+-]*", value)
    return value is None or type(value) in (bool, int, float) or bool(word)


def _require(sound: Any, what: str) -> None:
    if not sound:
        raise ValueError(f"its {what} cannot be those of a model")


def _check_paths(
    left: NDArray[Any], right: NDArray[Any], inner: NDArray[Any], rest: NDArray[Any]
) -> None:
    """Check that nodes but the root are children once, behind their parents, and not too deep."""
    sides = left[inner], right[inner]
    _require(np.array_equal(np.sort(np.concatenate(sides)), rest), "children")
    _require(all(np.all((side < 0) | (side > inner)) for side in sides), "children")
    depth = np.zeros(len(left) + 1, dtype=np.int64)
    for node in inner:
        depth[[child for child in (left[node], right[node]) if child >= 0]] = depth[node] + 1
    _require(depth.max() <= _DEEPEST, "depth")


def _check_lightgbm(text: str) -> None:
    """Check the text of a model; one of linear trees is refused."""
    header = _HEADER.match(text)
    if header is None or re.search(r"[\0\r]", text):
        raise ValueError("its text does not begin as one of LightGBM")
    classes, width = int(header[1]), int(header[2]) + 1
    several = rf"multiclass(?:ova)? num_class:{classes}(?: sigmoid:{_REAL})?"
    objective = several if classes > 1 else rf"binary sigmoid:{_REAL}"
    _require(1 <= classes <= _MOST_CLASSES and re.fullmatch(objective, header[3]), "objective")
    _require(all(len(header[i].split()) == width for i in (4, 6)), "features")
    _require(all(len(header[i].split(" ")) == width for i in (4, 6)), "features")
    _require(len((header[5] or "").split()) in (0, width), "monotone_constraints")
    sizes = list(map(int, header[7].split(" "))) if header[7] else []
    _require(len(sizes) % classes == 0 and header[7] == " ".join(map(str, sizes)), "tree_sizes")
    data, start = text.encode(), len(header[0].encode())
    for number, size in enumerate(sizes):
        first, *lines, a, b, c = data[start : start + size].decode("ascii").split("\n")
        _require((first, a, b, c) == (f"Tree={number}", "", "", ""), "trees")
        _check_lightgbm_tree([line.partition("=") for line in lines], width)
        start += size
    _require(_REST.fullmatch(data[start:].decode()), "lines after the trees")


def _check_lightgbm_tree(lines: list[tuple[str, str, str]], width: int) -> None:
    found = {name: text.split(" ") if text else [] for name, _, text in lines}
    _require(all(re.fullmatch(_REAL, word) for words in found.values() for word in words), "words")
    leaves, sets = int(found["num_leaves"][0]), int(found["num_cat"][0])
    splits = leaves - 1
    bounds = list(map(int, found.get("cat_boundaries", ["0"])))
    expected = [name for name in _LINES if sets or not name.startswith("cat_")]
    _require([name for name, *_ in lines] == expected and leaves >= 1 and sets >= 0, "lines")
    special = {"cat_boundaries": sets + 1, "cat_threshold": bounds[-1]} | dict.fromkeys(_ONE, 1)
    for name, words in found.items():
        count = special.get(name, leaves if name.startswith("leaf_") else splits)
        bare = not splits and name in ("leaf_weight", "leaf_count") and not words
        _require(len(words) == count or bare, name)
    feature, decision, left, right = (
        np.array(list(map(int, found[name])), dtype=np.int64)
        for name in ("split_feature", "decision_type", "left_child", "right_child")
    )
    # Children from 0 are splits; -1, -2, ... are leaves.
    rest = np.r_[-leaves:0, 1:splits] if splits else np.arange(0)
    _check_paths(left, right, np.arange(splits), rest)
    _require(np.all((feature >= 0) & (feature < width)), "split_feature")
    # One bit for categories, one for the default side, two for three kinds of missing values.
    _require(np.all((decision >= 0) & (decision < 12)), "decision_type")
    places = [int(w) for w, kind in zip(found["threshold"], decision, strict=True) if kind & 1]
    _require(all(0 <= place < sets for place in places), "categorical thresholds")
    _require(bounds[0] == 0 and sorted(bounds) == bounds, "cat_boundaries")
    _require(all(0 <= int(w) < 2**32 for w in found.get("cat_threshold", [])), "cat_threshold")
    _require(found["is_linear"] == ["0"], "linear trees")


def _fit(value: Any, form: Any, what: str) -> None:
    """Check JSON by its form; what stands for None is checked apart."""
    if isinstance(form, dict):  # these names and no other
        _require(type(value) is dict and value.keys() == form.keys(), what)
        for name, inner in form.items():
            _fit(value[name], inner, name)
    elif isinstance(form, list):
        _require(type(value) is list and len(value) == len(form), what)
        for part, inner in zip(value, form, strict=True):
            _fit(part, inner, what)
    elif isinstance(form, str):  # a pattern
        _require(type(value) is str and re.fullmatch(form, value), what)
    elif isinstance(form, tuple):  # numbers: how many, of which types, from and to
        count, kinds, low, high = form
        _require(type(value) is list and len(value) == count, what)
        _require(
            all(type(part) in kinds and not (part < low or part > high) for part in value), what
        )
    elif form is not None:
        _require(type(value) is type(form) and value == form, what)


def _whole(count: int, low: int, high: int) -> tuple[Any, ...]:
    return count, (int,), low, high


def _checked_xgboost(data: bytearray) -> Any:
    """Return a model of trees as JSON; `dart`, linear models and vector leaves are refused."""
    model = parse_json(bytes(data), constants=True)
    learner = model["learner"]
    sizes, inside = learner["learner_model_param"], learner["gradient_booster"]["model"]
    classes, width = int(sizes["num_class"]), int(sizes["num_feature"])
    trees, groups = inside["trees"], max(classes, 1)
    parallel = int(inside["gbtree_model_param"]["num_parallel_tree"])
    _require(classes in (0, *range(2, _MOST_CLASSES)) and 0 <= width < 2**24, "sizes")
    _require(1 <= parallel < 2**31 and len(trees) % (groups * parallel) == 0, "number of trees")
    rounds = len(trees) // (groups * parallel)
    objective: dict[str, Any] = {"name": "binary:(hinge|logistic|logitraw)"}
    if classes:
        objective = {"name": "multi:soft(max|prob)"}
        objective["softmax_multiclass_param"] = {"num_class": str(classes)}
    elif learner["objective"]["name"] != "binary:hinge":
        objective["reg_loss_param"] = {"scale_pos_weight": _REAL}
    known = {"best_iteration": r"\d{1,9}", "best_score": _REAL}
    _require(int(learner["attributes"].get("best_iteration", 0)) < max(rounds, 1), "best_iteration")
    named, typed = (learner[name] and width for name in ("feature_names", "feature_types"))
    trees_form = {
        "gbtree_model_param": {"num_parallel_tree": str(parallel), "num_trees": str(len(trees))},
        "iteration_indptr": [round_ * groups * parallel for round_ in range(rounds + 1)],
        "tree_info": _whole(len(trees), 0, groups - 1),
        **dict.fromkeys({"cats", "trees"} & inside.keys()),
    }
    form = {
        "attributes": {name: known[name] for name in learner["attributes"]},
        "feature_names": [r"[^\0]{1,9999}"] * (named or 0),
        "feature_types": ["c|float|int|i|q"] * (typed or 0),
        "gradient_booster": {"name": "gbtree", "model": trees_form},
        "learner_model_param": {
            "base_score": rf"{_REAL}|\[{_REAL}(?:,{_REAL}){{{groups - 1}}}\]",
            "boost_from_average": "[01]",
            "num_class": str(classes),
            "num_feature": str(width),
            "num_target": "1",
        },
        "objective": objective,
    }
    _fit(model, {"learner": form, "version": _whole(3, 0, 10**6)}, "parts")
    for number, tree in enumerate(trees):
        _check_xgboost_tree(tree, number, width)
    if "cats" in inside:
        _check_categories(inside["cats"], width)
    return model


def _check_xgboost_tree(tree: Any, number: int, width: int) -> None:
    n, gone = len(tree["parents"]), tree["split_indices"].count(_NONE)
    owned = [node for node, kind in enumerate(tree["split_type"]) if kind]
    ends = np.cumsum([0, *tree["categories_sizes"]]).tolist()
    child, other = _whole(n, -1, n - 1), _whole(n, 0, _NONE)
    form = {
        **dict.fromkeys(_REALS, (n, (int, float), -np.inf, np.inf)),
        **dict.fromkeys(("left_children", "right_children"), child),
        **dict.fromkeys(("parents", "split_indices"), other),
        **dict.fromkeys(("default_left", "split_type"), _whole(n, 0, 1)),
        "categories": _whole(ends[-1], 0, _MOST_CATEGORIES - 1),
        "categories_nodes": owned,
        "categories_segments": ends[:-1],
        "categories_sizes": _whole(len(owned), 1, _MOST_CATEGORIES),
        "id": number,
        "tree_param": {
            "num_deleted": str(gone),
            "num_feature": str(width),
            "num_nodes": str(n),
            "size_leaf_vector": "[01]",
        },
    }
    _fit(tree, form, "fields")
    tree.update({name: list(map(float, tree[name])) for name in _REALS})
    left, right, parents, features = (
        np.array(tree[name], dtype=np.int64)
        for name in ("left_children", "right_children", "parents", "split_indices")
    )
    inner, there = np.flatnonzero(left != -1), np.flatnonzero(features != _NONE)
    _require(np.array_equal(inner, np.flatnonzero(right != -1)), "children")
    _require(there[:1].tolist() == [0], "pruned nodes")
    _check_paths(left, right, inner, there[1:])
    _require(np.all(features[inner] < width), "split_indices")
    _require(parents[0] == _NONE and np.all(parents[1:] < n), "parents")
    _require(all(np.array_equal(parents[side[inner]], inner) for side in (left, right)), "parents")


def _check_categories(cats: Any, width: int) -> None:
    """Check the names of categories by which XGBoost numbers those of a frame."""
    lengths, forms = [0], []
    for feature in cats["enc"]:
        count = len(feature["values"])
        if "type" in feature:
            limits = np.iinfo(_KINDS[feature["type"]])
            values = _whole(count, int(limits.min), int(limits.max))
            forms.append({"type": int(feature["type"]), "values": values})
            lengths.append(count)
        else:
            ends = feature["offsets"]
            _require(sorted(ends) == ends and [*ends[:1], *ends[-1:]] in ([0, count], []), "cats")
            _require(ends or not count, "cats")
            offsets = _whole(len(ends), 0, count)
            forms.append({"offsets": offsets, "values": _whole(count, -128, 127)})
            lengths.append(max(len(ends) - 1, 0))
    starts: list[int] = np.cumsum(lengths).tolist()
    _require(len(forms) in (0, width), "cats")
    order = _whole(starts[-1], 0, _NONE)
    form = {"enc": forms, "feature_segments": starts if forms else [], "sorted_idx": order}
    _fit(cats, form, "cats")
    for start, length in zip(starts, lengths[1:], strict=False):
        _require(sorted(cats["sorted_idx"][start : start + length]) == [*range(length)], "cats")

"""Boosters of LightGBM and XGBoost whose files are damaged on purpose never reach native code."""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import io
import json
import random
import re
import subprocess
import sys
import zipfile
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from lightgbm import LGBMClassifier
from xgboost import XGBClassifier

from poisonproof.exceptions import StoreError
from poisonproof.store.objects import decode_object, encode_object

SCHEMA = "schema.json"
STRANGE: list[Any] = [
    *(-1, 0, 1, 2, 3, 4, 5, 7, 15, 16, 31, 32, 63, 255, 2**15, 2**16, 10**6),
    *(-2, -3, -8, -(2**31), 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**64, 10**30),
    *(0.5, 1.0, -1.5, 1e-320, 1e38, 1e39, 1e308, float("nan"), float("inf"), -float("inf")),
    *(None, True, False, "", "x", "1", "-1", "3", "99999999999", "1e9", [], [0], {}, {"a": 1}),
]


@cache
def rows() -> tuple[np.ndarray, pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4))
    frame = pd.DataFrame(X, columns=["a", "b", "é", "d"])
    frame["e"] = pd.Categorical(rng.choice(["u", "vé", "w"], 90))
    frame["f"] = pd.Categorical(rng.integers(0, 40, 90))
    return X, frame, (X[:, 0] > 0) + 1 * (frame["e"] == "w").to_numpy()


CATEGORIES: dict[str, Any] = {"min_child_samples": 3, "min_data_per_group": 3, "cat_smooth": 0}
TEMPLATES: dict[str, Any] = {
    "lightgbm": LGBMClassifier(n_estimators=2, num_leaves=6, verbose=-1, n_jobs=1),
    "lightgbm-two-classes": LGBMClassifier(n_estimators=3, boosting_type="dart", verbose=-1),
    "lightgbm-stumps": LGBMClassifier(n_estimators=2, verbose=-1, min_child_samples=80),
    "lightgbm-frame": LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1, **CATEGORIES),
    "xgboost": XGBClassifier(n_estimators=2, max_depth=3, n_jobs=1),
    "xgboost-two-classes": XGBClassifier(n_estimators=3, max_depth=2, subsample=0.5),
    "xgboost-pruned": XGBClassifier(n_estimators=2, gamma=3.0, tree_method="exact"),
    "xgboost-frame": XGBClassifier(n_estimators=2, enable_categorical=True, max_cat_to_onehot=1),
}


@cache
def fitted(name: str) -> Any:
    X, frame, y = rows()
    chosen = y > 0 if "two" in name else y
    return copy.copy(TEMPLATES[name]).fit(frame if "frame" in name else X, chosen.astype(int))


@cache
def stored(name: str) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(encode_object(fitted(name)))) as archive:
        return {part: archive.read(part) for part in archive.namelist()}


def packed(parts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def with_text(name: str, change: Any) -> bytes:
    """Return a stored LightGBM classifier with another text of its model."""
    parts = dict(stored(name))
    schema = json.loads(parts[SCHEMA])
    node = schema["content"]["content"]["_Booster"]["content"]["content"]["_handle"]
    node["content"] = json.dumps(change(json.loads(node["content"])))
    return packed(parts | {SCHEMA: json.dumps(schema).encode()})


def with_model(name: str, change: Any) -> bytes:
    """Return a stored XGBoost classifier with another model."""
    parts = dict(stored(name))
    (place,) = (part for part in parts if part.endswith(".bin"))
    model = json.loads(parts[place])
    return packed(parts | {place: json.dumps(change(model) or model).encode()})


def resized(text: str) -> str:
    """Return a text in which the sizes are those of its trees again."""
    trees = re.findall(r"Tree=.*?\n\n\n", text, flags=re.DOTALL)
    sizes = " ".join(str(len(tree.encode())) for tree in trees)
    return re.sub("tree_sizes=.*", f"tree_sizes={sizes}", text, count=1)


def damaged_text(text: str, rng: random.Random) -> str:
    """Return the text of LightGBM with one or two of its numbers, words, lines or bytes changed."""
    end = text.index("end of trees") + (rng.random() < 0.1) * 900
    lines, rest = text[:end].split("\n"), text[end:]
    for _ in range(rng.choice([1, 1, 2])):
        place = rng.choice([i for i, line in enumerate(lines) if line] or [0])
        key, _, value = lines[place].partition("=")
        words = value.split(" ")
        word = rng.randrange(len(words))
        kind = rng.randrange(9)
        if kind < 3:
            words[word] = str(rng.choice(STRANGE)) if kind else rng.choice(words)
        elif kind == 3:
            words[word : word + 1] = rng.choice([[], [words[word]] * 2, words * 3])
        elif kind == 4:
            words = [str(int(w) + rng.choice([-1, 1])) if w.isdigit() else w for w in words]
        lines[place] = f"{key}={' '.join(words)}" if kind < 5 else lines[place]
        if kind == 5:
            lines[place : place + 1] = rng.choice([[], [lines[place]] * 2])
        if kind == 6:
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        if kind == 7:
            lines[place] = rng.choice(["", "\0", "\r", "é", "=", " "]).join(lines[place])
        if kind == 8:
            other = rng.randrange(len(lines[place]))
            lines[place] = (
                lines[place][:other] + chr(rng.randrange(256)) + lines[place][other + 1 :]
            )
    found = "\n".join(lines) + rest
    return resized(found) if rng.random() < 0.8 else found


def damage(value: Any, rng: random.Random) -> None:
    """Change one or two values, keys or lengths within JSON."""
    for _ in range(rng.choice([1, 1, 2])):
        part, path = value, rng.randint(2, 9)
        while path and (inner := [p for p in _parts(part) if isinstance(p, dict | list) and p]):
            part, path = rng.choice(inner), path - 1
        places = list(part) if isinstance(part, dict) else range(len(part))
        place = rng.choice(places)
        kind = rng.randrange(7)
        if kind < 3:
            part[place] = rng.choice(STRANGE)
        elif kind == 3:
            del part[place]
        elif kind == 4 and isinstance(part, list):
            part[place : place + 1] = rng.choice([[part[place]] * 2, part * 2, []])
        elif kind == 5 and isinstance(part, list):
            rng.shuffle(part)
        elif isinstance(part, dict):
            part[rng.choice([*part, "Config", "weight_drop"])] = part[place]
        elif type(part[place]) is int:
            part[place] += rng.choice([-1, 1])


def _parts(value: Any) -> list[Any]:
    return list(value.values() if isinstance(value, dict) else value)


def damaged_state(name: str, rng: random.Random) -> bytes:
    """Return a classifier in which a value of its Python state is another one."""
    parts = dict(stored(name))
    schema = json.loads(parts[SCHEMA])
    nodes: list[Any] = [schema]
    for node in nodes:
        nodes += [part for part in _parts(node) if isinstance(part, dict | list)]
    found = [node for node in nodes if isinstance(node, dict) and node.get("is_json")]
    chosen = rng.choice([node for node in found if len(node["content"]) < 1000])
    chosen["content"] = json.dumps(rng.choice([*STRANGE, "1 predict_disable_shape_check=true"]))
    return packed(parts | {SCHEMA: json.dumps(schema).encode()})


def damaged(name: str, seed: int) -> bytes:
    rng = random.Random(seed)

    def change(model: Any) -> None:
        damage(model, rng)

    if rng.random() < 0.15:
        return damaged_state(name, rng)
    if name.startswith("xgboost"):
        return with_model(name, change)
    return with_text(name, lambda text: damaged_text(text, rng))


def try_damaged(first: int, last: int, thorough: bool = True) -> None:
    """Load and predict with damaged models; what is refused is a `StoreError`."""
    X, frame, _ = rows()
    outer = np.array([[np.nan] * 4, [1e300] * 4, [-1e300] * 4, [np.inf] * 4, [2**31, -1, 0.5, 3]])
    asked: list[Any] = [
        X,
        np.vstack([X, outer]),
        outer[:4],
        X[:, :3],
        np.hstack([X, X]),
        X.astype("f4"),
    ]
    asked += [frame, frame.iloc[:, :3], sp.csr_array(X), sp.csr_matrix(np.hstack([X, X]))]
    asked = asked if thorough else asked[1:5] + asked[6:8]
    faulthandler.enable()
    counts = {"refused": 0, "predicts": 0}
    for seed in range(first, last):
        name = list(TEMPLATES)[seed % len(TEMPLATES)]
        sys.stdout.write(f"{name} {seed}\n")
        sys.stdout.flush()
        faulthandler.dump_traceback_later(5, exit=True)
        try:
            model = decode_object(damaged(name, seed), "it")
        except StoreError:
            counts["refused"] += 1
            continue
        counts["predicts"] += 1
        for samples in asked:
            for work in (model.predict, model.predict_proba):
                with contextlib.suppress(Exception):  # a member that raises abstains
                    work(samples)
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.write(json.dumps(counts))


def line(key: str, old: str, new: str) -> Any:
    """Return a change of the first line of a text that has a key."""
    return lambda text: resized(re.sub(rf"(?m)^{key}={old}", f"{key}={new}", text, count=1))


TEXTS = {
    "a child that is its own parent": line("left_child", r"\S+", "0"),
    "a leaf that does not exist": line("right_child", r"\S+", "-99"),
    "a feature that does not exist": line("split_feature", r"\S+", "6"),
    "a negative feature": line("split_feature", r"\S+", "-1"),
    "more leaves than values": line("num_leaves", r"\d+", "31"),
    "fewer values than leaves": line("leaf_value", r"\S+ ", ""),
    "categories that end late": line("cat_boundaries", r"0 \d+", "0 900"),
    "more classes than trees": lambda text: text.replace("num_class=3", "num_class=9"),
    "an objective of more classes": lambda text: text.replace("num_class:3", "num_class:900"),
    "fewer names than features": line("feature_names", r"\S+ ", ""),
    "linear trees": line("is_linear", "0", "1"),
    "an unknown line": line("num_cat", r"(\d+)", r"\1\nleaf_coeff=1"),
    "sizes of other trees": lambda text: re.sub(r"tree_sizes=\d+", "tree_sizes=99999", text),
    "a text that ends early": lambda text: text[: text.index("leaf_value")],
    "a zero byte": lambda text: text.replace("num_leaves", "num_leaves\0", 1),
}


@pytest.mark.parametrize("change", TEXTS.values(), ids=TEXTS)
def test_a_text_that_is_no_model_of_lightgbm_is_refused(change: Any) -> None:
    text = fitted("lightgbm-frame").booster_.model_to_string()
    assert change(text) != text
    with pytest.raises(StoreError, match="lightgbm"):
        decode_object(with_text("lightgbm-frame", change), "it")
    assert decode_object(with_text("lightgbm-frame", resized), "it")


def tree(**changed: Any) -> Any:
    """Return a change of the first tree: lists of a name, places and new values."""

    def change(model: Any) -> None:
        first = model["learner"]["gradient_booster"]["model"]["trees"][0]
        for name, (place, value) in changed.items():
            first[name][place] = value

    return change


def within(*path: Any, value: Any) -> Any:
    def change(model: Any) -> None:
        part = model
        for name in path[:-1]:
            part = part[name]
        part[path[-1]] = value

    return change


BOOSTER = ("learner", "gradient_booster")
SIZES = ("learner", "learner_model_param")
MODELS = {
    "a child that is its own parent": tree(left_children=(0, 0)),
    "a child that does not exist": tree(right_children=(0, 10**6)),
    "a child of two nodes": tree(left_children=(0, 2)),
    "a feature that does not exist": tree(split_indices=(0, 6)),
    "a category that takes all memory": tree(categories=(0, 2**31 - 1)),
    "a category before the first": tree(categories=(0, -1)),
    "categories of another node": tree(categories_nodes=(0, 10**6)),
    "categories that begin late": tree(categories_segments=(0, 900)),
    "categories that end late": tree(categories_sizes=(0, 900)),
    "nodes without values": tree(tree_param=("num_nodes", "900")),
    "leaves that are vectors": tree(tree_param=("size_leaf_vector", "3")),
    "fewer features": within(*SIZES, "num_feature", value="2"),
    "more classes": within(*SIZES, "num_class", value="900"),
    "an objective of more classes": within(
        *("learner", "objective", "softmax_multiclass_param", "num_class"), value="900"
    ),
    "a tree of no class": within(*BOOSTER, "model", "tree_info", 0, value=900),
    "rounds that end late": within(*BOOSTER, "model", "iteration_indptr", 1, value=900),
    "another kind of booster": within(*BOOSTER, "name", value="dart"),
    "a best round that does not exist": within(
        "learner", "attributes", value={"best_iteration": "900"}
    ),
    "settings beside the model": within("Config", value={}),
    "names of categories out of order": within(
        *BOOSTER, "model", "cats", "sorted_idx", 0, value=900
    ),
    "names of categories that end late": within(
        *BOOSTER, "model", "cats", "enc", 4, "offsets", 1, value=900
    ),
}


@pytest.mark.parametrize("change", MODELS.values(), ids=MODELS)
def test_what_is_no_model_of_xgboost_is_refused(change: Any) -> None:
    with pytest.raises(StoreError, match="xgboost"):
        decode_object(with_model("xgboost-frame", change), "it")
    assert decode_object(with_model("xgboost-frame", lambda model: None), "it")


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_a_booster_is_built_in_one_way_only(name: str) -> None:
    parts = dict(stored(name))
    schema = json.loads(parts[SCHEMA])
    schema["content"]["content"]["_Booster"]["__loader__"] = "DictNode"
    with pytest.raises(StoreError, match="before it is checked"):
        decode_object(packed(parts | {SCHEMA: json.dumps(schema).encode()}), "it")


def test_a_number_of_classes_that_takes_all_memory_is_refused() -> None:
    model = copy.copy(fitted("lightgbm"))
    model._n_classes = 2**15
    with pytest.raises(StoreError, match="LGBMClassifier"):
        decode_object(encode_object(model), "it")


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("predict_disable_shape_check", True),
        ("boosting_type", "gbdt predict_disable_shape_check=true"),
        ("n_jobs", 10**6),
    ],
)
def test_parameters_that_would_reach_native_code_are_refused(parameter: str, value: Any) -> None:
    model = copy.copy(fitted("lightgbm"))
    model._other_params = {}
    model.set_params(**{parameter: value})
    with pytest.raises(StoreError, match="LGBMClassifier"):
        decode_object(encode_object(model), "it")


def check_damaged(first: int, last: int, thorough: bool) -> dict[str, int]:
    call = f"try_damaged({first}, {last}, {thorough})"
    command = f"from tests.store.test_boosters import try_damaged; {call}"
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", command], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-60:] + result.stderr[-3000:]
    # The libraries print before and behind what the process says.
    counts: dict[str, int]
    counts, _ = json.JSONDecoder().raw_decode(result.stdout, result.stdout.rindex('{"refused"'))
    return counts


def test_damaged_boosters_are_refused_or_predict() -> None:
    counts = check_damaged(0, 200, thorough=False)
    assert counts["refused"] > 80
    assert counts["predicts"] > 30  # some changes leave a model


@pytest.mark.slow
def test_many_damaged_boosters_are_refused_or_predict() -> None:
    for first in range(1000, 6000, 1000):
        check_damaged(first, first + 1000, thorough=True)

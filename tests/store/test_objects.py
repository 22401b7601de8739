"""Members from a file are data: nothing in them runs, and nothing points outside itself."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Perceptron, SGDClassifier
from sklearn.manifold import Isomap
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, load
from poisonproof.exceptions import StoreError
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.members.digest import state_digest
from poisonproof.store.checks import check_parts
from poisonproof.store.manifest import decode_block
from poisonproof.store.objects import decode_object, encode_object, types_of

from ..durability import hostile

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
    with pytest.raises(StoreError, match="outside themselves"):
        check_parts({"0": damaged_tree(**columns)}, "members.skops")


@pytest.mark.parametrize("change", [(0, np.void), (1, np.float64), (2, np.int64)])
def test_arrays_without_dimensions_never_reach_the_code_of_a_tree(change: Any) -> None:
    """scikit-learn reads the length of such an array from wherever it would lie."""
    tree = DecisionTreeClassifier(max_depth=2).fit(X, y)
    data, files = encode_object(tree), dict[str, bytes]()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            files[name] = archive.read(name)
    arrays = {name: np.load(io.BytesIO(part)) for name, part in files.items() if "npy" in name}
    wanted = {0: lambda a: a.dtype.names, 1: lambda a: a.ndim == 3, 2: lambda a: a.ndim == 1}
    place, kind = change
    name = next(n for n, a in arrays.items() if wanted[place](a) and (place != 2 or a.size == 1))
    empty = arrays[name].reshape(-1)[0] if place == 0 else kind(3)
    file = io.BytesIO()
    np.save(file, np.asarray(empty))
    files[name] = file.getvalue()
    rebuilt_file = io.BytesIO()
    with zipfile.ZipFile(rebuilt_file, "w") as archive:
        for part, content in files.items():
            archive.writestr(part, content)
    with pytest.raises(StoreError, match="shapes that no tree has"):
        decode_object(rebuilt_file.getvalue(), "member 0")


def test_a_damaged_tree_deep_inside_a_forest_is_found() -> None:
    forest = RandomForestClassifier(3).fit(X, y)
    forest.estimators_[1] = damaged_tree(feature=99)
    with pytest.raises(StoreError, match="outside themselves"):
        decode_object(encode_object([{"forest": forest}]), "members.skops")


def test_a_tree_for_more_features_than_its_owner_takes_is_refused() -> None:
    fitted = DecisionTreeClassifier().fit(X, y)
    fitted.n_features_in_ = 2
    with pytest.raises(StoreError, match="do not fit together"):
        check_parts(fitted, "members.skops")


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
    with pytest.raises(StoreError, match="outside themselves"):
        check_parts({"0": fitted}, "members.skops")


def test_sound_trees_and_neighbours_pass() -> None:
    check_parts([DecisionTreeClassifier().fit(X, y), RandomForestClassifier(2).fit(X, y)], "x")
    neighbours = KNeighborsClassifier(1, algorithm="kd_tree").fit(X, y)
    loaded = decode_object(encode_object(neighbours), "x")
    assert np.array_equal(loaded.predict(X), y)


def changed(estimator: Any, **state: Any) -> Any:
    """Return a fitted estimator some of whose attributes are others."""
    vars(estimator).update(state)
    return estimator


def svc(kernel: str = "rbf", sparse: bool = False, **state: Any) -> SVC:
    rows = sp.csr_matrix(X) if sparse else X
    return changed(SVC(kernel=kernel).fit(rows, y), **state)


SOUND = svc()
BOOSTED = GradientBoostingClassifier(n_estimators=2).fit(X, y)
BINARY = GradientBoostingClassifier(n_estimators=2).fit(X, y == 0)
NEAR = KNeighborsClassifier(1, algorithm="brute").fit(X, y)
HISTOGRAMS = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5).fit(X, y)


def boosted_by_nodes(field: str, value: int) -> HistGradientBoostingClassifier:
    fitted = deepcopy(HISTOGRAMS)
    fitted._predictors[0][0].nodes[field][0] = value
    return fitted


def counted_beyond() -> DecisionTreeClassifier:
    fitted = DecisionTreeClassifier().fit(X, y)
    fitted.tree_.__setstate__({**fitted.tree_.__getstate__(), "node_count": 10**6})
    return fitted


def drawn_ahead() -> DummyClassifier:
    stream = np.random.RandomState(0)
    state = stream.get_state(legacy=False)
    state["state"]["pos"] = 10**6
    stream.set_state(state)
    return DummyClassifier(strategy="stratified", random_state=stream).fit(X, y)


def pointing_outside() -> sp.csr_matrix:
    matrix = sp.csr_matrix(np.eye(4))
    matrix.indices[0] = 10**6
    return matrix


HOSTILE = {
    "dual coefficients": lambda: svc(_dual_coef_=SOUND._dual_coef_[:, :1].copy()),
    "support vectors": lambda: svc(support_vectors_=SOUND.support_vectors_[:, :1].copy()),
    "counts": lambda: svc(_n_support=SOUND._n_support * 1000),
    "intercept": lambda: svc(_intercept_=np.zeros(1)),
    "probabilities": lambda: svc(_probA=np.zeros(1), _probB=np.zeros(1)),
    "another kind of machine": lambda: svc(_impl="one_class"),
    "features of a machine": lambda: svc(n_features_in_=400),
    "sparse vectors": lambda: svc(sparse=True, support_vectors_=pointing_outside()),
    "node count": counted_beyond,
    "forest": lambda: changed(RandomForestClassifier(2).fit(X, y), n_features_in_=1),
    "boosting, columns": lambda: changed(deepcopy(BOOSTED), n_trees_per_iteration_=1),
    "boosting, start": lambda: changed(deepcopy(BOOSTED), init_=BINARY.init_),
    "boosting, trees": lambda: changed(
        deepcopy(BOOSTED), estimators_=np.array([[DecisionTreeClassifier().fit(X, y)] * 3])
    ),
    "histograms, child": lambda: boosted_by_nodes("left", 10**6),
    "histograms, feature": lambda: boosted_by_nodes("feature_idx", 10**6),
    "histograms, category": lambda: boosted_by_nodes("is_categorical", 1),
    "neighbours, labels": lambda: changed(deepcopy(NEAR), _y=NEAR._y + 10**6),
    "neighbours, fewer labels": lambda: changed(deepcopy(NEAR), _y=NEAR._y[:3]),
    "neighbours, columns": lambda: changed(deepcopy(NEAR), _fit_X=X[:, :1].copy()),
    "neighbours, rows": lambda: changed(deepcopy(NEAR), _fit_X=X[:1], _y=NEAR._y[:1]),
    "vocabulary": lambda: changed(CountVectorizer().fit(["a text"]), vocabulary_={"text": 10**6}),
    "hashes": lambda: HashingVectorizer(n_features=0),
    "categories": lambda: changed(OneHotEncoder().fit(X.round()), _n_features_outs=[1] * 4),
    "order of categories": lambda: changed(
        OneHotEncoder().fit(X.round()), categories_=[np.array([5.0, 1.0, 3.0])] * 4
    ),
    "powers": lambda: changed(PolynomialFeatures().fit(X), _n_out_full=10**6),
    "centres": lambda: changed(KMeans(2).fit(X), cluster_centers_=np.zeros((2, 1))),
    "random numbers": drawn_ahead,
    "sparse matrix": lambda: changed(LogisticRegression().fit(X, y), coef_=pointing_outside()),
}


@pytest.mark.parametrize("made", HOSTILE.values(), ids=HOSTILE.keys())
def test_arrays_that_would_lead_native_code_astray_are_refused(made: Callable[[], Any]) -> None:
    with pytest.raises(StoreError, match=r"do not fit together|damaged"):
        check_parts({"member": [made()]}, "members.skops")


def test_the_short_array_of_a_stored_machine_never_reaches_libsvm() -> None:
    with pytest.raises(StoreError, match="SVC whose arrays do not fit together"):
        decode_object(encode_object(HOSTILE["dual coefficients"]()), "member 0")


@pytest.mark.parametrize(
    "estimator",
    [
        *(SVC(), NuSVC(nu=0.1), SVC(kernel="linear"), LinearSVC(), GaussianNB()),
        *(KNeighborsClassifier(), KNeighborsClassifier(algorithm="brute")),
        *(RandomForestClassifier(3), GradientBoostingClassifier(n_estimators=3)),
        *(SGDClassifier(max_iter=3, tol=None), Perceptron(max_iter=3, tol=None)),
        VotingClassifier([("bayes", GaussianNB()), ("linear", LogisticRegression())]),
        *(HistGradientBoostingClassifier(max_iter=3), MLPClassifier((3,), max_iter=3)),
        make_pipeline(PolynomialFeatures(), KBinsDiscretizer(3), LogisticRegression()),
        make_pipeline(StandardScaler(), PCA(2), KMeans(3), SVC()),
        make_pipeline(OneHotEncoder(handle_unknown="ignore", drop="first"), SVC()),
    ],
    ids=str,
)
def test_sound_members_are_loaded_without_being_named(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = estimator.fit(X, y)
        loaded = decode_object(encode_object(fitted), "member 0")
        assert np.array_equal(loaded.predict(X), fitted.predict(X))


def histograms() -> HistGradientBoostingClassifier:
    """Return boosted trees that split by categories."""
    kinds = pd.Series(np.arange(len(X)) % 5).map(lambda i: "abcde"[i]).astype("category")
    frame = pd.DataFrame(X).assign(kind=kinds).rename(columns=str)
    return HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2).fit(frame, kinds != "a")


def test_categories_of_histograms_are_loaded_without_being_named() -> None:
    fitted = histograms()
    loaded = decode_object(encode_object(fitted), "member 0")
    assert state_digest(loaded) == state_digest(fitted)


def _far_bitset(fitted: Any) -> None:
    for predictor in fitted._predictors[0]:
        predictor.nodes["bitset_idx"] = 10**6


def _no_bitsets(fitted: Any) -> None:
    for predictor in fitted._predictors[0]:
        predictor.raw_left_cat_bitsets = np.zeros((0, 8), np.uint32)


def _other_column(fitted: Any) -> None:
    fitted._bin_mapper.is_categorical_ = np.roll(fitted._bin_mapper.is_categorical_, 1)


def _fewer_columns(fitted: Any) -> None:
    name, step, _ = fitted._preprocessor.transformers_[1]
    fitted._preprocessor.transformers_[1] = name, step, np.zeros(5, dtype=bool)


def _other_function(fitted: Any) -> None:
    step = fitted._preprocessor.transformers_[1][1]
    step.func = partial(np.compress, [True])


@pytest.mark.parametrize(
    "damage", [_far_bitset, _no_bitsets, _other_column, _fewer_columns, _other_function]
)
def test_categories_that_lead_native_code_astray_are_refused(damage: Any) -> None:
    fitted = histograms()
    damage(fitted)
    with pytest.raises(StoreError):
        decode_object(encode_object(fitted), "member 0")


def test_words_are_loaded_without_being_named() -> None:
    texts = ["good film", "bad film", "good", "bad", "film"] * 4
    for vectorizer in (CountVectorizer(), TfidfVectorizer(), HashingVectorizer(n_features=64)):
        fitted = make_pipeline(vectorizer, LogisticRegression()).fit(texts, [1, 0, 1, 0, 1] * 4)
        loaded = decode_object(encode_object(fitted), "member 0")
        assert np.array_equal(loaded.predict(texts), fitted.predict(texts))


def test_a_network_of_skorch_that_is_named_is_stored_and_loaded() -> None:
    skorch, torch = pytest.importorskip("skorch"), pytest.importorskip("torch")
    fitted = skorch.NeuralNetClassifier(
        torch.nn.Linear, module__in_features=4, module__out_features=3, max_epochs=1, verbose=0
    ).fit(X.astype(np.float32), y)
    loaded = decode_object(encode_object(fitted), "member 0", types_of(fitted))
    rows = X.astype(np.float32)
    assert np.array_equal(loaded.predict_proba(rows), fitted.predict_proba(rows))
    assert state_digest(loaded) == state_digest(fitted)


def test_a_kind_that_nobody_has_looked_at_is_refused_unless_it_is_named() -> None:
    data = encode_object(Isomap(n_neighbors=3).fit(X))
    with pytest.raises(StoreError, match="Isomap") as refused:
        decode_object(data, "member 0")
    named = ["sklearn.manifold._isomap.Isomap", "sklearn.decomposition._kernel_pca.KernelPCA"]
    assert named[0] in str(refused.value)
    assert decode_object(data, "member 0", named).n_features_in_ == 4


def rebuilt(value: Any, change: Callable[[bytes], bytes], again: int = 0) -> bytes:
    """Return an archive whose description is another, or stands there several times."""
    data = io.BytesIO(encode_object(value))
    with zipfile.ZipFile(data) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore", UserWarning)
        for name, content in contents.items():
            archive.writestr(name, change(content) if name == "schema.json" else content)
        for _ in range(again):
            archive.writestr("schema.json", contents["schema.json"])
    return file.getvalue()


def test_a_description_with_two_meanings_is_refused() -> None:
    member = GaussianNB().fit(X, y)
    doubled = rebuilt(member, lambda schema: b'{"__class__": "system",' + schema.strip()[1:])
    with pytest.raises(StoreError, match="appears twice"):
        decode_object(doubled, "member 0")
    with pytest.raises(StoreError, match="same name"):
        decode_object(rebuilt(member, lambda schema: schema, again=1), "member 0")


def test_a_few_parts_that_share_others_do_not_fill_the_memory() -> None:
    def grown(schema: bytes) -> bytes:
        head = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
        node: dict[str, Any] = {**head, "content": [], "__id__": 1}
        for number in range(2, 80):
            node = {**head, "content": [node, {"__id__": number - 1}], "__id__": number}
        return json.dumps({**node, "protocol": json.loads(schema)["protocol"]}).encode()

    with pytest.raises(StoreError, match="parts"):
        decode_object(rebuilt([1], grown), "member 0")


@pytest.mark.parametrize(
    "estimator",
    [GradientBoostingClassifier(n_estimators=2), MLPClassifier((3,), max_iter=3)],
    ids=["boosting", "perceptron"],
)
def test_a_member_that_keeps_its_random_stream_has_its_digest_after_loading(
    estimator: Any, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPAClassifier(estimator, 3, classes=range(3)).fit(X, y)
        model.save(tmp_path / "model")
        assert np.array_equal(load(tmp_path / "model").votes(X), model.votes(X))


@pytest.mark.parametrize("label", [-9, 99])
def test_a_stored_vote_for_no_class_is_refused(label: int, tmp_path: Path) -> None:
    """Whoever changes the arrays of a member can correct every digest, too."""
    DPAClassifier(RidgeClassifier(), 3, classes=range(3)).fit(X, y).save(tmp_path / "good")
    files = hostile.read_files(tmp_path / "good")
    described = json.loads(files["manifest.json"])
    (entry,) = described["members"]
    items = decode_block(files[f"objects/{entry['name']}"], "block")
    labels = np.full_like(items[0].tensors["classes"], label)
    items[0] = replace(items[0], tensors={**items[0].tensors, "classes": labels})
    hostile.placed(hostile.readdressed(files, described, entry["name"], items), tmp_path / "bad")
    with pytest.raises(StoreError, match="votes for no class"):
        load(tmp_path / "bad").votes(X)


READ = """
import sys
from poisonproof.store.objects import decode_object, encode_object
from sklearn.naive_bayes import GaussianNB
decode_object(encode_object(GaussianNB()), "here")
early = "torch" in sys.modules
import skops.io._trusted_types as types
from sklearn.utils import all_estimators
left_out = {f"{kind.__module__}.{kind.__qualname__}" for _, kind in all_estimators()}
left_out -= set(types.SKLEARN_ESTIMATOR_TYPE_NAMES)
print(early, left_out)
"""


def test_reading_scikit_learns_objects_imports_no_torch_and_knows_all_estimators() -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == ["False", "set()\n"]

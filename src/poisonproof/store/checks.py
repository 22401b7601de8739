"""Fitted objects from a file, checked before native code sees them.

NumPy and BLAS raise where shapes do not fit. libsvm, the trees, the neighbour searches and sparse
products do not: they read, and some write, beyond their arrays. So every kind of estimator that
is loaded without being named as trusted is listed here. Those that hand their arrays to native
code are checked, kind by kind; the others compute with NumPy alone.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Collection, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
)
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.neighbors import BallTree, KDTree
from sklearn.neighbors._base import NeighborsBase
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
)
from sklearn.svm._base import BaseLibSVM
from sklearn.tree import BaseDecisionTree, DecisionTreeRegressor
from sklearn.tree._tree import Tree
from sklearn.utils import check_array

from poisonproof.exceptions import StoreError
from poisonproof.store.boosters import BOOSTERS, check_classifier

LOADED = frozenset(
    """
    AdaBoostClassifier AdditiveChi2Sampler BaggingClassifier BernoulliNB BernoulliRBM Binarizer
    CalibratedClassifierCV CategoricalNB ClassifierChain ColumnTransformer ComplementNB
    CountVectorizer DecisionTreeClassifier DecisionTreeRegressor DictVectorizer DummyClassifier
    EmpiricalCovariance ExtraTreeClassifier ExtraTreesClassifier FactorAnalysis FastICA
    FeatureHasher FeatureUnion FixedThresholdClassifier FunctionTransformer GaussianMixture
    GaussianNB GaussianRandomProjection GradientBoostingClassifier GridSearchCV HashingVectorizer
    HistGradientBoostingClassifier IncrementalPCA IsotonicRegression KBinsDiscretizer KMeans
    KNNImputer KNeighborsClassifier KernelCenterer KernelPCA LabelBinarizer LabelEncoder
    LabelPropagation LabelSpreading LinearDiscriminantAnalysis LinearSVC LogisticRegression
    LogisticRegressionCV MLPClassifier MaxAbsScaler MinMaxScaler MiniBatchKMeans
    MissingIndicator MultiLabelBinarizer MultiOutputClassifier MultinomialNB NearestCentroid
    NearestNeighbors NeighborhoodComponentsAnalysis Normalizer NuSVC Nystroem OneHotEncoder
    OneVsOneClassifier OneVsRestClassifier OrdinalEncoder OutputCodeClassifier PCA
    PassiveAggressiveClassifier Perceptron Pipeline PolynomialCountSketch PolynomialFeatures
    PowerTransformer QuadraticDiscriminantAnalysis QuantileTransformer RBFSampler RFE RFECV
    RadiusNeighborsClassifier RandomForestClassifier RandomizedSearchCV RidgeClassifier
    RidgeClassifierCV RobustScaler SGDClassifier SVC SelectFdr SelectFpr SelectFromModel
    SelectFwe SelectKBest SelectPercentile SelfTrainingClassifier SequentialFeatureSelector
    SimpleImputer SkewedChi2Sampler SparseRandomProjection StackingClassifier StandardScaler
    TfidfTransformer TfidfVectorizer TruncatedSVD TunedThresholdClassifierCV VarianceThreshold
    VotingClassifier
    """.split()  # noqa: SIM905 - a list of words is easier to read
)
"""Estimators of scikit-learn that compute with NumPy alone, or are checked below."""


def check_parts(value: Any, name: str, trusted: Collection[str] = ()) -> None:
    """Raise `StoreError` if anything in `value` would make native code leave its arrays.

    `name` says what was read; types whose full names are `trusted` are not checked.
    """
    for part in _parts(value):
        if _name(part) in trusted:
            continue
        try:
            sound = all(
                check(part)
                for kind, fitted, check in _CHECKS
                if isinstance(part, kind) and (fitted is None or fitted in _state(part))
            )
        except Exception as error:  # a state that is none makes checks raise nearly anything
            raise StoreError(
                f"{name} holds a {type(part).__name__} that is damaged: {type(error).__name__}: "
                f"{str(error)[:120]}."
            ) from error
        if not sound:
            raise StoreError(
                f"{name} holds a {type(part).__name__} whose arrays do not fit together, point "
                "outside themselves or cannot be checked."
            )


def _parts(value: Any) -> Iterator[Any]:
    """Yield every object within an object, each once."""
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, (str, bytes, int, float, type(None))):
            continue
        seen[id(part)] = part  # kept alive, so that no other object gets its number
        if isinstance(part, dict):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, (list, tuple, set, frozenset)):
            waiting += part
        elif isinstance(part, np.ndarray):
            waiting += part.ravel().tolist() if part.dtype.hasobject else ()
        else:
            yield part
            waiting += _state(part).values()


def _name(part: Any) -> str:
    return f"{type(part).__module__}.{type(part).__qualname__}"


def _state(part: Any) -> dict[str, Any]:
    found = getattr(part, "__dict__", None)
    return found if isinstance(found, dict) and not isinstance(part, type) else {}


def _is_array(value: Any, shape: tuple[int, ...], kind: str) -> bool:
    return type(value) is np.ndarray and value.shape == shape and value.dtype.kind in kind


def _check_tree(tree: Any) -> bool:
    """Check that nodes of a tree lie behind their parents, so that every walk ends inside it."""
    # Its own arrays are as long as this count says, whatever was allocated.
    if not 1 <= tree.node_count <= tree.capacity:
        return False
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    nodes = np.arange(tree.node_count)
    inner = left != -1
    return bool(
        np.array_equal(inner, right != -1)
        and np.all((left[inner] > nodes[inner]) & (left[inner] < tree.node_count))
        and np.all((right[inner] > nodes[inner]) & (right[inner] < tree.node_count))
        and np.all((feature[inner] >= 0) & (feature[inner] < tree.n_features))
    )


def _trees_of(estimator: Any, trees: Any) -> bool:
    """Check that the trees accept the ensemble's input; scikit-learn does not."""
    return all(
        isinstance(tree, BaseDecisionTree)
        and isinstance(tree.tree_, Tree)
        and tree.tree_.n_features == estimator.n_features_in_
        for tree in trees
    )


def _check_gradient_boosting(estimator: Any) -> bool:
    """Check trees that add to an array with one column for each tree of a stage."""
    trees, width = estimator.estimators_, estimator.n_trees_per_iteration_
    first = estimator.init_
    if not (type(trees) is np.ndarray and trees.ndim == 2 and trees.shape[1] == width >= 1):
        return False
    if not (_trees_of(estimator, trees.ravel()) and len(trees)):
        return False
    if any(type(tree) is not DecisionTreeRegressor for tree in trees.ravel()):
        return False
    if any(tree.tree_.n_outputs != 1 or tree.tree_.max_n_classes != 1 for tree in trees.ravel()):
        return False
    if not (isinstance(first, str) and first == "zero") and type(first) is not DummyClassifier:
        return False
    row = np.zeros((1, estimator.n_features_in_))
    return bool(estimator._raw_predict_init(row).shape == (1, width))


def _check_predictor(predictor: Any) -> bool:
    """Check a tree of histogram gradient boosting."""
    nodes, bitsets = predictor.nodes, predictor.raw_left_cat_bitsets
    if not (_is_array(nodes, (len(nodes),), "V") and nodes.dtype == PREDICTOR_RECORD_DTYPE):
        return False
    number, inner = np.arange(len(nodes)), nodes["is_leaf"] == 0
    sets = nodes["bitset_idx"][inner & (nodes["is_categorical"] != 0)]
    return bool(
        len(nodes)
        and _is_array(bitsets, (len(bitsets), 8), "u")
        and np.all(sets < len(bitsets))
        and all(
            np.all((nodes[side][inner] > number[inner]) & (nodes[side][inner] < len(nodes)))
            for side in ("left", "right")
        )
    )


def _check_hist_boosting(estimator: Any) -> bool:
    width, categorical = estimator.n_features_in_, estimator._bin_mapper.is_categorical_
    if estimator._preprocessor is None:
        if np.any(categorical):
            return False
        categorical = np.zeros(width, dtype=bool)
    elif not (_is_array(categorical, (width,), "bu") and _keeps_columns(estimator)):
        return False
    return all(
        type(predictor) is TreePredictor
        and bool(np.all((feature >= 0) & (feature < width)))
        and bool(np.all(categorical[feature[predictor.nodes["is_categorical"] != 0]]))
        for predictor in itertools.chain.from_iterable(estimator._predictors)
        for feature in [predictor.nodes["feature_idx"]]
    )


def _keeps_columns(estimator: Any) -> bool:
    """Check that what stands in front of histograms with categories gives as many columns."""
    row = np.full((1, estimator.n_features_in_), np.nan, dtype=object)
    names = getattr(estimator, "feature_names_in_", range(row.shape[1]))
    steps = estimator._preprocessor.transformers_
    sound = (
        type(estimator._preprocessor) is ColumnTransformer
        and [type(step) for _, step, _ in steps[:2]] == [OrdinalEncoder, FunctionTransformer]
        and all(step == "drop" for _, step, _ in steps[2:])
        and _check_partial(steps[1][1].func)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sound and all(
            estimator._preprocess_X(rows, reset=False).shape == row.shape
            for rows in (row, import_module("pandas").DataFrame(row, columns=names))
        )


def _check_partial(function: Any) -> bool:
    """Check that a stored function is the one that histograms put in front of their numbers."""
    known = {"dtype", "ensure_all_finite"}
    bare = type(function) is partial and function.func is check_array and not function.args
    return bare and set(function.keywords) <= known


def _check_neighbour_tree(tree: Any) -> bool:
    data, order, nodes, bounds = (np.asarray(array) for array in tree.get_arrays())
    _, n_levels, n_nodes, *_ = tree.__getstate__()[4:]
    rows, width = data.shape
    number = np.arange(len(nodes))
    return bool(
        len(nodes) == n_nodes == 2**n_levels - 1
        and bounds.shape == (2 if isinstance(tree, KDTree) else 1, n_nodes, width)
        and order.shape == (rows,)
        and np.all((order >= 0) & (order < rows))
        and np.all((nodes["idx_start"] >= 0) & (nodes["idx_start"] <= nodes["idx_end"]))
        and np.all(nodes["idx_end"] <= rows)
        # The children of node i are 2 i + 1 and 2 i + 2, so the last level has none.
        and np.all((nodes["is_leaf"] != 0) | (2 * number + 2 < n_nodes))
    )


def _check_neighbours(estimator: Any) -> bool:
    """Check rows, their number and their labels, but not which label belongs to which row."""
    rows, width = estimator._fit_X.shape
    tree = estimator._tree
    sound = (
        rows == estimator.n_samples_fit_
        and width == estimator.n_features_in_
        and (tree is None or np.asarray(tree.get_arrays()[0]).shape == (rows, width))
    )
    if not sound or "_y" not in _state(estimator) or isinstance(estimator.classes_, list):
        return bool(sound)  # with several outputs, labels are looked up by NumPy
    labels = estimator._y
    return _is_array(labels, (rows,), "iu") and bool(
        np.all((labels >= 0) & (labels < len(estimator.classes_)))
    )


def _check_libsvm(estimator: Any) -> bool:
    """Check the numbers by which libsvm finds its support vectors."""
    n, classes = len(estimator.support_), len(estimator.classes_)
    pairs = classes * (classes - 1) // 2
    shape, width = (classes - 1, n), estimator.n_features_in_
    counts: Any = estimator._n_support
    vectors: Any = estimator.support_vectors_
    coefficients: Any = estimator._dual_coef_
    if estimator._impl not in ("c_svc", "nu_svc") or not isinstance(estimator.kernel, str):
        return False
    if estimator._sparse:
        sound = (
            all(isinstance(part, (sp.spmatrix, sp.sparray)) for part in (vectors, coefficients))
            and vectors.format == coefficients.format == "csr"
            and vectors.shape == (n, width)
            and coefficients.data.shape == (shape[0] * n,)
        )
    elif estimator.kernel == "precomputed":
        sound = vectors.shape == (0, 0) and _is_array(coefficients, shape, "f")
    else:
        sound = _is_array(vectors, (n, width), "f") and _is_array(coefficients, shape, "f")
    return bool(
        sound
        and classes >= 2
        and _is_array(estimator.support_, (n,), "i")
        and np.all((estimator.support_ >= 0) & (estimator.support_ < estimator.shape_fit_[0]))
        and (estimator.kernel != "precomputed" or estimator.shape_fit_[0] == width)
        and _is_array(counts, (classes,), "i")
        and np.all(counts >= 0)
        and counts.sum() == n
        and _is_array(estimator._intercept_, (pairs,), "f")
        and estimator._probA.shape == estimator._probB.shape
        and estimator._probA.shape in ((0,), (pairs,))
    )


def _check_sparse(matrix: Any) -> bool:
    """Check the indices of a sparse matrix, which products do not check."""
    if matrix.format == "coo":  # has checked its coordinates itself
        return True
    matrix.check_format(full_check=True)
    return matrix.format in ("csr", "csc")


def _check_vocabulary(vectorizer: Any) -> bool:
    """Check that terms name columns of a sparse matrix with as many columns as terms."""
    columns = list(vectorizer.vocabulary_.values())
    return all(isinstance(column, (int, np.integer)) for column in columns) and sorted(
        columns
    ) == list(range(len(columns)))


def _check_hasher(vectorizer: Any) -> bool:
    return type(vectorizer.n_features) is int and 1 <= vectorizer.n_features < 2**31


def _check_one_hot(encoder: Any) -> bool:
    """Check the numbers of columns, which are stored beside the categories of every feature."""
    categories, dropped = encoder.categories_, encoder._drop_idx_after_grouping
    counts = list(map(len, categories))
    return bool(
        not encoder._infrequent_enabled
        and list(encoder._compute_n_features_outs()) == list(encoder._n_features_outs)
        and len(counts) == encoder.n_features_in_
        # Numbers are looked up by bisection, texts in a table.
        and all(
            c.dtype.kind in "OUS"
            or np.all(c[:-1] < c[1:])
            or (np.isnan(c[-1:]).any() and np.all(c[:-2] < c[1:-1]))
            for c in categories
        )
        and (
            dropped is None
            or all(i is None or 0 <= i < n for i, n in zip(dropped, counts, strict=True))
        )
    )


def _check_polynomial(features: Any) -> bool:
    """Check the number of output columns, which scikit-learn allocates unchecked."""
    fresh = clone(features).fit(np.zeros((1, features.n_features_in_)))
    names = ("_min_degree", "_max_degree", "_n_out_full", "n_output_features_")
    return all(getattr(fresh, name) == getattr(features, name) for name in names)


def _check_centres(estimator: Any) -> bool:
    centres = estimator.cluster_centers_
    return _is_array(centres, (len(centres), estimator.n_features_in_), "f")


def _check_stream(stream: Any) -> bool:
    """Check the position within the numbers that a generator has drawn ahead."""
    generator = getattr(stream, "bit_generator", getattr(stream, "_bit_generator", stream))
    state = generator.state
    ahead = {"MT19937": 624, "Philox": 4}.get(state["bit_generator"])
    place = state["state"].get("pos") if ahead == 624 else state.get("buffer_pos", 0)
    return ahead is None or 0 <= place <= ahead


def _check_boosted(estimator: Any) -> bool:
    return check_classifier(estimator, BOOSTERS.get(_name(estimator), ""))


_CHECKS: tuple[tuple[Any, str | None, Callable[[Any], bool]], ...] = (
    (BaseEstimator, None, lambda part: isinstance(part.get_params(deep=False), dict)),
    (BaseEstimator, "_Booster", _check_boosted),
    (Tree, None, _check_tree),
    (BaseDecisionTree, "tree_", lambda tree: _trees_of(tree, [tree])),
    (BaseForest, "estimators_", lambda forest: _trees_of(forest, forest.estimators_)),
    (GradientBoostingClassifier, "estimators_", _check_gradient_boosting),
    (partial, None, _check_partial),
    (TreePredictor, None, _check_predictor),
    (HistGradientBoostingClassifier, "_predictors", _check_hist_boosting),
    ((KDTree, BallTree), None, _check_neighbour_tree),
    (NeighborsBase, "_fit_X", _check_neighbours),
    (BaseLibSVM, "_dual_coef_", _check_libsvm),
    ((sp.spmatrix, sp.sparray), None, _check_sparse),
    ((CountVectorizer, DictVectorizer), "vocabulary_", _check_vocabulary),
    ((HashingVectorizer, FeatureHasher), None, _check_hasher),
    (OneHotEncoder, "categories_", _check_one_hot),
    (PolynomialFeatures, "_n_out_full", _check_polynomial),
    ((KMeans, MiniBatchKMeans), "cluster_centers_", _check_centres),
    ((np.random.RandomState, np.random.Generator, np.random.BitGenerator), None, _check_stream),
)
"""Kinds, the attribute they must have to be checked, and the check; a part may be of several."""

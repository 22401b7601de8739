"""Every learner and engine that owes the guarantee: one line each.

To put a new one under all tests of this folder, add a `Case`. There is no tolerance to choose:
members keep their bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from xgboost import XGBClassifier

from poisonproof import DPAClassifier, SSDPAClassifier
from poisonproof.features import NetworkFeatures
from poisonproof.members.closed_form import (
    KernelRidgeClassifier,
    RidgeClassifier,
    ScaledKernelClassifier,
)
from poisonproof.members.committee import Committee
from poisonproof.networks import TorchLearner
from tests.features.small_network import network_file

from .data import Data, data
from .learners import GlobalStreamClassifier, as_words


@dataclass(frozen=True)
class Case:
    """One kind of classifier on one training set.

    Attributes
    ----------
    name : str
        Shown in the test's id.
    classifier : estimator
        Unfitted; `classes` is filled in.
    dataset : str
        A name of `data`.
    whole : bool
        Whether rows must hold whole numbers.
    """

    name: str
    classifier: Any
    dataset: str = "digits"
    whole: bool = False

    @property
    def data(self) -> Data:
        return data(self.dataset)

    def make(self, **parameters: Any) -> Any:
        """Return a fresh classifier with declared classes."""
        declared = {"classes": self.data.classes, **parameters}
        return clone(self.classifier).set_params(**declared)

    def __str__(self) -> str:
        return self.name


_OUTSIDE = NetworkFeatures(network_file(channels=1), image_shape=(8, 8))
_SCALED_LR = make_pipeline(StandardScaler(), LogisticRegression(max_iter=50))
_SCALED_KERNEL_RIDGE = make_pipeline(StandardScaler(), KernelRidgeClassifier())
_NOISY = GlobalStreamClassifier()
_TEXTS = make_pipeline(FunctionTransformer(as_words), TfidfVectorizer(), MultinomialNB())
_SEARCH = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [2, 6]}, cv=2, n_jobs=2)
_LIGHTGBM = LGBMClassifier(n_estimators=2, min_child_samples=2, verbose=-1, n_jobs=2)
_XGBOOST = XGBClassifier(n_estimators=2, max_depth=3, subsample=0.5, n_jobs=2)
_XGBOOST_CATEGORIES = clone(_XGBOOST).set_params(enable_categorical=True)
_HISTOGRAMS = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=3)
_TREE = ExtraTreeClassifier()
_VOTING = VotingClassifier([("one", _TREE), ("other", _TREE)], voting="soft")
_MLP = TorchLearner("mlp", hidden=(32,), epochs=3)
_ON_TRACKS = TorchLearner("mlp", hidden=(32,), epochs=1, execution="graph", stack_width=4)

CASES = [
    Case("tree", DPAClassifier(DecisionTreeClassifier(), 20)),
    Case("tree-on-integers", DPAClassifier(DecisionTreeClassifier(), 20), "integers"),
    Case("naive-bayes", DPAClassifier(GaussianNB(), 20), "integers"),
    Case("neighbours", DPAClassifier(KNeighborsClassifier(1), 20), "integers"),
    Case("logistic-regression", DPAClassifier(_SCALED_LR, 8), "cancer"),
    Case("svc", DPAClassifier(SVC(), 20)),
    Case("random-forest", DPAClassifier(RandomForestClassifier(5), 10), "cancer"),
    Case("sgd", DPAClassifier(SGDClassifier(max_iter=5, tol=None), 10), "images"),
    Case("mlp", DPAClassifier(MLPClassifier((16,), max_iter=5), 8)),
    Case("global-streams", DPAClassifier(GlobalStreamClassifier(), 20)),
    Case("one-vs-rest", DPAClassifier(OneVsRestClassifier(_NOISY, n_jobs=2), 8)),
    Case("bagging", DPAClassifier(BaggingClassifier(_NOISY, 3, n_jobs=2), 8)),
    Case("forest-of-workers", DPAClassifier(RandomForestClassifier(3, n_jobs=2), 8), "cancer"),
    Case("search", DPAClassifier(_SEARCH, 8), "cancer"),
    Case("texts", DPAClassifier(_TEXTS, 8), "integers"),
    Case("lightgbm", DPAClassifier(_LIGHTGBM, 8), "cancer"),
    Case("xgboost", DPAClassifier(_XGBOOST, 8), "cancer"),
    Case("voting", DPAClassifier(_VOTING, 20), "integers"),
    Case(
        "committee",
        DPAClassifier(Committee([("a", GaussianNB()), ("b", ScaledKernelClassifier())]), 20),
        "integers",
    ),
    Case(
        "nested-kernel", DPAClassifier(make_pipeline(StandardScaler(), KernelRidgeClassifier()), 20)
    ),
    Case("pixel-sum", DPAClassifier(GaussianNB(), 20, partitioner="pixel_sum"), whole=True),
    Case("closed-ridge", DPAClassifier(RidgeClassifier(), 20), "images"),
    Case("closed-kernel-ridge", DPAClassifier(KernelRidgeClassifier("cosine"), 20), "images"),
    Case("closed-scaled-kernel", DPAClassifier(ScaledKernelClassifier(), 20), "integers"),
    Case("ss-closed-ridge", SSDPAClassifier(RidgeClassifier(), PCA(20), 20), "images"),
    Case("network", DPAClassifier(RidgeClassifier(), 8, features=_OUTSIDE), "small-images"),
    Case("deep-mlp", DPAClassifier(_MLP, 20)),
    Case("deep-graph", DPAClassifier(_ON_TRACKS, 6)),
    Case("ss-neighbours", SSDPAClassifier(KNeighborsClassifier(1), PCA(20), 20), "images"),
    Case("ss-tree", SSDPAClassifier(DecisionTreeClassifier(), None, 20)),
]

FRAME_CASES = [
    Case("histograms-from-dtype", DPAClassifier(_HISTOGRAMS, 8), "frame"),
    Case("lightgbm-categories", DPAClassifier(_LIGHTGBM, 8), "frame"),
    Case("xgboost-categories", DPAClassifier(_XGBOOST_CATEGORIES, 8), "frame"),
]
"""Learners that see the categories of a frame."""

INSERT_DELETE_CASES = [case for case in CASES if "insert_delete" in case.classifier.threats]

"""Bad input is refused with one clear line; good input of every kind is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier
from poisonproof.estimators import certifying as voting
from poisonproof.estimators import dpa
from poisonproof.exceptions import InvalidInputError, InvalidRowsError, UnknownLabelError
from poisonproof.features import FixedScale, HashedNGrams
from poisonproof.progress import Silent

X, y = load_digits(return_X_y=True)
X, y, X_test, y_test = X[:1300], y[:1300], X[1300:], y[1300:]


def ensemble(estimator: Any = None, **parameters: Any) -> DPAClassifier:
    parameters = {"n_partitions": 10, "classes": range(10), **parameters}
    return DPAClassifier(estimator or GaussianNB(), **parameters)


def with_cell(value: float) -> Any:
    damaged = X.copy()
    damaged[[4, 9], 3] = value
    return damaged


@pytest.mark.parametrize(
    ("parameters", "rows", "error", "message"),
    [
        ({}, (X, y[:-1]), ValueError, "inconsistent numbers of samples"),
        ({}, (X, None), ValueError, "y"),
        ({}, (with_cell(np.nan), y), InvalidRowsError, r"NaN or infinity in row 4 \(2 such rows\)"),
        ({}, (with_cell(np.inf), y), InvalidRowsError, "infinity in row 4"),
        ({"classes": range(9)}, (X, y), UnknownLabelError, r"row 9 has the label 9"),
        ({"classes": []}, (X, y), InvalidInputError, "at least one label"),
        ({"n_partitions": 0}, (X, y), InvalidInputError, "n_partitions"),
        ({"n_partitions": 2.5}, (X, y), InvalidInputError, "n_partitions"),
        ({"partitioner": "alphabetical"}, (X, y), InvalidInputError, "alphabetical"),
        ({"invalid_rows": "keep"}, (X, y), InvalidInputError, "'raise' or 'drop'"),
        ({"estimator": LinearRegression()}, (X, y), InvalidInputError, "must be a classifier"),
        ({"estimator": GaussianNB}, (X, y), (InvalidInputError, TypeError), "instance|class"),
        ({}, (X[:0], y[:0]), ValueError, "0 sample|minimum"),
        ({}, (X[:, 0], y), ValueError, "2D"),
    ],
)
def test_bad_training_input_is_refused(
    parameters: dict[str, Any], rows: Any, error: Any, message: str
) -> None:
    parameters = dict(parameters)
    model = ensemble(parameters.pop("estimator", None), **parameters)
    with pytest.raises(error, match=message) as caught:
        model.fit(*rows)
    assert "\n" not in str(caught.value).strip() or error is ValueError


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (X_test[:, :9], "9 features"),
        (np.full((2, 64), np.nan), "NaN or infinity in row 0"),
        (X_test[0], "2D"),
    ],
)
def test_bad_test_rows_are_refused(samples: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ensemble().fit(X, y).certify(samples)


def test_members_that_take_missing_values_get_them() -> None:
    fitted = ensemble(DecisionTreeClassifier()).fit(with_cell(np.nan), y)
    damaged = X_test.copy()
    damaged[0, 5] = np.nan
    assert (fitted.votes(damaged) >= 0).all()
    assert not fitted.failures_


def test_rows_that_cannot_be_used_are_dropped_on_request() -> None:
    fitted = ensemble(invalid_rows="drop").fit(with_cell(np.nan), y)
    assert fitted.n_dropped_ == 2
    assert fitted.partition_sizes_.sum() == len(y) - 2


def test_texts_held_as_objects_are_classes_of_text() -> None:
    """An array of objects has no form on disk, and compares by identity of type."""
    words = np.array(["zero", "one"], dtype=object)[(y > 4).astype(int)]
    found = ensemble(classes=None).fit(X, words)
    assert found.classes_.dtype.kind == "U"
    assert found.predict(X_test[:5]).dtype.kind == "U"
    assert (
        found.ensemble_.digests()
        == ensemble(classes=None).fit(X, words.tolist()).ensemble_.digests()
    )


@pytest.mark.parametrize("other", [np.nan, None, 7], ids=repr)
def test_labels_that_are_not_all_text_are_not_made_text(other: Any) -> None:
    words = np.array(["zero", "one"], dtype=object)[(y > 4).astype(int)]
    words[3] = other
    with pytest.raises((TypeError, ValueError)):
        ensemble(classes=None).fit(X, words)


def test_numbers_held_as_objects_are_not_made_text() -> None:
    with pytest.raises(ValueError, match="Unknown label type"):
        ensemble(classes=None).fit(X, y.astype(object))


def test_a_target_outside_the_classes_is_refused() -> None:
    fitted = ensemble().fit(X, y)
    with pytest.raises(InvalidInputError, match="target must be one of the classes"):
        fitted.certify(X_test, target=12)


def test_a_targeted_radius_is_never_smaller() -> None:
    fitted = ensemble().fit(X, y)
    anything, towards = fitted.certify(X_test), fitted.certify(X_test, target=3)
    others = anything.labels != 3
    assert (towards.radius[others] >= anything.radius[others]).all()


def test_sparse_rows_stay_sparse() -> None:
    rows = sparse.csr_matrix(X)
    fitted = ensemble(LogisticRegression(max_iter=20)).fit(rows, y)
    assert (fitted.predict(sparse.csr_matrix(X_test)) == y_test).mean() > 0.7
    assert sparse.issparse(fitted.rows_.shard(0).X)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_sparse_rows_that_are_not_finite_are_named_or_left_out(value: float) -> None:
    rows = sparse.csr_matrix(with_cell(value))
    with pytest.raises(InvalidRowsError, match=r"in row 4 \(2 such rows\)"):
        ensemble(MultinomialNB()).fit(rows, y)
    assert ensemble(MultinomialNB(), invalid_rows="drop").fit(rows, y).n_dropped_ == 2


def test_text_is_partitioned_by_its_words_and_learned_by_a_pipeline() -> None:
    texts = [f"{['good', 'fine', 'nice'][i % 3]} number {i}" for i in range(60)]
    texts += [f"{['bad', 'poor', 'ugly'][i % 3]} number {i}" for i in range(60)]
    labels = ["ham"] * 60 + ["spam"] * 60
    member = make_pipeline(TfidfVectorizer(), MultinomialNB())
    fitted = DPAClassifier(member, 5, classes=["ham", "spam"]).fit(texts, labels)
    assert fitted.predict(["fine nice good", "ugly poor bad"]).tolist() == ["ham", "spam"]


@pytest.mark.parametrize("holder", [list, np.array, pd.Series], ids=["list", "array", "series"])
def test_text_is_mapped_by_a_frozen_feature_map(holder: Any) -> None:
    texts = [f"{'cheap pills' if i % 2 else 'lunch at noon'} {i}" for i in range(80)]
    labels = [i % 2 for i in range(80)]
    counts = HashedNGrams(256)
    for features in (counts, make_pipeline(counts, FixedScale(scale=2.0))):
        clf = DPAClassifier(n_partitions=4, classes=[0, 1], features=features)
        clf.fit(holder(texts), labels)
        assert clf.failures_ == {}
        assert clf.score(holder(["lunch at noon 3", "cheap pills 8"]), [0, 1]) == 1.0


def test_a_frame_with_text_and_numbers_is_learned_by_a_pipeline() -> None:
    frame = pd.DataFrame({"colour": ["red", "blue"] * 100, "size": np.arange(200) % 7})
    labels = np.arange(200) % 2
    member = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), ["colour"]), remainder="passthrough"
        ),
        DecisionTreeClassifier(),
    )
    fitted = DPAClassifier(member, 4, classes=[0, 1]).fit(frame, labels)
    assert not fitted.failures_
    assert (fitted.predict(frame) == labels).all()
    assert fitted.feature_names_in_.tolist() == ["colour", "size"]


def test_gradient_boosting_members_take_categories_from_a_frame() -> None:
    frame = pd.DataFrame({"colour": ["red", "blue"] * 200, "size": np.arange(400) % 7})
    frame["colour"] = frame["colour"].astype("category")
    labels = np.arange(400) % 2
    member = HistGradientBoostingClassifier(categorical_features=[0], max_iter=5)
    encoded = frame.assign(colour=frame["colour"].cat.codes)
    fitted = DPAClassifier(member, 4, classes=[0, 1]).fit(encoded, labels)
    assert (fitted.predict(encoded) == labels).all()


def test_probabilities_are_shares_of_the_votes_given() -> None:
    fitted = ensemble().fit(X, y)
    shares, votes = fitted.predict_proba(X_test), fitted.votes(X_test)
    assert np.allclose(shares.sum(axis=1), 1)
    assert shares[0, 3] == (votes[0] == 3).mean()


def test_progress_is_told_of_every_member(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[int, str, int]] = []

    class Listener(Silent):
        def start(self, total: int, description: str) -> None:
            heard.append((total, description, verbosity[-1]))

    verbosity: list[int] = []
    for module in (dpa, voting):
        monkeypatch.setattr(
            module, "make_progress", lambda verbose: verbosity.append(verbose) or Listener()
        )
    ensemble(verbose=3).fit(X, y).votes(X_test)
    assert heard == [(10, "Training", 3), (10, "Voting", 3)]


def test_missing_values_reach_an_imputer_inside_the_member() -> None:
    member = make_pipeline(SimpleImputer(), GaussianNB())
    fitted = ensemble(member).fit(with_cell(np.nan), y)
    assert not fitted.failures_
    columns = make_column_transformer((SimpleImputer(), list(range(64))))
    fitted = ensemble(make_pipeline(columns, GaussianNB())).fit(with_cell(np.nan), y)
    assert not fitted.failures_
    with pytest.raises(InvalidRowsError, match="NaN"):
        ensemble(make_pipeline(Normalizer(), GaussianNB())).fit(with_cell(np.nan), y)


def test_images_of_three_axes_are_taken_by_learners_that_take_them() -> None:
    class Flat(GaussianNB):
        def fit(self, X: Any, y: Any) -> Any:
            return super().fit(X.reshape(len(X), -1), y)

        def predict(self, X: Any) -> Any:
            return super().predict(X.reshape(len(X), -1))

        def __sklearn_tags__(self) -> Any:
            tags = super().__sklearn_tags__()
            tags.input_tags.three_d_array = True
            return tags

    cubes = ensemble(Flat()).fit(X.reshape(-1, 8, 8), y)
    flat = ensemble(GaussianNB()).fit(X, y)
    assert np.array_equal(cubes.votes(X_test.reshape(-1, 8, 8)), flat.votes(X_test))


def test_a_text_among_numbers_is_named_with_its_row() -> None:
    damaged = X.astype(object)
    damaged[7, 3] = "boo"
    with pytest.raises(InvalidRowsError, match=r"^Row 7 of X holds the text 'boo'"):
        ensemble(features=FixedScale()).fit(damaged, y)


def test_a_row_of_another_length_is_named() -> None:
    rows = [*X[:50].tolist(), [1.0]]
    with pytest.raises(InvalidRowsError, match=r"^Row 50 of X has 1 cells, but most rows have 64"):
        ensemble().fit(rows, y[:51])


def test_columns_of_the_same_name_are_refused_in_words() -> None:
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "a"])
    with pytest.raises(InvalidInputError, match="more than one column named 'a'"):
        ensemble().fit(frame, y)
    fitted = ensemble().fit(pd.DataFrame(X[:, :3], columns=["a", "b", "c"]), y)
    with pytest.raises(InvalidInputError, match="more than one column named 'a'"):
        fitted.predict(frame)


def test_a_feature_map_is_no_word() -> None:
    with pytest.raises(InvalidInputError, match=r"features is a transformer.*'passthrough'"):
        ensemble(features="passthrough").fit(X, y)


def test_polars_rows_of_another_type_join_by_their_values() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(X[:, :2], schema=["a", "b"])
    whole = ensemble().fit(frame, y)
    parted = ensemble().fit(frame[3:], y[3:])
    parted.update(add=(frame[:3].cast(polars.Int64), y[:3]))
    assert parted.partition_digests_ == whole.partition_digests_


@pytest.mark.parametrize("member", [None, DecisionTreeClassifier()], ids=["default", "tree"])
def test_images_and_tensors_are_taken_as_flat_rows(member: Any) -> None:
    torch = pytest.importorskip("torch")
    model = DPAClassifier(member, 10, classes=range(10))
    expected = model.fit(X, y).votes(X_test[:50])
    images = X.reshape(-1, 8, 8)
    for rows in (images, images[:, None], torch.tensor(X), torch.tensor(images[:, None])):
        assert (model.fit(rows, torch.tensor(y)).votes(rows[:50]) == model.votes(X[:50])).all()
        assert (model.votes(X_test[:50]) == expected).all()
        model.update(remove=(rows[:3], torch.tensor(y[:3])))
        assert len(model.receipt_.removed) == 3


def test_a_network_knows_the_shape_of_its_images() -> None:
    torch = pytest.importorskip("torch")
    from poisonproof import TorchLearner

    images = torch.tensor(X[:80].reshape(-1, 1, 8, 8))
    by_itself = DPAClassifier(TorchLearner("nin", epochs=1), 3, classes=range(10))
    told = clone(by_itself).set_params(estimator__image_shape=(1, 8, 8))
    votes = told.fit(X[:80], y[:80]).votes(X_test[:20])
    by_itself.fit(images, torch.tensor(y[:80]))
    assert (by_itself.votes(X_test[:20].reshape(-1, 1, 8, 8)) == votes).all()


@pytest.mark.parametrize("kind", [list, np.array, pd.Series], ids=lambda kind: kind.__name__)
def test_texts_fit_a_text_member_and_others_say_which_to_use(kind: Any) -> None:
    texts = kind([f"money {i}" if i % 2 else f"lunch {i}" for i in range(100)])
    labels = [i % 2 for i in range(100)]
    member = make_pipeline(TfidfVectorizer(), MultinomialNB())
    assert DPAClassifier(member, 5, classes=[0, 1]).fit(texts, labels).score(texts, labels) == 1
    with pytest.raises(InvalidRowsError, match="HashedNGrams") as refused:
        DPAClassifier(n_partitions=5, classes=[0, 1]).fit(texts, labels)
    assert "\n" not in str(refused.value)


def test_a_search_reaches_the_parameters_of_the_default_member() -> None:
    model = DPAClassifier(n_partitions=5, classes=range(10))
    search = GridSearchCV(model, {"estimator__alpha": [0.1, 1e6]}, cv=2).fit(X[:300], y[:300])
    assert search.best_params_ == {"estimator__alpha": 0.1}
    with pytest.raises(ValueError, match="least_relevance"):
        model.set_params(estimator__ridge=1.0)

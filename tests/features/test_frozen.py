"""No map learns, and the features of a row are a function of that row, bit for bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from poisonproof.features import (
    Deskew,
    FixedScale,
    HashedNGrams,
    OrientationHistogram,
    PatchResponses,
    Scattering,
    learns_nothing,
)


def images(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (n, 7, 7), dtype=np.uint8) * (rng.random((n, 7, 7)) < 0.3)
    return coarse.repeat(4, axis=1).repeat(4, axis=2).astype(np.uint8)


def texts(n: int) -> list[str]:
    rng = np.random.default_rng(0)
    words = np.array(["free", "money", "meeting", "at", "ten", "now", "Report", "été"])
    return [" ".join(rng.choice(words, rng.integers(0, 12))) for _ in range(n)]


def table(n: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, 37))


MAPS = {
    "deskew": (Deskew(), images, 20_000),
    "orientation": (OrientationHistogram(block=1, root=True), images, 20_000),
    "orientation-blocks": (OrientationHistogram(signed=False), images, 3_000),
    "scattering": (Scattering(n_orientations=4), images, 1_500),
    "patches": (PatchResponses(n_patches=40), images, 1_500),
    "scale": (FixedScale(shift=3.0, scale=7.0), table, 20_000),
    "ngrams": (HashedNGrams(256), texts, 1_500),
}


def assert_rows_are_independent(transformer, rows, n: int) -> None:
    X = rows(n)
    order = np.random.default_rng(1).permutation(n)
    features = transformer.transform(X)
    one_fewer = transformer.transform(X[1:])
    permuted = transformer.transform([X[i] for i in order] if isinstance(X, list) else X[order])
    assert features[1:].tobytes() == one_fewer.tobytes()
    assert features[order].tobytes() == permuted.tobytes()


@pytest.mark.parametrize("name", MAPS)
def test_dropping_or_permuting_rows_moves_no_bit_of_the_others(name) -> None:
    assert_rows_are_independent(*MAPS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in MAPS if n not in {"ngrams", "scattering", "patches"}])
def test_dropping_or_permuting_rows_of_60000_moves_no_bit_of_the_others(name) -> None:
    transformer, rows, _ = MAPS[name]
    assert_rows_are_independent(transformer, rows, 60_000)


@pytest.mark.slow
def test_dropping_a_colour_image_moves_no_bit_of_others_at_1600_patches() -> None:
    def photos(n: int) -> np.ndarray:
        return np.random.default_rng(0).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)

    assert_rows_are_independent(PatchResponses(), photos, 260)


@pytest.mark.parametrize("name", MAPS)
def test_one_row_alone_has_the_same_features(name) -> None:
    transformer, rows, _ = MAPS[name]
    X = rows(600)
    together = transformer.transform(X)
    for row in (0, 255, 256, 599):
        alone = transformer.transform(X[row : row + 1])
        assert alone.tobytes() == together[row : row + 1].tobytes()


WHOLE = [np.uint8, np.int64, np.float32, ">f8", object]


@pytest.mark.parametrize("name", [n for n in MAPS if n != "ngrams"])
def test_the_type_of_the_other_rows_moves_no_bit(name) -> None:
    """One row of another type makes NumPy and pandas give all rows another type."""
    transformer, rows, _ = MAPS[name]
    X = np.rint(rows(40) * 3).clip(0, 255).astype(np.uint8)
    known = transformer.transform(X)
    strange = np.full_like(X[:1], 1, dtype=np.float64) / 3
    for kind in WHOLE:
        others = (strange, strange.astype(np.float32), strange.astype(object))
        other = others[WHOLE.index(kind) % 3]
        among = transformer.transform(np.concatenate([other, X.astype(kind)]))
        assert among[1:].tobytes() == known.tobytes()


@pytest.mark.parametrize("name", ["scale"])
def test_the_container_of_a_table_moves_no_bit(name) -> None:
    transformer, rows, _ = MAPS[name]
    X = rows(40).astype(np.float32)
    known = transformer.transform(X)
    frame = pd.DataFrame(X).astype({3: np.float64, 5: object})
    for same in (X.tolist(), frame, frame.astype(object), np.asfortranarray(X), X.astype(object)):
        assert transformer.transform(same).tobytes() == known.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", [n for n in MAPS if n != "ngrams"])
def test_a_row_that_is_not_finite_spoils_itself_only(name, value) -> None:
    transformer, rows, _ = MAPS[name]
    X = rows(300).astype(np.float64)
    clean = transformer.transform(X)
    X[7].flat[400 % X[7].size] = value
    features = transformer.transform(X)
    others = np.arange(300) != 7
    assert features[others].tobytes() == clean[others].tobytes()
    assert not np.isfinite(features[7]).all()


@pytest.mark.parametrize("name", [n for n in MAPS if n != "ngrams"])
def test_workers_change_nothing(name) -> None:
    transformer, rows, _ = MAPS[name]
    X = rows(1_000)
    two = clone(transformer).set_params(n_jobs=2).transform(X)
    assert transformer.transform(X).tobytes() == two.tobytes()


@pytest.mark.parametrize("name", MAPS)
def test_fit_learns_nothing(name) -> None:
    transformer, rows, _ = MAPS[name]
    X = rows(300)
    fresh = clone(transformer)
    before = dict(vars(fresh))
    fitted = fresh.fit(X[:100], np.zeros(100))
    assert fitted is fresh
    assert vars(fitted) == before
    assert fitted.transform(X).tobytes() == transformer.transform(X).tobytes()


@pytest.mark.parametrize("name", MAPS)
def test_no_rows_have_no_features(name) -> None:
    transformer, rows, _ = MAPS[name]
    X = rows(2)
    assert transformer.transform(X[:0]).shape == (0, transformer.transform(X).shape[1])


@pytest.mark.parametrize(
    "transformer",
    [
        Deskew(),
        make_pipeline(Deskew(), OrientationHistogram()),
        make_union(OrientationHistogram(cell=4), OrientationHistogram(cell=7)),
        None,
    ],
)
def test_maps_that_learn_nothing_are_accepted(transformer) -> None:
    assert learns_nothing(transformer)


@pytest.mark.parametrize(
    "transformer",
    [
        StandardScaler(),
        PCA(2),
        make_pipeline(Deskew(), StandardScaler()),
        make_union(OrientationHistogram(), PCA(2)),
        FunctionTransformer(lambda X: X - X.mean(axis=0)),
    ],
)
def test_maps_that_may_learn_are_told_apart(transformer) -> None:
    assert not learns_nothing(transformer)


def test_maps_work_as_steps_of_a_scikit_learn_pipeline() -> None:
    X = images(200)
    y = np.arange(200) % 3
    steps = make_pipeline(Deskew(), OrientationHistogram(), StandardScaler())
    direct = OrientationHistogram().transform(Deskew().transform(X))
    expected = StandardScaler().fit_transform(direct)
    np.testing.assert_array_equal(clone(steps).fit_transform(X, y), expected)

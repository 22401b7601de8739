"""Products of rows are exact, so nothing but the two rows can change their bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features import exact_product, exact_rows

LONGEST = {"single": 2.0**12, "double": 2.0**26}
matrices = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.floats(-1e300, 1e300),
)


@pytest.mark.parametrize("precision", LONGEST)
@given(X=matrices)
def test_rows_are_integers_no_longer_than_an_exact_product_allows(X, precision) -> None:
    rows = exact_rows(X, precision)
    assert (rows.values == np.rint(rows.values)).all()
    assert (rows.square_lengths() <= LONGEST[precision] ** 2).all()


@pytest.mark.parametrize("precision", LONGEST)
@given(X=matrices)
def test_a_row_is_rounded_by_less_than_its_share_of_bits(X, precision) -> None:
    with np.errstate(over="ignore", under="ignore"):
        error = np.abs(exact_rows(X, precision).floats() - X).max(axis=1)
        largest = np.abs(X).max(axis=1)
    # Half a unit, where a row is at least (longest / 2 - sqrt(d)) units long; subnormals aside.
    bound = largest * (2 * np.sqrt(X.shape[1]) / LONGEST[precision]) + 1e-320
    assert (error <= bound).all()


@pytest.mark.parametrize("precision", LONGEST)
@given(X=matrices, data=st.data())
def test_a_row_does_not_depend_on_its_neighbours(X, precision, data) -> None:
    row = data.draw(st.integers(0, len(X) - 1))
    together, alone = exact_rows(X, precision)[[row]], exact_rows(X[[row]], precision)
    assert together.values.tobytes() == alone.values.tobytes()
    assert together.exponents == alone.exponents


def test_integers_that_fit_are_kept() -> None:
    X = np.random.default_rng(0).integers(0, 17, (500, 64))
    for precision in LONGEST:
        np.testing.assert_array_equal(exact_rows(X, precision).floats(), X)


@pytest.mark.parametrize("precision", LONGEST)
def test_products_equal_those_of_python_integers(precision) -> None:
    rng = np.random.default_rng(0)
    left, right = (exact_rows(rng.standard_normal((n, 648)), precision) for n in (5, 7))
    exact = [
        [sum(int(a) * int(b) for a, b in zip(x, y, strict=True)) for y in right.values]
        for x in left.values
    ]
    np.testing.assert_array_equal(exact_product(left, right), np.array(exact, dtype=np.float64))


@pytest.mark.parametrize("precision", LONGEST)
def test_one_row_in_front_of_60000_moves_no_bit_of_the_products(precision) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((60_000, 392), dtype=np.float32)
    asked = exact_rows(rng.random((64, 392)), precision)
    before = exact_product(exact_rows(X, precision), asked)
    after = exact_product(exact_rows(np.concatenate([X[:1], X]), precision), asked)
    np.testing.assert_array_equal(after[1:], before)


def test_rows_that_are_not_finite_are_refused() -> None:
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(InvalidRowsError, match="finite"):
            exact_rows(np.array([[0.0, value]]))


def test_rows_too_wide_for_single_are_refused() -> None:
    with pytest.raises(InvalidRowsError, match="too wide"):
        exact_rows(np.zeros((1, 2**22 + 1), dtype=np.float32), "single")


def test_unknown_precision_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'single' or 'double'"):
        exact_rows(np.zeros((1, 2)), "half")  # type: ignore[arg-type]

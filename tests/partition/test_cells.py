"""How each kind of value is treated: decided, documented, tested."""

from __future__ import annotations

import datetime
import decimal
import fractions
import zoneinfo

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition import sample_digests
from poisonproof.partition.cells import Instant, canonical_cell

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
SAME = {
    "one zero": [0, 0.0, -0.0, False, np.float32(-0.0)],
    "whole floats are integers": [3, 3.0, np.uint8(3), np.float16(3)],
    "booleans are 0 and 1": [1, True, np.bool_(True), 1.0],
    "one missing value": [
        None,
        float("nan"),
        -np.float64("nan"),
        np.float32("nan"),
        pd.NA,
        pd.NaT,
        np.datetime64("NaT"),
    ],
    "infinity": [float("inf"), np.float32("inf")],
    "text": ["é", np.str_("é")],
    "bytes": [b"ab", np.bytes_(b"ab"), bytearray(b"ab")],
    "an instant in any unit": [
        datetime.date(2020, 2, 29),
        datetime.datetime(2020, 2, 29),
        np.datetime64("2020-02-29", "D"),
        np.datetime64("2020-02-29", "s"),
        np.datetime64("2020-02-29", "ns"),
        pd.Timestamp("2020-02-29"),
        pd.Timestamp("2020-02-29").as_unit("s"),
    ],
    "an instant in any time zone": [
        datetime.datetime(2020, 7, 1, 10, 30),
        datetime.datetime(2020, 7, 1, 10, 30, tzinfo=datetime.UTC),
        datetime.datetime(2020, 7, 1, 12, 30, tzinfo=BERLIN),
        pd.Timestamp("2020-07-01 12:30", tz="Europe/Berlin"),
        np.datetime64("2020-07-01T10:30"),
    ],
    "a year and its first day": [np.datetime64("1969", "Y"), datetime.date(1969, 1, 1)],
    "the microsecond before 1970": [
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
        np.datetime64(-1, "us"),
        np.datetime64(-1000, "ns"),
    ],
    "the first moment of all": [
        datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-1))),
        datetime.datetime(1, 1, 1, 1),
    ],
}
DIFFERENT = [
    0,
    1,
    -1,
    0.5,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    "1",
    "nan",
    "None",
    "1970-01-01",
    b"",
    b"1",
    datetime.date(1970, 1, 1),
    np.datetime64(1, "ns"),
    np.datetime64(1, "as"),
    0.1,
    2**53,
    2**53 + 1,
    2**64,
    -(2**64),
    5e-324,
    "é",
    "e\u0301",
    "\ud800",
    "a\x00",
    "a",
]


@pytest.mark.parametrize("values", SAME.values(), ids=SAME)
def test_one_value_has_one_digest_in_every_type(values):
    digests = sample_digests([[value] for value in values])
    assert len(np.unique(digests, axis=0)) == 1
    beside_text = sample_digests([[value, "text"] for value in values])
    assert len(np.unique(beside_text, axis=0)) == 1


def test_different_values_have_different_digests():
    assert len(np.unique(sample_digests([[value] for value in DIFFERENT]), axis=0)) == len(
        DIFFERENT
    )


def test_instants_far_beyond_int64_nanoseconds_are_exact():
    assert canonical_cell(np.datetime64(2**62, "s")) == Instant(2**62, 0)
    assert canonical_cell(np.datetime64(-1, "as")) == Instant(-1, 10**18 - 1)
    assert canonical_cell(np.datetime64(3, "25s")) == Instant(75, 0)


def test_date_arrays_of_every_unit_agree():
    days = np.array([["2020-02-29", "1960-01-01"], ["NaT", "2262-04-12"]], dtype="M8[D]")
    expected = sample_digests(days.astype(object))
    for unit in ("h", "s", "ms", "us"):
        assert np.array_equal(sample_digests(days.astype(f"M8[{unit}]")), expected)


REFUSED = {
    "complex number": 1 + 2j,
    "NumPy complex number": np.complex64(1j),
    "list": ["a"],
    "set": {1},
    "time of day": datetime.time(12),
    "object": object(),
    "period": pd.Period("2020-01"),
    "interval": pd.Interval(0, 1),
    "decimal": decimal.Decimal("0.5"),
    "fraction": fractions.Fraction(1, 2),
    "duration": datetime.timedelta(1),
    "NumPy duration": np.timedelta64("NaT", "ns"),
    "pandas duration": pd.Timedelta(hours=1),
    "year beyond all calendars": np.datetime64(2**60, "Y"),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_a_value_without_canonical_form_is_refused_with_row_and_column(value):
    cells = np.empty((3, 2), dtype=object)
    cells[:] = 1
    cells[2, 1] = value
    with pytest.raises(InvalidRowsError, match=r"Row 2, column 1: .*Allowed are"):
        sample_digests(cells)
    with pytest.raises(InvalidRowsError, match=r"Row 2, column 1: .*Allowed are"):
        sample_digests(pd.DataFrame(cells))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="longdouble is float64 here")
def test_extended_precision_that_float64_would_round_is_refused():
    X = np.ones((3, 2), dtype=np.longdouble)
    assert np.array_equal(sample_digests(X), sample_digests(np.ones((3, 2))))
    X[2, 1] += np.finfo(np.longdouble).eps
    for container in (X, X.astype(object), sp.csr_matrix(X)):
        with pytest.raises(InvalidRowsError, match=r"Row 2, column 1: .* not exactly a float64"):
            sample_digests(container)


CONTAINERS = {
    "complex array": (np.ones((2, 2), dtype=complex), "dtype complex128"),
    "durations": (np.zeros(2, dtype="m8[s]"), "dtype timedelta64"),
    "structured array": (np.zeros(2, dtype=[("a", int)]), "dtype"),
    "complex sparse": (sp.csr_matrix(np.ones((2, 2), dtype=complex)), "dtype complex128"),
    "single number": (np.float64(3), "single value"),
    "masked array": (np.ma.masked_array([[1.0]], mask=[[True]]), "masked array"),
    "one-dimensional sparse": (sp.coo_array(np.ones(3)), "two dimensions"),
    "dictionary": ({"a": [1]}, "X is a dict"),
    "list of frames": ([pd.DataFrame({"a": [1]})], "Row 0 is a DataFrame"),
    "list of complex arrays": ([np.ones(2, dtype=complex)], "Row 0 has dtype complex128"),
}


@pytest.mark.parametrize(("X", "message"), CONTAINERS.values(), ids=CONTAINERS)
def test_a_container_that_holds_no_samples_is_refused(X, message):
    with pytest.raises(InvalidRowsError, match=message):
        sample_digests(X)

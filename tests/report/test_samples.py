"""Rows are shown as what they are, and nothing in them can disguise them."""

from __future__ import annotations

import base64
import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import sparse

from poisonproof.exceptions import InvalidInputError
from poisonproof.report.samples import cell_samples, make_samples, visible


def pixels(address: str) -> np.ndarray:
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)))


def test_gray_images_keep_their_pixels() -> None:
    image = np.arange(64, dtype=np.uint8).reshape(1, 8, 8) * 4
    assert np.array_equal(pixels(make_samples(image).show(0).image), image[0])


def test_channels_first_images_become_colour_pictures() -> None:
    image = np.zeros((2, 3, 4, 5), dtype=np.uint8)
    image[1, 0] = 255
    shown = pixels(make_samples(image).show(1).image)
    assert shown.shape == (4, 5, 3)
    assert shown[0, 0].tolist() == [255, 0, 0]


def test_flat_rows_are_images_where_a_shape_is_given() -> None:
    samples = make_samples(np.linspace(0, 16, 64).reshape(1, 64), image_shape=(1, 8, 8))
    shown = pixels(samples.show(0).image)
    assert (shown.min(), shown.max()) == (0, 255)


def test_a_large_image_becomes_a_thumbnail() -> None:
    assert pixels(make_samples(np.zeros((1, 400, 800), np.uint8)).show(0).image).shape == (48, 96)


def test_pixels_that_are_no_numbers_are_shown_as_dark() -> None:
    image = np.array([[[np.nan, 1.0], [0.5, np.inf]]])
    assert pixels(make_samples(image).show(0).image).shape == (2, 2)


def test_an_image_shape_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="64 values, but an image of shape 1x9x9 has 81"):
        make_samples(np.zeros((1, 64)), image_shape=(1, 9, 9))


def test_texts_tables_and_sparse_rows_are_told_apart() -> None:
    assert make_samples(["a", "b"]).show(1).text == "b"
    assert make_samples(np.array([["a"], ["b"]], dtype=object)).show(1).text == "b"
    assert make_samples(np.zeros((2, 3))).show(1).values[2] == ("feature 2", "0")
    frame = pd.DataFrame({"age": [31.0], "town": ["Ulm"]})
    assert make_samples(frame).show(0).values == (("age", "31"), ("town", "Ulm"))
    row = make_samples(sparse.csr_matrix([[0, 0, 7.5]])).show(0)
    assert row.values == (("feature 2", "7.5"),)


def test_wide_rows_say_how_much_is_left_out() -> None:
    sample = make_samples(np.zeros((1, 64)), names=[f"pixel {i}" for i in range(64)]).show(0)
    assert sample.values[0] == ("pixel 0", "0")
    assert len(sample.values) + sample.more == 64


def test_declared_texts_are_shown_as_text_and_other_cells_as_values() -> None:
    columns = {"subject": ["hello", None], "links": np.array([2.0, np.nan]), "body": ["a", "b"]}
    samples = cell_samples(columns, texts={"subject", "body"})
    assert len(samples) == 2
    assert samples.show(0).text == "subject: hello | body: a"
    assert samples.show(1).text == "subject:  | body: b"
    assert samples.show(1).values == (("links", "missing"),)


def test_long_texts_are_cut() -> None:
    assert len(make_samples(["x" * 100_000]).show(0).text) == 400


@pytest.mark.parametrize("code", [0x00, 0x1B, 0x7F, 0x200B, 0x202E, 0x2066, 0xFEFF, 0xD800])
def test_characters_without_a_shape_become_visible(code: int) -> None:
    assert chr(code) not in visible(f"a{chr(code)}b", 10)
    visible(f"a{chr(code)}b", 10).encode()


def test_an_empty_cell_is_called_missing() -> None:
    cells = cell_samples({"links": [float("nan")], "client": [None], "land": ["DE"]})
    assert cells.show(0).values == (("links", "missing"), ("client", "missing"), ("land", "DE"))

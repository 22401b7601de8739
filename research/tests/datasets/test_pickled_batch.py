from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from builders import python_batch
from hypothesis import given
from hypothesis import strategies as st

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.datasets.pickled_batch import read_pickled_batch

IMAGES = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
BATCH = python_batch(IMAGES, [3, 9])
SMALL = python_batch(IMAGES[:, :8], [3, 9])


def test_a_batch_of_python_2_is_read() -> None:
    images, labels = read_pickled_batch(BATCH, "batch")
    np.testing.assert_array_equal(images, IMAGES)
    assert labels.tolist() == [3, 9]


def test_the_batch_of_the_tests_is_what_a_real_unpickler_reads() -> None:
    batch = pickle.loads(BATCH, encoding="latin-1")
    np.testing.assert_array_equal(batch["data"], IMAGES)
    assert batch["labels"] == [3, 9]


def test_a_pickle_that_runs_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    call = b"cposix\nmkdir\nU" + bytes([len(str(mark))]) + str(mark).encode() + b"\x85R0"
    attack = BATCH[:2] + call + BATCH[2:]
    with pytest.raises(InvalidInputError, match="it names 'posix mkdir'"):
        read_pickled_batch(attack, "batch")
    assert not mark.exists()
    pickle.loads(attack, encoding="latin-1")
    assert mark.exists(), "the attack does not work at all, so this test shows nothing"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (b"\x80\x02cposix\nsystem\n.", "names 'posix system'"),
        (b"\x80\x02cnumpy\nndarray\n(K\x01t\x81.", "instruction NEWOBJ"),
        (b"\x80\x02cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R.", "other arguments"),
        (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R.", "other arguments"),
        (b"\x80\x02U\x01aU\x01b\x85R.", "not a name"),
        (b"\x80\x04}.", "protocol 4"),
        (b"\x80\x02]K\x01b.", "sets the state"),
        (b"\x80\x02K\x01K\x02a.", "not a list"),
        (b"\x80\x02h\x07.", "never stored"),
        (b"\x80\x02u.", "did not begin"),
        (b"\x80\x02a.", "more values than there are"),
        (b"\x80\x02K\x01.", "one dictionary"),
        (b"\x80\x02}.", "no array 'data'"),
        (b"", "damaged or truncated"),
    ],
)
def test_what_the_format_does_not_need_is_refused(program: bytes, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        read_pickled_batch(program, "batch")


@given(st.integers(0, len(SMALL) - 1), st.integers(0, 255))
def test_a_damaged_byte_is_refused_or_harmless_but_never_another_error(
    position: int, value: int
) -> None:
    damaged = SMALL[:position] + bytes([value]) + SMALL[position + 1 :]
    try:
        images, labels = read_pickled_batch(damaged, "batch")
    except InvalidInputError:
        return
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64


@pytest.mark.parametrize("cut", [1, 100, 3000])
def test_truncated_batches_are_refused(cut: int) -> None:
    with pytest.raises(InvalidInputError, match="damaged or truncated"):
        read_pickled_batch(BATCH[:-cut], "batch")

"""An imported dataset is complete or absent, and read only if it is what was written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from builders import mnist_arrays, write_idx

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.datasets import import_images, list_images, load_images

KILLED_AT_SYNC = """
import os, signal, sys
from poisonproof_research.datasets import import_images
left = int(sys.argv[3])
real = os.fsync
def fsync(handle):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(handle)
os.fsync = fsync
import_images("mnist", sys.argv[1], cache=sys.argv[2], published=False)
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    import_images(
        "mnist", write_idx(tmp_path / "source"), cache=tmp_path / "cache", published=False
    )
    return tmp_path / "cache"


def array_file(cache: Path, name: str) -> Path:
    (path,) = (cache / "mnist").glob(f"arrays-*/{name}.npy")
    return path


def test_arrays_are_mapped_and_cannot_be_written(cache: Path) -> None:
    dataset = load_images("mnist", cache)
    assert isinstance(dataset.x_train, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        dataset.x_train[0] = 0


def test_a_changed_pixel_is_found(cache: Path) -> None:
    path = array_file(cache, "x_test")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidInputError, match=r"x_test\.npy is damaged.*Import it again"):
        load_images("mnist", cache)
    assert len(load_images("mnist", cache, check=False).x_test) == 12


def test_an_array_with_a_damaged_header_is_found(cache: Path) -> None:
    path = array_file(cache, "x_test")
    path.write_bytes(path.read_bytes().replace(b")", b"(", 1))
    with pytest.raises(InvalidInputError, match=r"x_test\.npy cannot be read.*Import it again"):
        load_images("mnist", cache)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 2}, "version 2"),
        ({"format": "other"}, "does not describe"),
        ({"folder": "../elsewhere"}, "names no folder"),
        ({"arrays": None}, "lists no arrays"),
        ({"arrays": {}}, "lists no array 'x_train'"),
    ],
)
def test_a_foreign_manifest_is_refused(changes: dict[str, object], words: str, cache: Path) -> None:
    path = cache / "mnist" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InvalidInputError, match=words):
        load_images("mnist", cache)


def test_a_failed_import_keeps_the_earlier_one(cache: Path, tmp_path: Path) -> None:
    before = load_images("mnist", cache).digest
    with pytest.raises(InvalidInputError, match="not the published MNIST"):
        import_images("mnist", write_idx(tmp_path / "other", seed=5), cache=cache)
    assert load_images("mnist", cache).digest == before
    assert len(list((cache / "mnist").iterdir())) == 2


def test_a_second_import_replaces_the_first_and_leaves_no_rubbish(
    cache: Path, tmp_path: Path
) -> None:
    opened = load_images("mnist", cache)
    import_images("mnist", write_idx(tmp_path / "b", seed=5), cache=cache, published=False)
    np.testing.assert_array_equal(load_images("mnist", cache).x_test, mnist_arrays(5)["x_test"])
    assert len(list((cache / "mnist").iterdir())) == 2
    np.testing.assert_array_equal(opened.x_test, mnist_arrays(0)["x_test"])


@pytest.mark.parametrize("syncs", range(9))
@pytest.mark.parametrize("earlier", [False, True])
def test_a_kill_at_any_step_leaves_a_whole_dataset_or_none(
    syncs: int, earlier: bool, tmp_path: Path
) -> None:
    """Four arrays, their folder, the manifest and the dataset's folder are synced: 7 steps."""
    cache = tmp_path / "cache"
    if earlier:
        import_images("mnist", write_idx(tmp_path / "a"), cache=cache, published=False)
    source = write_idx(tmp_path / "b", seed=5)
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_SYNC, str(source), str(cache), str(syncs)], check=False
    )
    assert done.returncode == (-signal.SIGKILL if syncs < 7 else 0)
    replaced = syncs >= 6  # the manifest was put in place before the last sync
    if not earlier and not replaced:
        assert list_images(cache) == []
        with pytest.raises(InvalidInputError, match="was not imported"):
            load_images("mnist", cache)
    else:
        expected = mnist_arrays(5 if replaced else 0)
        dataset = load_images("mnist", cache)
        for key, values in expected.items():
            np.testing.assert_array_equal(getattr(dataset, key), values)


def test_what_a_killed_import_left_is_removed_by_the_next(cache: Path, tmp_path: Path) -> None:
    (cache / "mnist" / "arrays-left").mkdir()
    (cache / "mnist" / "arrays-manifest.part").write_text("{")
    with pytest.raises(InvalidInputError, match="not the published MNIST"):
        import_images("mnist", tmp_path / "source", cache=cache)
    assert len(list((cache / "mnist").iterdir())) == 2
    assert len(load_images("mnist", cache).x_train) == 30


def test_an_unwritable_cache_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(InvalidInputError, match="cannot write a dataset to"):
        import_images("mnist", write_idx(tmp_path / "s"), cache=tmp_path / "cache", published=False)


def test_the_listing_says_what_is_there(cache: Path) -> None:
    (cache / "broken").mkdir()
    (cache / "broken" / "manifest.json").write_text("{")
    (entry,) = list_images(cache)
    assert (entry.name, len(entry.x_train), len(entry.x_test)) == ("mnist", 30, 12)
    assert not entry.published

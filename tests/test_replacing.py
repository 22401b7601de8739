from __future__ import annotations

from pathlib import Path

import pytest

from poisonproof.exceptions import StoreError
from poisonproof.files import replacing, write_bytes, write_together


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    write_bytes(path, b"old")

    def interrupted() -> None:
        with replacing(path) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"Cannot write .*page\.md: No such file or directory\."):
        write_bytes(tmp_path / "missing" / "page.md", b"new")


def test_files_that_belong_together_are_all_written_or_none(tmp_path: Path) -> None:
    old, new, nowhere = tmp_path / "old.csv", tmp_path / "new.csv", tmp_path / "missing" / "a.csv"
    old.write_bytes(b"before")
    write_together({old: b"a", new: b"b"})
    assert (old.read_bytes(), new.read_bytes()) == (b"a", b"b")
    new.unlink()
    for order in ([old, new, nowhere], [nowhere, old, new], [old, nowhere, new]):
        with pytest.raises(StoreError, match=r"Cannot write .*a\.csv"):
            write_together(dict.fromkeys(order, b"half"))
        assert old.read_bytes() == b"a"
        assert list(tmp_path.iterdir()) == [old]

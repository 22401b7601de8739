from __future__ import annotations

from pathlib import Path

import pytest

from poisonproof.exceptions import StoreError
from poisonproof.replacing import replacing, write_bytes


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    write_bytes(path, b"old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half of the n")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"Cannot write .*page\.md: No such file or directory\."):
        write_bytes(tmp_path / "missing" / "page.md", b"new")

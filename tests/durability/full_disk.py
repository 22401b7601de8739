"""Runs on a file system that is too small: ``python -m tests.durability.full_disk MOUNT``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from poisonproof.exceptions import StoreError

from . import jobs


def main(mount: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spare = Path(folder) / "model"
        for job in (jobs.train, jobs.update, jobs.save):
            job(spare)
            refusals = fill(job, mount, mount / "model")
            found = jobs.digests_or_none(mount / "model")
            assert found == jobs.digests_or_none(spare), job.__name__
            sys.stdout.write(f"{job.__name__}: refused {refusals} times, then done\n")


def fill(job: Callable[[Path], None], mount: Path, path: Path) -> int:
    """Grow the disk page by page until the job fits."""
    used = sum(file.stat().st_blocks * 512 for file in mount.rglob("*"))
    before = jobs.digests_or_none(path)
    refusals = 0
    for pages in range(4, 2000, 20):
        resize(mount, used + pages * 4096)
        try:
            job(path)
        except StoreError as error:
            if "No space left" not in str(error):
                raise
            refusals += 1
            assert jobs.digests_or_none(path) == before
        else:
            assert refusals > 3, "the disk was never full"
            return refusals
    raise AssertionError("the job never fitted")


def resize(mount: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(mount)], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

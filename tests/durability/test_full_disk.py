"""A disk that is full costs a rerun, never a model."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def own_mounts() -> list[str] | None:
    """Return the command prefix under which a process may mount a small disk of its own."""
    if shutil.which("unshare") is None:
        return None
    prefix = ["unshare", "--mount", "--map-root-user"]
    return prefix if subprocess.run([*prefix, "true"], check=False).returncode == 0 else None


@pytest.mark.skipif(own_mounts() is None, reason="no small disks can be mounted here")
def test_training_updating_and_saving_survive_a_full_disk(tmp_path: Path) -> None:
    prefix, mount = own_mounts(), tmp_path / "disk"
    mount.mkdir()
    script = (
        f'mount -t tmpfs -o size=64k none "{mount}" && '
        f'"{sys.executable}" -m tests.durability.full_disk "{mount}"'
    )
    done = subprocess.run(
        [*(prefix or []), "sh", "-c", script], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("then done") == 3

"""Who computed a result, with what, and how long it took."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import poisonproof
from poisonproof.store.fingerprint import installed_version

__all__ = ["Block", "Run", "merge_runs", "new_run"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "triton")


@dataclass(frozen=True)
class Block:
    """Members that were trained and asked together.

    Attributes
    ----------
    number : int
        Which block of its run.
    members : int
        How many members.
    train_seconds, vote_seconds : float
        Wall time of training, and of voting on the whole test set.
    """

    number: int
    members: int
    train_seconds: float
    vote_seconds: float


@dataclass(frozen=True)
class Run:
    """One run of the command on one machine.

    Attributes
    ----------
    id : str
        Random name, so that copies of a run are recognised.
    command : str
        What was run, without folders.
    software, hardware : mapping
        Versions and machine.
    blocks : tuple of Block
        The work done.
    """

    id: str
    command: str
    software: Mapping[str, Any]
    hardware: Mapping[str, Any]
    blocks: tuple[Block, ...] = ()

    @property
    def seconds(self) -> tuple[float, float]:
        """Wall time of training and of voting."""
        return (
            sum(block.train_seconds for block in self.blocks),
            sum(block.vote_seconds for block in self.blocks),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON values."""
        return {
            "id": self.id,
            "command": self.command,
            "software": dict(self.software),
            "hardware": dict(self.hardware),
            "blocks": [
                [b.number, b.members, round(b.train_seconds, 3), round(b.vote_seconds, 3)]
                for b in self.blocks
            ],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Run:
        """Read what `to_json` wrote."""
        blocks = tuple(Block(*block) for block in values["blocks"])
        return cls(**{**values, "blocks": blocks})


def merge_runs(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Join runs by their names; a block that is there twice counts once."""
    merged: dict[str, Run] = {}
    for run in runs:
        known = merged.get(run.id, run)
        blocks = {block.number: block for block in (*known.blocks, *run.blocks)}
        merged[run.id] = replace(known, blocks=tuple(blocks[i] for i in sorted(blocks)))
    return tuple(merged.values())


def new_run(command: str, machine: Mapping[str, Any]) -> Run:
    """Describe a run that begins now on this machine."""
    return Run(
        secrets.token_hex(6),
        command,
        {
            "poisonproof": poisonproof.__version__,
            "engine_sha256": _engine_digest(),
            "python": platform.python_version(),
            **{name: version for name in _PACKAGES if (version := installed_version(name))},
        },
        {"system": platform.system(), "cpu": _cpu(), "cores": os.cpu_count(), **machine},
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _engine_digest() -> str:
    """Return a digest of the code that trains and asks deep members."""
    root = Path(poisonproof.__file__).parent
    sha = hashlib.sha256()
    for folder in ("engines/torch", "learners/torch", "pretraining"):
        for path in sorted((root / folder).rglob("*.py")):
            sha.update(f"{path.relative_to(root).as_posix()}\n".encode())
            sha.update(path.read_bytes())
    return sha.hexdigest()

"""Fixtures of all tests, and a way to run the laboratory's command line in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from patterns import features, images, kinds, labels, patterns, rotnet
from shapes import data, pack, recipe, recipes_folder
from toy_methods import accurate, strong

from poisonproof_research.cli import run

__all__ = [
    "accurate",
    "data",
    "features",
    "images",
    "kinds",
    "labels",
    "pack",
    "patterns",
    "recipe",
    "recipes_folder",
    "rotnet",
    "strong",
]

# Processes that tests start import the laboratory, too.
_PATHS = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))


class Result(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return call

"""Doctests of the kernels are collected only where Triton is installed (CUDA builds of torch)."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["*.py"]

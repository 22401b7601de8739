"""Children that are killed: at a step of their own, or from outside after a while."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from joblib.externals.loky import reusable_executor

_inherited: list[Any] = []
"""Kept alive: what a child lets go of would still wake the parent's threads."""

STEPS = {"open", "os.rename", "os.remove", "os.truncate", "os.mkdir"}
"""What Python reports before it does it: everything that changes a directory."""


def killed_at(step: int, job: Callable[[Path], None], path: Path) -> bool:
    """Run a job in a child that dies before its `step`-th change of `path`; say whether it did."""

    def child() -> None:
        left = step

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            # Names relative to the handle of a folder have no folder before them.
            name = arguments[0] if event in STEPS else None
            if isinstance(name, str | Path) and (str(path) in str(name) or "/" not in str(name)):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        job(path)

    return _run(child, None)


def killed_after(seconds: float, job: Callable[[Path], None], path: Path) -> bool:
    """Run a job in a child that is killed after a while; say whether it was."""
    return _run(lambda: job(path), seconds)


def _run(child: Callable[[], None], seconds: float | None) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside idle BLAS threads
        pid = os.fork()
    if pid == 0:
        code = 1
        # The workers of the parent are not the child's: tasks sent to them would answer the parent.
        _inherited.append(reusable_executor._executor)
        reusable_executor._executor = None
        try:
            child()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the child failed"
    return False

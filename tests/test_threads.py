from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from threadpoolctl import threadpool_info, threadpool_limits

from poisonproof.threads import one_thread


def threads() -> dict[str, int]:
    return {library["filepath"]: library["num_threads"] for library in threadpool_info()}


@pytest.mark.parametrize("kind", ["blas", "openmp"])
def test_the_block_has_one_thread_and_gives_the_others_back(kind: str) -> None:
    import sklearn.ensemble  # noqa: F401 - brings OpenMP

    with threadpool_limits(3):
        before = threads()
        for _ in range(2):
            with one_thread(kind):
                inside = {
                    lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == kind
                }
            assert inside == {1}
            assert threads() == before
    assert 3 in before.values()


def who() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing", None])
@pytest.mark.parametrize("return_as", ["list", "generator"])
def test_joblib_works_in_the_thread_of_the_block_and_as_before_elsewhere(
    backend: str | None, return_as: str
) -> None:
    if backend == "multiprocessing" and return_as == "generator":
        pytest.skip("joblib has no such thing")

    def seen() -> set[tuple[int, int]]:
        workers = Parallel(n_jobs=2, backend=backend, return_as=return_as)
        return set(workers(delayed(who)() for _ in range(4)))

    others: list[set[tuple[int, int]]] = []
    with one_thread(), one_thread():
        assert seen() == {who()}
        assert effective_n_jobs(2) == 1
        with parallel_config(backend="threading", n_jobs=2):
            assert seen() == {who()}
        outside = threading.Thread(target=lambda: others.append(seen()))
        outside.start()
        outside.join()
    assert who() not in others[0]
    assert who() not in seen()
    assert effective_n_jobs(2) == 2


def test_a_library_that_was_loaded_later_has_one_thread_too() -> None:
    code = """
import numpy
from threadpoolctl import threadpool_info
from poisonproof.threads import one_thread
with one_thread():
    few = threadpool_info()
import sklearn.ensemble, scipy.linalg
assert max(library["num_threads"] for library in threadpool_info()) == 3
with one_thread():
    many = threadpool_info()
assert len(many) > len(few)
assert {library["num_threads"] for library in many} == {1}, many
"""
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(variables, "3")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_what_loads_a_library_is_done_again_on_one_thread() -> None:
    code = """
import numpy
from threadpoolctl import threadpool_info
from poisonproof.threads import on_one_thread, one_thread

def work():
    import sklearn.ensemble, scipy.linalg
    calls.append({library["num_threads"] for library in threadpool_info()})
    if fails:
        raise ValueError
    return "done"

calls, fails = [], True
with one_thread():
    try:
        on_one_thread(work)
    except ValueError:
        fails = False
    assert max(calls[0]) == 3 and calls[1:] == [{1}], calls
    assert on_one_thread(work) == "done"
    assert calls[2:] == [{1}], calls
assert max(library["num_threads"] for library in threadpool_info()) == 3
assert on_one_thread(work) == "done"
assert calls[3:] == [{1}], calls
"""
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(variables, "3")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def blas() -> set[int]:
    import numpy  # noqa: F401 - brings BLAS

    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


@pytest.mark.parametrize("owned", [False, True], ids=["", "within the caller's own limits"])
def test_the_first_thread_that_leaves_does_not_give_back_what_the_other_relies_on(
    owned: bool,
) -> None:
    """As when a server asks a model from several of its threads."""
    inside, finished = threading.Event(), threading.Event()
    seen: list[set[int]] = []

    def slow() -> None:
        with one_thread():
            inside.set()
            finished.wait(30)
            seen.append(blas())

    limits = threadpool_limits(limits=2, user_api="blas")
    try:
        with limits if owned else nullcontext():
            with one_thread():
                other = threading.Thread(target=slow)
                other.start()
                assert inside.wait(30)
            finished.set()
            other.join()
            assert seen == [{1}]
            assert blas() == {2}
    finally:
        limits.restore_original_limits()


def test_blocks_within_blocks_give_back_what_they_found() -> None:
    with threadpool_limits(limits=2, user_api="blas"):
        with one_thread():
            with threadpool_limits(limits=2, user_api="blas"):
                with one_thread("blas"):
                    assert blas() == {1}
                assert blas() == {2}
            assert blas() == {1}
        assert blas() == {2}

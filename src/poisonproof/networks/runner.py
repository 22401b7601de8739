"""From partitions to finished members: stacks, workers, checkpoints, progress."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs

from poisonproof.exceptions import InvalidRowsError
from poisonproof.networks.batches import MemberRows, partition_rows
from poisonproof.networks.device import deterministic, require_device, require_memory, use_onednn
from poisonproof.networks.graphs import train_member, train_on_tracks
from poisonproof.networks.modules import own_streams, refuse_shared_state
from poisonproof.networks.specification import NetworkSpec
from poisonproof.networks.stacked import (
    autograd_gradients,
    first_parameters,
    module_forward,
    perceptron_gradients,
    train_stack,
)
from poisonproof.networks.state import Checkpoints, MemberState, failed
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.progress import Progress, reporting

_Group = list[MemberRows]
_Train = Callable[[_Group], list[MemberState]]


def train_members(
    spec: NetworkSpec,
    data: PartitionedData,
    which: Sequence[int],
    seed: int,
    *,
    n_jobs: int | None,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> list[MemberState]:
    """Train the members of the partitions `which`, in any order, and return them in that order.

    Guarantee
    ---------
    Workers, grouping, checkpoints and `which` itself only schedule.
    """
    device = require_device(spec)
    with _settled(spec):
        require_memory(spec)
        refuse_shared_state(spec)
    done: dict[int, MemberState] = {}
    with reporting(progress, len(which), "Training"), _settled(spec):
        waiting = _waiting(spec, data, which, checkpoints, done, progress)
        groups = _groups(spec, waiting)
        for group, states in _trained(spec, seed, device, groups, n_jobs):
            for rows, state in zip(group, states, strict=True):
                done[state.index] = state
                if checkpoints is not None:
                    checkpoints.save(rows, state)
            progress.advance(len(states))
    return [done[index] for index in which]


@contextmanager
def _settled(spec: NetworkSpec) -> Iterator[None]:
    """Fix what torch, NumPy and the caller's warning filters could make of a member.

    A filter that turns warnings into errors would silence members here and, as it does not travel,
    none in a worker process.
    """
    usual: dict[str, Any] = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
    with deterministic(spec), np.errstate(**usual), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _waiting(
    spec: NetworkSpec,
    data: PartitionedData,
    which: Sequence[int],
    checkpoints: Checkpoints | None,
    done: dict[int, MemberState],
    progress: Progress,
) -> Iterator[MemberRows]:
    """Yield the members still to train; the empty and the finished are settled here."""
    for index in dict.fromkeys(which):
        try:
            rows = partition_rows(data[index], spec)
        except InvalidRowsError as error:  # this partition's own matter
            done[index] = failed(spec, index, error)
            progress.advance()
            continue
        state = MemberState(index, {}) if len(rows) == 0 else None
        if state is None and checkpoints is not None:
            state = checkpoints.load(rows)
        if state is None:
            yield rows
        else:
            done[index] = state
            progress.advance()


def _groups(spec: NetworkSpec, members: Iterator[MemberRows]) -> Iterator[_Group]:
    width = 1 if spec.is_alone else spec.stack_width
    while group := list(islice(members, width)):
        yield group


def _workers(spec: NetworkSpec, n_jobs: int | None) -> int:
    # Another process could not import what only this program's main script defines; threads, which
    # a stack of a user's module would need, could share what the module keeps to itself.
    alone = (
        spec.device == "cuda"
        or spec.execution == "vmap"
        or (spec.factory or "").startswith("__main__:")
    )
    return 1 if alone else int(effective_n_jobs(n_jobs))


def _trained(
    spec: NetworkSpec, seed: int, device: torch.device, groups: Iterator[_Group], n_jobs: int | None
) -> Iterator[tuple[_Group, list[MemberState]]]:
    if spec.execution == "graph":
        members = chain.from_iterable(groups)
        for rows, state in train_on_tracks(spec, members, seed, device):
            yield [rows], [state]
        return
    if spec.execution != "fused":
        workers = _workers(spec, n_jobs)
        if spec.execution == "single" and workers > 1:
            yield from _by_processes(spec, seed, groups, workers)
        else:
            yield from _run(_trainer(spec, seed, device), groups, workers)
        return
    from poisonproof.networks.fused.trainer import FusedTrainer

    trainer = FusedTrainer(spec, seed)
    queued: tuple[_Group, Callable[[], list[MemberState]]] | None = None
    for group in groups:
        following = (group, trainer.submit(group))
        if queued is not None:
            yield queued[0], queued[1]()
        queued = following
    if queued is not None:
        yield queued[0], queued[1]()


def _by_processes(
    spec: NetworkSpec, seed: int, groups: Iterator[_Group], workers: int
) -> Iterator[tuple[_Group, list[MemberState]]]:
    """Train members one by one in worker processes.

    In threads their many small steps would wait for each other, and users' modules would share
    torch's random stream.
    """
    pool = Parallel(n_jobs=workers, backend="loky", return_as="generator")
    for window in iter(lambda: list(islice(groups, 8 * workers)), []):
        tasks = (delayed(_in_process)(spec, group[0], seed) for group in window)
        yield from ((group, [state]) for group, state in zip(window, pool(tasks), strict=True))


def _in_process(spec: NetworkSpec, rows: MemberRows, seed: int) -> MemberState:
    with _settled(spec):
        return _train_alone(spec, rows, seed, torch.device(spec.device))


def _run(
    train: _Train, groups: Iterator[_Group], workers: int
) -> Iterator[tuple[_Group, list[MemberState]]]:
    if workers == 1:
        yield from ((group, train(group)) for group in groups)
        return
    with ThreadPoolExecutor(workers) as pool:
        # A bounded window: partitions are gathered as they are needed, not all at once.
        for window in iter(lambda: list(islice(groups, 4 * workers)), []):
            yield from zip(window, pool.map(train, window), strict=True)


def _trainer(spec: NetworkSpec, seed: int, device: torch.device) -> _Train:
    if spec.execution == "vmap":
        gradients = autograd_gradients(module_forward(spec, device, training=True))
        return _pinned(
            spec,
            lambda group: train_stack(
                spec, group, seed, device, gradients, first_parameters(spec, group, seed, device)
            ),
        )
    if spec.execution == "stacked":
        return _pinned(
            spec, lambda group: train_stack(spec, group, seed, device, perceptron_gradients)
        )
    return _pinned(spec, lambda group: [_train_alone(spec, group[0], seed, device)])


def _pinned(spec: NetworkSpec, train: _Train) -> _Train:
    def run(group: _Group) -> list[MemberState]:
        torch.set_num_threads(spec.threads)  # OpenMP keeps this number per calling thread
        use_onednn()
        return train(group)

    return run


def _train_alone(
    spec: NetworkSpec, rows: MemberRows, seed: int, device: torch.device
) -> MemberState:
    """Train one member; what it raises becomes its abstention, not the ensemble's end."""
    use_onednn()
    try:
        if spec.network != "custom":
            return train_member(spec, rows, seed, device)
        with own_streams(0):  # seeded anew from the member's own stream
            return train_member(spec, rows, seed, device)
    except Exception as error:
        return failed(spec, rows.index, error)

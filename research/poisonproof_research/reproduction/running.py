"""Training a row from its recipe: partition, train, vote, write, block by block."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.progress import Progress, Silent
from poisonproof_research.reproduction.learner import (
    FeatureFolder,
    features_of,
    make_learner,
    member_samples,
    origin_of,
    resolve,
)
from poisonproof_research.reproduction.outcome import (
    has_result,
    read_result,
    write_part,
    write_result,
)
from poisonproof_research.reproduction.recipe import Recipe
from poisonproof_research.reproduction.result import (
    CommandRun,
    MemberBlock,
    RowResult,
    compact_votes,
    merge_results,
    new_run,
    require_origin,
)
from poisonproof_research.reproduction.row_data import RowData, make_partitions
from poisonproof_research.reproduction.whole_files import npz_bytes, read_npz, write_bytes

if TYPE_CHECKING:
    from poisonproof.networks.ensemble import TorchEnsemble
    from poisonproof.networks.pretraining.frozen import FrozenNetwork
    from poisonproof_research.networks.on_frozen import OnFrozenEnsemble
    from poisonproof_research.reproduction.learner import Learner

# Class probabilities of members, for certificates that need more than votes. They are too large to
# commit; the command that made them is in the result.

BYTES_PER_FILE = 16_000_000


def write_scores(
    folder: Path, name: str, members: NDArray[np.int64], scores: NDArray[np.float32]
) -> list[Path]:
    """Write scores of shape (n, b, C) as float16, some test rows per file."""
    step = max(1, BYTES_PER_FILE // max(1, 2 * scores[:1].size))
    paths = []
    for number, start in enumerate(range(0, len(scores), step)):
        part = scores[start : start + step].astype(np.float16)
        path = folder / f"scores-{name}-{number:03d}.npz"
        arrays = {"members": members, "start": np.array(start), "scores": part}
        write_bytes(path, npz_bytes(arrays))
        paths.append(path)
    return paths


def read_scores(folder: Path, n_test: int, n_partitions: int, *others: Path) -> NDArray[np.float16]:
    """Read all scores of a row, shape (n, k, C), from one folder or several that complete it."""
    files: list[dict[str, NDArray[Any]]] = [
        read_npz(path) for home in (folder, *others) for path in sorted(home.glob("scores-*.npz"))
    ]
    if not files:
        raise InvalidInputError(f"{folder} holds no scores. Make them with --scores.")
    n_classes = files[0]["scores"].shape[2]
    scores = np.zeros((n_test, n_partitions, n_classes), dtype=np.float16)
    seen = np.zeros((n_test, n_partitions), dtype=bool)
    for file in files:
        rows = np.arange(int(file["start"]), int(file["start"]) + len(file["scores"]))
        scores[np.ix_(rows, file["members"])] = file["scores"]
        seen[np.ix_(rows, file["members"])] = True
    if not seen.all():
        raise InvalidInputError(f"{folder} lacks scores of {int((~seen).sum())} votes.")
    return scores


# From a recipe to a result.

_STACKS = 5
"""Stacks of members in a block: what a killed run can lose."""


@dataclass(frozen=True)
class Options:
    """Options of a run; none of them changes a member.

    Attributes
    ----------
    device : {"cuda", "cpu"}
        Where members are trained. (Another device makes other members, and the result says so.)
    members : range, optional
        Which members to train; all by default.
    resume_from : tuple of Path
        Folders with members that other runs have finished.
    features : Path, FeatureFolder or FrozenNetwork, optional
        Folder of learned features, one folder each; or the row's own, loaded. A `FeatureFolder`
        keeps what it has read for the rows that follow.
    deadline : float, optional
        Value of `time.monotonic` before which to stop; no block is begun that would end later.
    scores : bool
        Whether to write the members' class probabilities beside the votes, as float16.
    n_jobs : int, optional
        Worker threads on a CPU.
    command : str
        What to record as the command.
    progress : Progress
        Told of every member trained, and of every vote.
    say : callable
        Told in words of every finished block.
    """

    device: str = "cuda"
    members: range | None = None
    resume_from: tuple[Path, ...] = ()
    features: Path | FeatureFolder | FrozenNetwork | None = None
    deadline: float | None = None
    scores: bool = False
    n_jobs: int | None = None
    command: str = ""
    progress: Progress = field(default_factory=Silent)
    say: Callable[[str], None] = lambda _text: None


def gather_results(row: str, folders: Sequence[Path]) -> RowResult | None:
    """Join what several folders hold of one row; None if they hold nothing of it.

    Each folder is that row's own, or one that holds it.
    """
    homes = [folder if has_result(folder) else folder / row for folder in folders]
    found = [read_result(home) for home in homes if has_result(home)]
    others = sorted({result.row for result in found if result.row != row})
    if others:
        raise InvalidInputError(f"A folder given for {row} holds a result of {others[0]}.")
    return merge_results(found) if found else None


def run_row(recipe: Recipe, data: RowData, out: Path, options: Options) -> RowResult | None:
    """Make one row, or go on with it, and write its result to ``out/row``.

    None if the deadline left no time for any member.
    """
    data.check(recipe.data)
    _, parts = make_partitions(recipe, data)
    frozen = features_of(recipe, data, options.features, options.device)
    learner = make_learner(recipe, options.device, frozen)
    seen, asked_about = member_samples(recipe, data, parts, frozen)
    spec = resolve(learner, seen.X, data.n_classes)
    origin = origin_of(recipe, data, parts, spec, frozen)
    folder = out / recipe.id
    known = gather_results(recipe.id, [folder, *options.resume_from])
    if known is not None:
        require_origin(known.origin, origin, f"The result of {recipe.id}")
    finished = set() if known is None else set(known.members.tolist())
    asked = options.members or range(recipe.n_partitions)
    # Members of similar size share a stack, so that few lanes wait for a longer one.
    waiting = sorted(set(asked) - finished, key=lambda i: (-int(parts.sizes[i]), i))
    width = max(1, options.n_jobs or 1) if spec.execution == "single" else spec.stack_width
    row = _RowTraining(recipe, data, seen, asked_about, learner, origin, folder, options)
    result = row.finish(waiting, known, width * _STACKS)
    if result is not None:
        write_result(folder, result)
    return result


@dataclass(frozen=True)
class _RowTraining:
    """A row that is being made."""

    recipe: Recipe
    data: RowData
    parts: PartitionedData
    x_test: NDArray[Any]
    learner: Learner
    origin: Mapping[str, Any]
    folder: Path
    options: Options

    def finish(self, waiting: list[int], known: RowResult | None, size: int) -> RowResult | None:
        """Train and ask the members `waiting`, at most `size` at a time."""
        run = new_run(self.options.command, self.origin["machine"])
        found = [] if known is None else [known]
        count = 0 if known is None else len(known.members)
        longest, number = 0.0, 0
        while waiting and not self._too_late(longest):
            began = time.monotonic()
            # One member of an earlier run is trained again: whatever `origin` does not name,
            # such as the code itself, shows in its digest.
            again = [int(known.members[0])] if known is not None and number == 0 else []
            block = waiting[: max(1, size - len(again))]
            waiting = waiting[len(block) :]
            part = self._block([*again, *block], run, number)
            if again:
                found = [merge_results([*found, part])]
            else:
                found.append(part)
            write_part(self.folder, part)
            number, longest = number + 1, max(longest, time.monotonic() - began)
            count += len(block)
            done = part.runs[0].blocks[0]
            self.options.say(
                f"{self.recipe.id}: {count:,} of {self.recipe.n_partitions:,} members; the last "
                f"{done.members:,} took {done.train_seconds:.1f} s to train and "
                f"{done.vote_seconds:.1f} s to vote."
            )
        return merge_results(found) if found else None

    def _too_late(self, longest: float) -> bool:
        deadline = self.options.deadline
        return deadline is not None and time.monotonic() + 1.1 * longest > deadline

    def _block(self, which: list[int], run: CommandRun, number: int) -> RowResult:
        began = time.perf_counter()
        ensemble = self.learner.fit_members(
            self.parts,
            which,
            self.data.n_classes,
            self.recipe.seed,
            n_jobs=self.options.n_jobs,
            progress=self.options.progress,
        )
        trained = time.perf_counter()
        votes = ensemble.votes(
            self.x_test, n_jobs=self.options.n_jobs, progress=self.options.progress
        )
        block = MemberBlock(number, len(which), trained - began, time.perf_counter() - trained)
        result = self._result(which, ensemble, votes, replace(run, blocks=(block,)))
        if self.options.scores:
            name = f"{run.id}-{number:04d}"
            write_scores(self.folder, name, np.array(which), ensemble.scores(self.x_test))
        return result

    def _result(
        self,
        which: list[int],
        ensemble: TorchEnsemble | OnFrozenEnsemble,
        votes: NDArray[np.int16],
        run: CommandRun,
    ) -> RowResult:
        order = np.argsort(which)
        members = np.array(which, dtype=np.int64)[order]
        texts = ensemble.digests()
        digests = b"".join(hashlib.sha256(texts[place].encode()).digest() for place in order)
        return RowResult(
            self.origin,
            self.recipe.n_partitions,
            self.data.n_classes,
            self.data.y_test,
            members,
            compact_votes(votes[:, order]),
            np.frombuffer(digests, dtype=np.uint8).reshape(-1, 32),
            self.parts.sizes[members].astype(np.int64),
            {which[place]: why for place, why in ensemble.failures().items()},
            (run,),
        )

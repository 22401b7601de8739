"""Every model checks itself: some members are trained again in a fresh process and compared.

Nobody can see from outside whether a learner reads the clock or `os.urandom`, adds in the order in
which its own threads finish, or iterates over sets of strings. So a few members are trained a
second time where all of that is different, each from the rows of its own partition. Equal members
are evidence and no proof; different ones prove that no certificate of the model holds.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from joblib.externals.loky.backend.reduction import dump as dump_by_value
from numpy.typing import NDArray

from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.estimators.saving import TrainingTask
from poisonproof.estimators.training_set import shards_for_others
from poisonproof.exceptions import GuaranteeError, InvalidRowsError, SelfCheckError
from poisonproof.members.member import Ensemble, MemberList
from poisonproof.members.training import train
from poisonproof.partition.partitioned import PartitionedData, Shard, gathered
from poisonproof.progress import Silent
from poisonproof.store.items import decode_members, encode_members, shared_of

SHARE = 0.02
"""The share of the members that are trained again; at least one is."""

_WITHOUT_MODEL = ("constant:", "abstain:")  # how digests begin of members that no learner trained
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_CHILD = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    sys.path[:] = pickle.load(file)
    from poisonproof.estimators.self_check import retrain
    retrain(file, sys.argv[2])
"""


def check_ensemble(classifier: Any, data: PartitionedData, ensemble: Ensemble) -> int:
    """Check members that are in memory, as `check_members` does."""
    alone = _each_alone(ensemble, classifier)
    return check_members(classifier, data, ensemble.digests(), alone, ensemble.failures())


def check_members(
    classifier: Any,
    data: Any,
    digests: Sequence[str],
    alone: Callable[[int], Ensemble],
    excluded: Collection[int],
) -> int:
    """Train some members again in a fresh process; return how many, all of which were equal.

    `data` is what they were trained on, in memory or in shards on disk. `alone` returns an ensemble
    of one member; `excluded` are members that have failed.
    """
    k, sizes = len(digests), data.sizes
    real = [
        index
        for index, digest in enumerate(digests)
        if sizes[index] and index not in excluded and not digest.startswith(_WITHOUT_MODEL)
    ]
    which = _chosen(real, k, classifier.random_state)
    if not which:
        return 0
    read = shards_for_others(classifier, data, which)
    shards = {index: read(index) for index in which}
    spec = TrainingTask.of(classifier, k)
    again = _in_fresh_process(spec, shards)
    mapped = spec.classifier._member_data(gathered(shards, k), which)
    for index, (digest, votes, failure) in zip(which, again, strict=True):
        found = None
        if digest != digests[index]:
            found = f"its learner raised {failure}" if failure else "its state differs"
        elif not np.array_equal(votes, _votes(alone(index), mapped[index].X)):
            found = "its votes on these rows differ"
        if found is not None:
            raise GuaranteeError(
                f"Member {index}, a {type(classifier._template()).__name__}, is not a function of "
                f"its partition: trained again from the same rows in a fresh process, {found}. "
                "Certificates would be void, so there is no model. Look for what differs between "
                "two processes: the clock, os.urandom, threads that add in the order in which they "
                "finish, the iteration order of sets, global variables."
            )
    return len(which)


def _chosen(members: Sequence[int], k: int, seed: int) -> list[int]:
    """Choose by a hash; the last comes first, so that other members precede than in training."""

    def rank(index: int) -> bytes:
        return hashlib.sha256(f"poisonproof self-check {seed} {k} {index}".encode()).digest()

    return sorted(sorted(members, key=rank)[: max(1, math.ceil(SHARE * k))], reverse=True)


def _each_alone(ensemble: Ensemble, classifier: Any) -> Callable[[int], Ensemble]:
    """Return a function that returns an ensemble of one member."""
    if isinstance(ensemble, MemberList):
        members = ensemble.members
        return lambda index: MemberList([members[index]])
    shared, k = shared_of(ensemble), len(ensemble)
    items = encode_members(ensemble, range(k), [""] * k)
    about = classifier.classes_, classifier.random_state
    return lambda index: decode_members(*shared, [items[index]], *about)


_Seen = tuple[str, NDArray[np.int16], str | None]
"""The digest and the votes of a member, which are compared, and the reason of a failure."""


def _votes(alone: Ensemble, X: Any) -> NDArray[np.int16]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return alone.votes(X, n_jobs=1, progress=Silent())[:, 0]
        except InvalidRowsError:  # it cannot vote on its own rows
            return np.full(1, ABSTAIN, dtype=np.int16)


def _in_fresh_process(spec: TrainingTask, shards: Mapping[int, Shard]) -> list[_Seen]:
    """Train members in a new Python, with other string hashes and another number of threads."""
    with tempfile.TemporaryDirectory(prefix="poisonproof-") as folder:
        task, answer_file = Path(folder, "task"), Path(folder, "answer")
        try:
            with task.open("wb") as file:
                pickle.dump(sys.path, file)
                dump_by_value((spec, shards), file)  # classes of a script travel, too
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise _could_not_run(f"members cannot be sent to another process: {error}") from error
        command = [sys.executable, "-c", _CHILD, str(task), str(answer_file)]
        done = subprocess.run(
            command, env=_other_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            raise _could_not_run(f"its process was killed by {name}; it may have run out of memory")
        if done.returncode:
            raise _could_not_run((done.stderr.strip().splitlines() or ["no reason given"])[-1])
        # From our own child, in a folder of our own.
        answer = pickle.loads(answer_file.read_bytes())
    if isinstance(answer, str):
        raise _could_not_run(answer)
    seen: list[_Seen] = answer
    return seen


def retrain(file: IO[bytes], answered: str) -> None:
    """Train the members of `file` again in the fresh process, and write what is to be compared."""
    spec, shards = pickle.load(file)
    which = list(shards)
    answer: list[_Seen] | str
    try:
        with spec.settings():
            task = spec.classifier._task(gathered(shards, spec.n_partitions), which)
            members = train(*task, n_jobs=1, progress=Silent())
            alone = _each_alone(members, spec.classifier)
            digests, failures = members.digests(), members.failures()
            answer = [
                (digests[place], _votes(alone(place), task[1][index].X), failures.get(place))
                for place, index in enumerate(which)
            ]
    except Exception as error:  # of the machine: what a learner raises makes its member abstain
        answer = f"{type(error).__name__}: {error}"
    Path(answered).write_bytes(pickle.dumps(answer))


def _other_environment() -> dict[str, str]:
    """Return the environment with another seed of string hashes and other numbers of threads."""
    seed, threads = (os.environ.get(name, "") for name in ("PYTHONHASHSEED", "OMP_NUM_THREADS"))
    now = int(threads) if threads.isdecimal() else os.cpu_count() or 1
    other = dict.fromkeys((*_THREADS, "LOKY_MAX_CPU_COUNT"), str(2 if now == 1 else now - 1))
    return {**os.environ, **other, "PYTHONHASHSEED": "2" if seed == "1" else "1"}


def _could_not_run(reason: str) -> SelfCheckError:
    return SelfCheckError(
        f"The self-check could not run: {reason.rstrip('.')}. This says nothing about the members. "
        "Those that are in a store stay there, and the same call continues with them. "
        "self_check=False (--no-self-check) trains without the check."
    )

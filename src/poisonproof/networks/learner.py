"""`TorchLearner`: networks as members, behind the scikit-learn contract."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.members.member import BatchedLearner
from poisonproof.networks.batches import (
    MemberState,
    MemberTensors,
    failed,
    input_shape,
    partition_rows,
)
from poisonproof.networks.device import deterministic, fingerprint, require_device, use_onednn
from poisonproof.networks.ensemble import TorchEnsemble
from poisonproof.networks.graphs import train_member, train_on_tracks
from poisonproof.networks.lanes import train_stack
from poisonproof.networks.modules import (
    code_digest,
    factory_name,
    own_streams,
    refuse_shared_state,
)
from poisonproof.networks.specification import Augmentation, NetworkSpec
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.progress import Progress, Silent

AUGMENTATIONS = {
    "crop": Augmentation(crop=4),
    "crop-flip": Augmentation(crop=4, flip=True),
    "strong": Augmentation(
        crop=4,
        flip=True,
        rotate=15.0,
        scale=0.1,
        shift=0.05,
        brightness=0.3,
        contrast=0.3,
        saturation=0.3,
        cutout=8,
    ),
}
"""Augmentation by name."""


class TorchLearner(ClassifierMixin, BaseEstimator, BatchedLearner):
    """Neural networks as members: many trained at once, each bit for bit alone.

    Use it as ``DPAClassifier(TorchLearner("nin", ...), n_partitions=1200)``. Fitted on its own it
    is one network, trained as the member of partition 0.

    Parameters
    ----------
    network : str or callable
        ``"linear"``, ``"mlp"``, ``"nin"``, ``"nin4"``, ``"resnet10"``, ``"resnet18"``, or a
        module-level function without arguments that returns a `torch.nn.Module`.
    epochs, batch_size : int
        Length and width of training.
    image_shape : tuple (C, H, W), optional
        How to read a flat row as an image, channels first.
    hidden : tuple of int
        Widths of the perceptron's hidden layers.
    width : int
        Channels of ResNet's first stage.
    learning_rate, momentum, nesterov, weight_decay
        Stochastic gradient descent.
    schedule : {"step", "cosine", "constant"}
        With ``"step"`` the rate is multiplied by `gamma` from each epoch of `milestones` on; by
        default these follow 30, 60 and 80 % of training. `warmup_epochs` come first.
    mixup : float
        Parameter of mixup's Beta distribution, 0 for none.
    augmentation : None, str, dict or Augmentation
        ``"crop"``, ``"crop-flip"``, ``"strong"``, or its own rule.
    normalize : {"partition", "none"}
        Mean and standard deviation of the member's own rows (per channel of images, per feature
        of vectors). A feature that hardly varies within a small partition is blown up elsewhere:
        features on one scale do better with ``"none"``.
    input_scale : float
        Multiplies every value first, whatever its dtype.
    seed_rule : {"partition", "shared"}
        Whether members draw from streams of their own.
    execution : {None, "stacked", "single", "graph", "fused"}
        How members are trained; None takes the one for the network and device. ``"stacked"``:
        `stack_width` members per launch, batches padded to `batch_size`. ``"single"``: one member
        at a time, shapes follow its own partition. ``"graph"``: the same shapes, `stack_width`
        members at once, each replayed from CUDA graphs on a stream of its own. ``"fused"``: NiN
        kernels in which every program belongs to one member; CUDA only.
    stack_width : int, optional
        Members per launch, or at once for ``"graph"``; 32, or 8 for ``"graph"``.
    tile_rows : int
        Rows per launch of a stacked batch: it is computed tile by tile, and its gradients are added
        in that order. Lanes with few rows then carry little padding.
    dtype : {None, "float32", "bfloat16"}
        On CUDA, None takes bfloat16 for ``"fused"`` and ``"graph"``; a CPU takes float32 only.
    device : {"cpu", "cuda"}
        Never chosen automatically: another device is another model.
    threads : int
        Threads inside one CPU operation; 1 for ``"stacked"``, where they would cut through
        lanes. Workers (`n_jobs`) only schedule.
    vote_rows : int
        Samples per launch when voting.
    mirrored_votes : bool
        Whether members see every image and its mirror image, and vote with the mean of both
        scores: for images that mean the same in a mirror.
    random_state : int
        Seed when fitted on its own.

    Guarantee
    ---------
    A member is a function of its partition, the label set and the seed, given the specification
    and the machine's fingerprint.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> alone = TorchLearner("mlp", epochs=20, input_scale=1 / 16, normalize="none")
    >>> alone = alone.fit(X[:500], y[:500])
    >>> bool(alone.score(X[500:700], y[500:700]) > 0.8)
    True
    """

    def __init__(
        self,
        network: str | Callable[[], Any] = "mlp",
        *,
        epochs: int = 200,
        batch_size: int = 128,
        image_shape: tuple[int, int, int] | None = None,
        hidden: tuple[int, ...] = (64,),
        width: int = 64,
        learning_rate: float = 0.1,
        momentum: float = 0.9,
        nesterov: bool = True,
        weight_decay: float = 5e-4,
        schedule: str = "step",
        milestones: tuple[int, ...] | None = None,
        gamma: float = 0.2,
        warmup_epochs: int = 0,
        mixup: float = 0.0,
        augmentation: str | Mapping[str, Any] | Augmentation | None = None,
        normalize: str = "partition",
        input_scale: float = 1.0,
        seed_rule: str = "partition",
        execution: str | None = None,
        stack_width: int | None = None,
        tile_rows: int = 64,
        dtype: str | None = None,
        device: str = "cpu",
        threads: int = 1,
        vote_rows: int = 128,
        mirrored_votes: bool = False,
        random_state: int = 0,
    ) -> None:
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.image_shape = image_shape
        self.hidden = hidden
        self.width = width
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.nesterov = nesterov
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.milestones = milestones
        self.gamma = gamma
        self.warmup_epochs = warmup_epochs
        self.mixup = mixup
        self.augmentation = augmentation
        self.normalize = normalize
        self.input_scale = input_scale
        self.seed_rule = seed_rule
        self.execution = execution
        self.stack_width = stack_width
        self.tile_rows = tile_rows
        self.dtype = dtype
        self.device = device
        self.threads = threads
        self.vote_rows = vote_rows
        self.mirrored_votes = mirrored_votes
        self.random_state = random_state

    def resolve(self, shape: tuple[int, ...], n_classes: int) -> NetworkSpec:
        """Return the full specification for samples of one shape and a label set's size."""
        params = self.get_params(deep=False)
        for name in ("network", "image_shape", "random_state"):
            params.pop(name)
        custom = callable(self.network)
        network = "custom" if custom else str(self.network)
        execution = self.execution or _usual_execution(network, self.device)
        graph = execution == "graph"
        half = execution == "fused" or (graph and self.device == "cuda")
        milestones = self.milestones
        if milestones is None:
            milestones = tuple(self.epochs * share // 100 + 1 for share in (30, 60, 80))
        partition = "channel" if len(shape) == 3 else "feature"
        usual = 8 if graph else 32
        width = usual if self.stack_width is None else self.stack_width
        params.update(
            execution=execution,
            stack_width=width,
            dtype=self.dtype or ("bfloat16" if half else "float32"),
            milestones=milestones,
            augmentation=_augmentation(self.augmentation),
            normalize=partition if self.normalize == "partition" else self.normalize,
            factory=factory_name(self.network) if custom else None,
        )
        params = {k: tuple(v) if isinstance(v, (list, tuple)) else v for k, v in params.items()}
        return NetworkSpec(network=network, input_shape=shape, n_classes=n_classes, **params)

    def specification(self) -> Mapping[str, Any]:
        """Return everything that can change a member's bits, the machine included."""
        filled = self.resolve(tuple(self.image_shape or (3, 32, 32)), 2)  # of any shape
        values = {
            **filled.to_json(),
            "network": filled.factory or filled.network,
            "image_shape": self.image_shape,
            "normalize": self.normalize,
        }
        for name in ("input_shape", "n_classes"):
            del values[name]
        code, machine = code_digest(filled), fingerprint(filled)
        return {"learner": "torch", **values, "code": code, "machine": machine}

    def fit_members(
        self,
        data: PartitionedData,
        which: Sequence[int],
        n_classes: int,
        seed: int,
        *,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> TorchEnsemble:
        """Train the members of the partitions `which`."""
        spec = self.resolve(input_shape(data.X, self.image_shape), n_classes)
        require_device(spec)
        done: dict[int, MemberState] = {}
        listener = progress or Silent()
        with _settled(spec):
            refuse_shared_state(spec)
            members = _with_rows(spec, data, which, done, listener)
            width = 1 if spec.is_alone else spec.stack_width
            groups = iter(lambda: list(islice(members, width)), [])
            # Workers and grouping only schedule.
            for states in _trained(spec, seed, groups, n_jobs):
                done |= {state.index: state for state in states}
                listener.advance(len(states))
        return TorchEnsemble(spec, [done[index] for index in which])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> TorchLearner:
        """Train one network on all rows, in the order given, in a stack of one."""
        array = np.asarray(X)
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        self.n_features_in_ = int(np.prod(array.shape[1:]))
        place = np.arange(len(array))
        one = PartitionedData(array, codes.astype(np.int64), place, np.array([0, len(array)]))
        alone: TorchLearner = clone(self).set_params(stack_width=1)
        self.ensemble_ = alone.fit_members(one, [0], max(2, len(self.classes_)), self.random_state)
        if failures := self.ensemble_.failures():
            raise InvalidInputError(f"Training failed: {failures[0]}.")
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return class probabilities, shape (n, C)."""
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.scores(X)[:, 0, : len(self.classes_)]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return one class per row."""
        check_is_fitted(self, "ensemble_")
        chosen: NDArray[Any] = self.classes_[self.ensemble_.votes(X)[:, 0]]
        return chosen


def _usual_execution(network: str, device: str) -> str:
    if network in ("linear", "mlp"):
        return "stacked"
    # A user's module may draw random numbers, which only "single" keeps apart.
    if device == "cpu" or network == "custom":
        return "single"
    return "fused" if network in ("nin", "nin4") else "graph"


def _augmentation(given: str | Mapping[str, Any] | Augmentation | None) -> Augmentation:
    if isinstance(given, Augmentation):
        return given
    if isinstance(given, Mapping):
        return Augmentation(**given)
    if given is None or given in AUGMENTATIONS:
        return AUGMENTATIONS[given] if given else Augmentation()
    raise InvalidInputError(
        f"augmentation must be None, one of {', '.join(AUGMENTATIONS)}, a dict or an Augmentation,"
        f" got {given!r}."
    )


# From partitions to finished members: stacks, workers, progress.

_Group = list[MemberTensors]


@contextmanager
def _settled(spec: NetworkSpec) -> Iterator[None]:
    """Pin torch, NumPy and warning settings, which worker processes do not inherit."""
    usual: dict[str, Any] = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
    with deterministic(spec), np.errstate(**usual), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _with_rows(
    spec: NetworkSpec,
    data: PartitionedData,
    which: Sequence[int],
    done: dict[int, MemberState],
    progress: Progress,
) -> Iterator[MemberTensors]:
    """Yield the members to train; those without rows, or with rows of no use, are done."""
    for index in dict.fromkeys(which):
        try:
            rows = partition_rows(data[index], spec)
        except InvalidRowsError as error:  # this partition's own matter
            done[index] = failed(spec, index, error)
        else:
            if len(rows):
                yield rows
                continue
            done[index] = MemberState(index, {})
        progress.advance()


def _trained(
    spec: NetworkSpec, seed: int, groups: Iterator[_Group], n_jobs: int | None
) -> Iterator[list[MemberState]]:
    """Yield the members of groups, as they are trained in the way of the specification."""
    if spec.execution == "graph":
        tracks = train_on_tracks(spec, chain.from_iterable(groups), seed, torch.device(spec.device))
        yield from ([state] for state in tracks)
    elif spec.execution == "fused":
        yield from _fused(spec, seed, groups)
    else:
        # Another process could not import what only this program's main script defines.
        script = (spec.factory or "").startswith("__main__:")
        workers = 1 if spec.device == "cuda" or script else int(effective_n_jobs(n_jobs))
        # Members alone need processes: in threads their many small steps would wait for each
        # other, and users' modules would share torch's random stream.
        backend = "loky" if spec.execution == "single" else "threading"
        pool = Parallel(n_jobs=workers, backend=backend, return_as="generator")
        # Partitions are gathered as they are needed, not all at once.
        while window := list(islice(groups, 8 * workers)):
            yield from pool(delayed(_train_group)(spec, group, seed) for group in window)


def _fused(spec: NetworkSpec, seed: int, groups: Iterator[_Group]) -> Iterator[list[MemberState]]:
    """Queue the training of a group before the one before it is unpacked."""
    from poisonproof.networks.fused.trainer import FusedTrainer

    trainer = FusedTrainer(spec, seed)
    queued: Callable[[], list[MemberState]] | None = None
    for group in groups:
        following = trainer.submit(group)
        if queued is not None:
            yield queued()
        queued = following
    if queued is not None:
        yield queued()


def _train_group(spec: NetworkSpec, group: _Group, seed: int) -> list[MemberState]:
    """Train a stack, or a member alone: what it raises is its abstention, not the ensemble's."""
    device = torch.device(spec.device)
    if spec.execution == "stacked":
        torch.set_num_threads(spec.threads)  # OpenMP keeps this number per calling thread
        use_onednn()
        return train_stack(spec, group, seed, device)
    (rows,) = group
    with _settled(spec):  # in a process of its own, perhaps
        use_onednn()
        try:
            # A user's module draws from global streams, which are seeded anew for every member.
            with own_streams(0) if spec.network == "custom" else nullcontext():
                return [train_member(spec, rows, seed, device)]
        except Exception as error:
            return [failed(spec, rows.index, error)]

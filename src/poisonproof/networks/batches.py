"""From the rows of a partition to the batches of a network, and back from weights to a member."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv
from torch import Tensor

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.members.member import is_machine_error, reason_of
from poisonproof.networks.augmentation import Draw, Purpose, Stream, augment, purposes
from poisonproof.networks.device import sent
from poisonproof.networks.specification import NetworkSpec
from poisonproof.partition.partitioned import Partition

Array = NDArray[Any]

Score = Callable[[int, Tensor, int], Tensor]
"""From the number of a block, its samples and how many are real, to scores (S, n, C)."""


@dataclass(frozen=True)
class MemberTensors:
    """One member's training data: samples before normalisation, class indices, normalisation."""

    index: int  # number of the partition; -1 for a dummy lane
    X: Tensor
    y: Tensor
    mean: Tensor
    std: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def with_normalisation(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Return what a member votes with: its network's tensors, and its own mean and std."""
        own = {"normalise.mean": self.mean.numpy(), "normalise.std": self.std.numpy()}
        return {**tensors, **own}


def input_shape(X: Any, image_shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the shape of one sample, (d,) or (C, H, W)."""
    shape = tuple(int(side) for side in np.shape(X)[1:])
    if image_shape is None:
        return (1, *shape) if len(shape) == 2 else shape
    declared = tuple(int(side) for side in image_shape)
    if len(declared) != 3 or np.prod(declared) != np.prod(shape):
        raise InvalidInputError(
            f"image_shape={declared} does not fit samples of shape {shape}: it must be"
            " (channels, height, width) with the same number of values."
        )
    if _is_turned(shape, declared):
        raise InvalidInputError(
            f"Images come channels first, as image_shape={declared}; got samples of shape {shape}."
            " Move the axes first: numpy.moveaxis(X, -1, 1)."
        )
    return declared


def _is_turned(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether images of `shape` would be scrambled, and not just unpacked, as `wanted`."""
    found, expected = ([side for side in sides if side != 1] for sides in (shape, wanted))
    return len(shape) == len(wanted) == 3 and found != expected


def as_samples(X: Any, spec: NetworkSpec) -> NDArray[np.float32]:
    """Return samples as float32, shape (n, *input_shape), in units of the specification."""
    if hasattr(X, "toarray"):
        raise InvalidRowsError("Deep members take dense samples, got a sparse matrix.")
    try:
        # A value beyond float32 becomes infinite: its member diverges, and the others go on.
        with np.errstate(over="ignore"):
            array = np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidRowsError(f"Deep members take numbers only: {error}") from error
    if array[0:1].size != (np.prod(spec.input_shape) if len(array) else 0):
        raise InvalidRowsError(
            f"The network takes samples of shape {spec.input_shape}, got {array.shape[1:]}."
        )
    if _is_turned(array.shape[1:], spec.input_shape):
        raise InvalidRowsError(
            f"The network takes images of shape {spec.input_shape}, channels first; got"
            f" {array.shape[1:]}."
        )
    array = array.reshape(len(array), *spec.input_shape)
    return array if spec.input_scale == 1.0 else array * np.float32(spec.input_scale)


def partition_rows(partition: Partition, spec: NetworkSpec) -> MemberTensors:
    """Bring one partition to tensors and compute its own normalisation."""
    if partition.sample_weight is not None:
        raise InvalidInputError("TorchLearner takes no sample_weight; repeat rows instead.")
    X = as_samples(partition.X, spec)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite values: see `as_samples`
        mean, std = _normalisation(X, spec)
    return MemberTensors(
        partition.index,
        torch.from_numpy(np.ascontiguousarray(X)),
        torch.from_numpy(np.ascontiguousarray(partition.y, dtype=np.int64)),
        torch.from_numpy(mean),
        torch.from_numpy(std),
    )


def dummy_rows(spec: NetworkSpec) -> MemberTensors:
    """Return the rows of a lane that holds no member."""
    nothing = np.zeros((0, *spec.input_shape), np.float32)
    return partition_rows(Partition(-1, nothing, np.zeros(0, np.int64), None), spec)


def _normalisation(X: NDArray[np.float32], spec: NetworkSpec) -> tuple[Array, Array]:
    image = len(spec.input_shape) == 3
    per_feature = spec.normalize == "feature"
    shape = spec.input_shape if per_feature or not image else (spec.input_shape[0], 1, 1)
    zeros, ones = np.zeros(shape, np.float32), np.ones(shape, np.float32)
    if spec.normalize == "none" or not len(X):
        return zeros, ones
    axes = (0, 2, 3) if image and not per_feature else (0,)
    mean = X.mean(axis=axes, dtype=np.float64, keepdims=True)[0].astype(np.float32)
    std = X.std(axis=axes, dtype=np.float64, keepdims=True)[0].astype(np.float32)
    return mean, np.where(std > 0, std, np.float32(1.0))


# Cross-entropy per member: a mean over its own rows, and over nothing else.


def mix(values: Tensor, share: Tensor, counts: Tensor) -> Tensor:
    """Blend row j of a batch (S, B, ...) with row n-1-j of the same batch (mixup)."""
    place = torch.arange(values.shape[1], device=values.device)
    partner = counts[:, None] - 1 - place
    partner = torch.where(partner >= 0, partner, place)
    flat = values.flatten(2)
    other = torch.gather(flat, 1, partner[..., None].expand_as(flat)).view_as(values)
    weight = share.view(-1, *(1,) * (values.ndim - 1))
    return values * weight + other * (1.0 - weight)


def lane_losses(logits: Tensor, targets: Tensor, counts: Tensor) -> Tensor:
    """Return the mean cross-entropy (S,) of every lane's first `counts` rows."""
    per_row = -(torch.log_softmax(logits.float(), dim=-1) * targets).sum(dim=-1)
    real = torch.arange(logits.shape[1], device=logits.device) < counts[:, None]
    # `where`, not a product: zero times an infinite padding loss would be NaN.
    return torch.where(real, per_row, 0.0).sum(dim=1) / counts.clamp(min=1)


# Which rows make up which step: a function of the member's own size and stream.


def member_stream(spec: NetworkSpec, seed: int, indices: list[int], device: torch.device) -> Stream:
    """Return the streams of the members `indices`; dummy lanes draw from stream 0."""
    own = [max(i, 0) if spec.seed_rule == "partition" else 0 for i in indices]
    host = torch.tensor(own, dtype=torch.int64)
    return Stream(seed, sent(host, device), host)


def n_steps(size: int, spec: NetworkSpec) -> int:
    """Return the steps per epoch of a partition of `size` rows."""
    return max(1, -(-size // spec.batch_size))


@dataclass(frozen=True)
class TrainingStep:
    """One step of S lanes, at most B rows each."""

    rows: Tensor  # (S, B), numbers within each partition; 0 where a batch is short
    counts: Tensor  # (S,), rows in each batch; 0 where the lane has finished its epoch
    sizes: list[int]  # `counts` on the host
    rates: Tensor  # (S,), learning rates
    share: Tensor | None  # (S,), mixup's weight of the first image
    draw: Draw  # words for augmentation, (S, B, 4)
    epoch: int  # counted from 0

    def tiles(self, height: int) -> Iterator[TrainingStep]:
        """Cut the step into tiles of `height` rows, as many as the fullest lane needs."""
        for start in range(0, max(self.sizes), height):
            rows = self.rows[:, start : start + height]
            yield replace(
                self,
                rows=torch.nn.functional.pad(rows, (0, height - rows.shape[1])),
                counts=(self.counts - start).clamp(0, height),
                sizes=[min(max(size - start, 0), height) for size in self.sizes],
            )


def planned_steps(spec: NetworkSpec, stream: Stream, sizes: list[int]) -> Iterator[TrainingStep]:
    """Yield every step of the training of S lanes, each shuffled with its own draws."""
    counts = _counts(spec, sizes)
    on_device = sent(torch.tensor(counts), stream.lanes.device)
    for block, e in _epochs(spec, stream, sizes):
        for t, own in enumerate(counts):
            yield block.step(e, slice(None), t, on_device[t], own)


def planned_epochs(spec: NetworkSpec, stream: Stream, size: int) -> Iterator[TrainingStep]:
    """Yield every epoch of one member: its steps side by side, as if each were a lane."""
    counts = [own for (own,) in _counts(spec, [size])]
    on_device = sent(torch.tensor(counts), stream.lanes.device)
    for block, e in _epochs(spec, stream, [size]):
        yield block.step(e, 0, slice(None), on_device, counts)


def _counts(spec: NetworkSpec, sizes: list[int]) -> list[list[int]]:
    """Return the rows of every lane in every step of an epoch."""
    return [
        [min(max(size - t * spec.batch_size, 0), spec.batch_size) for size in sizes]
        for t in range(n_steps(max(sizes), spec))
    ]


def _epochs(spec: NetworkSpec, stream: Stream, sizes: list[int]) -> Iterator[tuple[_Block, int]]:
    # Integers and tables only: how many epochs are planned at once, and the length of the longest
    # lane, leave no trace.
    for start in range(0, spec.epochs, 25):
        epochs = range(start, min(start + 25, spec.epochs))
        block = _Block(spec, stream, sizes, epochs)
        yield from ((block, e) for e in range(len(epochs)))


class _Block:
    """Rows, rates and draws of several epochs, made in one go."""

    def __init__(self, spec: NetworkSpec, stream: Stream, sizes: list[int], epochs: range) -> None:
        device, longest = stream.lanes.device, max(sizes)
        self.first = epochs.start
        steps = n_steps(longest, spec)
        lengths = sent(torch.tensor(sizes), device)
        place = torch.arange(longest, device=device)
        when = torch.arange(epochs.start, epochs.stop, device=device)[:, None, None]
        words = stream.words(Purpose.SHUFFLE, when, place)[..., 0]
        real = place < lengths[:, None]
        # Larger than any draw: padding sorts behind every row.
        rows = torch.sort(torch.where(real, words, 1 << 40), dim=2, stable=True).indices
        spare = steps * spec.batch_size - longest
        rows = torch.nn.functional.pad(torch.where(real, rows, 0), (0, spare))
        shape = (len(epochs), len(lengths), steps, spec.batch_size)
        self.rows = rows.view(shape)
        self.words = {
            purpose: stream.words(purpose, when, rows).view(*shape, 4)
            for purpose in purposes(spec.augmentation)
        }
        own = [n_steps(size, spec) for size in sizes]
        rates = [[[spec.rate(e, t, s) for s in own] for t in range(steps)] for e in epochs]
        self.rates = sent(torch.tensor(rates, dtype=torch.float32), device)
        self.shares = sent(_mixup(spec, stream, epochs, steps), device) if spec.mixup else None

    def step(
        self, e: int, lanes: slice | int, steps: slice | int, counts: Tensor, sizes: list[int]
    ) -> TrainingStep:
        """Return one step of all lanes, or all steps of one lane."""
        share = None if self.shares is None else self.shares[e, lanes, steps]
        return TrainingStep(
            self.rows[e, lanes, steps],
            counts,
            sizes,
            self.rates[e, steps, lanes],
            share,
            lambda purpose: self.words[purpose][e, lanes, steps],
            self.first + e,
        )


def _mixup(spec: NetworkSpec, stream: Stream, epochs: range, steps: int) -> Tensor:
    """Draw Beta(a, a) per epoch, lane and step, (E, S, T), on the host: alike on every device."""
    when = torch.arange(epochs.start, epochs.stop)[:, None, None]
    words = stream.on_host().words(Purpose.MIXUP, when, torch.arange(steps))[..., 0].numpy()
    quantile = (words.astype(np.float64) + 0.5) * 2.0**-32
    share = betaincinv(spec.mixup, spec.mixup, quantile).astype(np.float32)
    return torch.from_numpy(share)


class Lanes:
    """The rows of at most `stack_width` members, and dummy lanes, side by side on a device."""

    def __init__(
        self, spec: NetworkSpec, members: Sequence[MemberTensors], seed: int, device: torch.device
    ) -> None:
        self.spec, self.device = spec, device
        width = 1 if spec.is_alone else spec.stack_width
        lanes = [*members, *[dummy_rows(spec)] * (width - len(members))]
        self.sizes = [len(lane) for lane in lanes]
        # Members are gathered from one flat table: a gather moves bits and computes none.
        self.X = self._table(lanes)
        no_label = torch.zeros(1, dtype=torch.int64)
        labels = torch.cat([no_label, *(lane.y for lane in lanes)])
        targets = torch.nn.functional.one_hot(labels, spec.n_classes).to(torch.float32)
        self.targets = sent(targets, device)
        self._lengths = torch.tensor(self.sizes)
        starts = torch.cumsum(self._lengths, 0) - self._lengths + 1
        self.starts = sent(starts[:, None], device)
        self.mean = sent(torch.stack([lane.mean for lane in lanes])[:, None], device)
        self.std = sent(torch.stack([lane.std for lane in lanes])[:, None], device)
        self.stream = member_stream(spec, seed, [lane.index for lane in lanes], device)

    @property
    def pieces_are_free(self) -> bool:
        """Whether tiles can be gathered one by one (no augmentation, no mixup)."""
        return self.spec.augmentation.is_identity and not self.spec.mixup

    def raw(self, step: TrainingStep, width: int) -> tuple[Tensor, Tensor]:
        """Return augmented inputs (S, width, ...) before normalisation, and label distributions."""
        place = self._places(step, width)
        x, targets = self.X[place], self.targets[place]
        if not self.spec.augmentation.is_identity:
            x = augment(x, self.spec.augmentation, lambda purpose: step.draw(purpose)[:, :width])
        if step.share is not None:
            x, targets = (mix(v, step.share, step.counts) for v in (x, targets))
        return x, targets

    def batch(self, step: TrainingStep, width: int) -> tuple[Tensor, Tensor]:
        """Return `raw`, normalised, with zeros behind each lane's count."""
        if self.pieces_are_free:
            place = self._places(step, width)
            return self._normalised[place], self.targets[place]
        x, targets = self.raw(step, width)
        x = (x - self.mean) / self.std
        real = torch.arange(width, device=self.device) < step.counts[:, None]
        return torch.where(real.view(*real.shape, *(1,) * (x.ndim - 2)), x, 0.0), targets

    def _table(self, lanes: Sequence[MemberTensors]) -> Tensor:
        """Return the rows of all lanes on the device, behind a blank one."""
        blank = torch.zeros(1, *self.spec.input_shape)
        return sent(torch.cat([blank, *(lane.X for lane in lanes)]), self.device)

    def _places(self, step: TrainingStep, width: int) -> Tensor:
        """Return where a step's rows lie in the flat tables; the blank row fills lanes up."""
        real = torch.arange(width, device=self.device) < step.counts[:, None]
        return torch.where(real, step.rows[:, :width] + self.starts, 0)

    @cached_property
    def _normalised(self) -> Tensor:
        """All rows, normalised once: rows that nothing changes are the same in every epoch."""
        if self.spec.normalize == "none":
            return self.X
        lane = sent(torch.repeat_interleave(self._lengths), self.device)
        rows = (self.X[1:] - self.mean[lane, 0]) / self.std[lane, 0]
        return torch.cat([self.X[:1], rows])


# What training leaves: one finished member.


@dataclass(frozen=True)
class MemberState:
    """Weights, running statistics and normalisation of one member, on the host."""

    index: int
    tensors: Mapping[str, Array]  # empty for a member that abstains
    failure: str | None = None  # why it abstains, if it has rows

    @property
    def abstains(self) -> bool:
        """Whether the member gives no vote."""
        return not self.tensors

    def digest(self) -> str:
        """Return a digest of everything the member votes with."""
        return tensors_digest(self.tensors, self.failure)


def tensors_digest(tensors: Mapping[str, Array], failure: str | None) -> str:
    """Return the SHA-256 of named arrays and a failure text."""
    sha = hashlib.sha256((failure or "").encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        sha.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        sha.update(array.data)
    return sha.hexdigest()


def finished(
    index: int, tensors: Mapping[str, Array], *, diverged: bool, checked: bool = False
) -> MemberState:
    """Return a member; one that diverged has no weights. `checked` says that all are finite."""
    floats = [array for array in tensors.values() if np.issubdtype(array.dtype, np.floating)]
    if diverged or not (checked or all(np.isfinite(array).all() for array in floats)):
        reason = "TrainingDiverged: the loss or the weights stopped being finite"
        return MemberState(index, {}, reason)
    return MemberState(index, tensors)


def member_of(rows: MemberTensors, state: Mapping[str, Tensor] | None) -> MemberState:
    """Return the member with the state of a module, or one that diverged where there is none."""
    if state is None:
        return finished(rows.index, {}, diverged=True)
    host = {name: value.detach().cpu().contiguous().numpy().copy() for name, value in state.items()}
    return finished(rows.index, rows.with_normalisation(host), diverged=False)


def members_of(
    stack: Sequence[MemberTensors], host: Mapping[str, Array], fine: Array, *, checked: bool = False
) -> list[MemberState]:
    """Return the members of a stack from tensors (S, ...); `fine` says which lanes are finite."""
    return [
        finished(
            rows.index,
            rows.with_normalisation({name: np.array(array[lane]) for name, array in host.items()}),
            diverged=not fine[lane],
            checked=checked,
        )
        for lane, rows in enumerate(stack)
    ]


def failed(spec: NetworkSpec, index: int, error: Exception) -> MemberState:
    """Return the abstention of a member whose network raised on its own rows, or raise again."""
    # torch refuses some rows with a ValueError (batch norm over one value).
    own = spec.network == "custom" or isinstance(error, ValueError)
    if not own or is_machine_error(error):
        raise error
    return MemberState(index, {}, reason_of(error))


def stacked_tensors(members: Sequence[MemberState], device: torch.device) -> dict[str, Tensor]:
    """Return the tensors of members side by side on the device, each of shape (S, ...)."""
    return {
        name: torch.from_numpy(np.stack([member.tensors[name] for member in members])).to(device)
        for name in members[0].tensors
    }

"""Where everything of a NiN member lies: shapes and offsets, from the specification alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from poisonproof.networks.modules import NIN_BLOCKS
from poisonproof.networks.specification import NetworkSpec


def _chunks(channels: int) -> tuple[int, int, int]:
    """Cut channels into at most three powers of two, the widths of matrix instructions."""
    cuts = {96: (64, 32, 0), 160: (64, 64, 32), 192: (64, 64, 64)}
    return cuts.get(channels, (channels, 0, 0))


@dataclass(frozen=True)
class Unit:
    """One convolution with batch norm and ReLU, as a matrix product.

    The input of a convolution wider than one pixel lies in a buffer with a border of zeros, so
    that line dy of a window is one run of `run` consecutive values. A product over `runs` runs is
    then the convolution. The first convolution reads columns that were laid out beforehand.
    """

    number: int
    side: int
    cin: int
    cout: int
    height: int
    width: int
    first: bool

    @property
    def pixels(self) -> int:
        """Output pixels per image."""
        return self.height * self.width

    @property
    def spatial(self) -> bool:
        """Whether the input lies in a bordered buffer."""
        return self.side > 1 and not self.first

    @property
    def border(self) -> int:
        """Zeros around the bordered buffer."""
        return self.side // 2 if self.spatial else 0

    @property
    def runs(self) -> int:
        """Runs per window."""
        return self.side if self.spatial else 1

    @property
    def run(self) -> int:
        """Real values per run."""
        if self.first:
            return self.side * self.side * self.cin
        return (self.side if self.spatial else 1) * self.cin

    @property
    def run_padded(self) -> int:
        """Values per run in the weights: a whole number of blocks."""
        block = self.block_k
        return -(-self.run // block) * block

    @property
    def block_k(self) -> int:
        """Values per step of the inner loop."""
        return 64 if self.run % 64 == 0 or self.run > 256 else 32

    @property
    def in_channels(self) -> int:
        """Values per pixel of the input buffer."""
        return self.run_padded if self.first else self.cin

    @property
    def line(self) -> int:
        """Values per line of the input buffer."""
        return (self.width + 2 * self.border) * self.in_channels

    @property
    def image(self) -> int:
        """Values per image of the input buffer."""
        return (self.height + 2 * self.border) * self.line

    @property
    def grad_line(self) -> int:
        """Values per line of the bordered gradient buffer."""
        return (self.width + 2 * self.border) * self.cout

    @property
    def grad_image(self) -> int:
        """Values per image of the bordered gradient buffer."""
        return (self.height + 2 * self.border) * self.grad_line

    @property
    def weights(self) -> int:
        """Weights, padding included."""
        return self.runs * self.run_padded * self.cout

    @property
    def in_chunks(self) -> tuple[int, int, int]:
        """Input channels in pieces."""
        return _chunks(self.cin)

    @property
    def out_chunks(self) -> tuple[int, int, int]:
        """Output channels in pieces."""
        return _chunks(self.cout)


@dataclass(frozen=True)
class Pool:
    """What stands between two blocks; writes the bordered input of the next unit."""

    kind: str
    after: Unit
    before: Unit

    @property
    def pixels(self) -> int:
        """Output pixels per image."""
        return self.before.pixels


@dataclass(frozen=True)
class Layout:
    """All units, pools and parameter offsets of one NiN."""

    spec: NetworkSpec

    @property
    def rows(self) -> int:
        """Rows a lane can hold per step."""
        return self.spec.batch_size

    @property
    def lanes(self) -> int:
        """Members per launch."""
        return self.spec.stack_width

    @property
    def n_blocks(self) -> int:
        """Blocks of units."""
        return 4 if self.spec.network == "nin4" else 3

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Every unit, first to last."""
        cin, height, width = self.spec.input_shape
        found: list[Unit] = []
        for number, block in enumerate(NIN_BLOCKS[: self.n_blocks]):
            for side, cout in block:
                found.append(Unit(len(found), side, cin, cout, height, width, not found))
                cin = cout
            if number < 2:
                height, width = (height + 1) // 2, (width + 1) // 2
        return tuple(found)

    @cached_property
    def pools(self) -> dict[int, Pool]:
        """Pools by the number of the unit they follow."""
        kinds = ("max", "avg", "copy")
        return {
            3 * b + 2: Pool(kinds[b], self.units[3 * b + 2], self.units[3 * b + 3])
            for b in range(self.n_blocks - 1)
        }

    @property
    def classes_padded(self) -> int:
        """Classes, rounded up to a width of matrix instructions."""
        return max(16, 1 << (self.spec.n_classes - 1).bit_length())

    @cached_property
    def offsets(self) -> dict[str, tuple[int, int]]:
        """Start and size of every parameter in a lane's flat table."""
        table: dict[str, tuple[int, int]] = {}
        start = 0

        def put(name: str, size: int) -> None:
            nonlocal start
            table[name] = (start, size)
            start += -(-size // 64) * 64

        for unit in self.units:
            put(f"weight{unit.number}", unit.weights)
        for unit in self.units:
            put(f"gamma{unit.number}", unit.cout)
            put(f"beta{unit.number}", unit.cout)
        put("head", self.units[-1].cout * self.classes_padded)
        put("bias", self.classes_padded)
        return table

    @property
    def parameters(self) -> int:
        """Length of a lane's flat table."""
        start, size = self.offsets["bias"]
        return start + -(-size // 64) * 64

    @property
    def convolution_parameters(self) -> int:
        """Length of the part of the table that holds convolutions; it comes first."""
        return self.offsets["gamma0"][0]

    def bytes_per_lane(self) -> int:
        """Return the device memory of one lane in training."""
        activations = sum(
            2 * unit.pixels * unit.cout
            + (unit.image if unit.first or unit.spatial else 0)
            + (unit.grad_image if unit.spatial else 0)
            for unit in self.units
        )
        pooled = sum(2 * pool.pixels * pool.after.cout for pool in self.pools.values())
        tables = 4 * self.parameters * 4
        largest = max(unit.weights for unit in self.units) * 4
        return self.rows * 2 * (activations + pooled) + tables + largest


# Between a module's state and a lane's flat table.


def _names(layout: Layout) -> tuple[list[str], list[str], str]:
    """Return the module's names of convolutions, batch norms and the last layer."""
    convolutions, norms, place = [], [], 0
    for unit in layout.units:
        convolutions.append(str(place))
        norms.append(str(place + 1))
        place += 4 if unit.number in (2, 5) else 3
    return convolutions, norms, str(place + 2)


def to_tables(
    layout: Layout, state: dict[str, Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return the flat parameters (S, P), and running means and variances per unit.

    Parameters
    ----------
    layout : Layout
        Offsets.
    state : dict of tensors of shape (S, ...)
        A NiN's state, stacked.
    """
    convolutions, norms, last = _names(layout)
    lanes = len(state[f"{last}.bias"])
    device = state[f"{last}.bias"].device
    table = torch.zeros(lanes, layout.parameters, device=device)

    def put(name: str, value: Tensor) -> None:
        start, size = layout.offsets[name]
        table[:, start : start + size] = value.reshape(lanes, size)

    for unit, conv, norm in zip(layout.units, convolutions, norms, strict=True):
        put(f"weight{unit.number}", _to_runs(unit, state[f"{conv}.weight"]))
        put(f"gamma{unit.number}", state[f"{norm}.weight"])
        put(f"beta{unit.number}", state[f"{norm}.bias"])
    spare = layout.classes_padded - layout.spec.n_classes
    pad = torch.nn.functional.pad
    put("head", pad(state[f"{last}.weight"].transpose(1, 2), (0, spare)))
    put("bias", pad(state[f"{last}.bias"], (0, spare)))
    means = [state[f"{norm}.running_mean"] for norm in norms]
    variances = [state[f"{norm}.running_var"] for norm in norms]
    return table, means, variances


def _to_runs(unit: Unit, weight: Tensor) -> Tensor:
    runs = weight.permute(0, 3, 4, 2, 1).reshape(len(weight), unit.runs, unit.run, unit.cout)
    return torch.nn.functional.pad(runs, (0, 0, 0, unit.run_padded - unit.run))


def from_tables(
    layout: Layout, table: Tensor, means: list[Tensor], variances: list[Tensor]
) -> dict[str, Tensor]:
    """Invert `to_tables`; every tensor has shape (S, ...)."""
    convolutions, norms, last = _names(layout)
    lanes, state = len(table), {}

    def get(name: str) -> Tensor:
        start, size = layout.offsets[name]
        return table[:, start : start + size]

    for unit, conv, norm in zip(layout.units, convolutions, norms, strict=True):
        i = unit.number
        runs = get(f"weight{i}").view(lanes, unit.runs, unit.run_padded, unit.cout)
        taps = runs[:, :, : unit.run].reshape(lanes, unit.side, unit.side, unit.cin, unit.cout)
        state[f"{conv}.weight"] = taps.permute(0, 4, 3, 1, 2).contiguous()
        state[f"{norm}.weight"], state[f"{norm}.bias"] = get(f"gamma{i}"), get(f"beta{i}")
        state[f"{norm}.running_mean"] = means[i][:, : unit.cout]
        state[f"{norm}.running_var"] = variances[i][:, : unit.cout]
    classes = layout.spec.n_classes
    head = get("head").view(lanes, layout.units[-1].cout, layout.classes_padded)
    state[f"{last}.weight"] = head[:, :, :classes].transpose(1, 2).contiguous()
    state[f"{last}.bias"] = get("bias")[:, :classes]
    return state

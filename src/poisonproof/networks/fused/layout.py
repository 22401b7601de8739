"""The layout of a NiN member in memory: shapes and offsets, from the specification alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from poisonproof.networks.modules import NIN_BLOCKS
from poisonproof.networks.specification import NetworkSpec


def _chunks(channels: int) -> tuple[int, int, int]:
    """Cut channels into at most three powers of two, the widths of matrix instructions."""
    cuts = {96: (64, 32, 0), 160: (64, 64, 32), 192: (64, 64, 64)}
    return cuts.get(channels, (channels, 0, 0))


class Unit:
    """One convolution with batch norm and ReLU, as a matrix product.

    The input of a convolution wider than one pixel lies in a buffer with a border of zeros, so
    that line dy of a window is one run of `run` consecutive values. A product over `runs` runs is
    then the convolution. The first convolution reads columns that were laid out beforehand.
    """

    def __init__(
        self, number: int, side: int, cin: int, cout: int, height: int, width: int
    ) -> None:
        self.number, self.side, self.cin, self.cout = number, side, cin, cout
        self.height, self.width = height, width
        self.first = number == 0
        self.pixels = height * width
        self.spatial = side > 1 and not self.first  # the input lies in a bordered buffer
        border = side // 2 if self.spatial else 0
        self.border = border
        self.runs = side if self.spatial else 1
        self.run = side * side * cin if self.first else self.runs * cin
        # Values per step of the inner loop, and per run in the weights: a whole number of blocks.
        self.block_k = 64 if self.run % 64 == 0 or self.run > 256 else 32
        self.run_padded = -(-self.run // self.block_k) * self.block_k
        self.weights = self.runs * self.run_padded * cout
        # Values per pixel, line and image of the input buffer, and of the bordered gradients.
        self.in_channels = self.run_padded if self.first else cin
        self.line = (width + 2 * border) * self.in_channels
        self.image = (height + 2 * border) * self.line
        self.grad_line = (width + 2 * border) * cout
        self.grad_image = (height + 2 * border) * self.grad_line
        # How a product reads the input, and how gradients are written around their first pixel.
        self.window = (self.pixels, width, self.image, self.line, self.in_channels)
        self.grad_window = (self.grad_image, self.grad_line, border * (self.grad_line + cout))
        self.in_chunks, self.out_chunks = _chunks(cin), _chunks(cout)


class Pool(NamedTuple):
    """The pooling between two blocks; writes the bordered input of the unit behind it."""

    kind: str
    after: Unit
    before: Unit


class NinLayout:
    """All units, pools and parameter offsets of one NiN."""

    def __init__(self, spec: NetworkSpec) -> None:
        self.spec, self.rows, self.lanes = spec, spec.batch_size, spec.stack_width
        n_blocks = 4 if spec.network == "nin4" else 3
        cin, height, width = spec.input_shape
        units: list[Unit] = []
        for number, block in enumerate(NIN_BLOCKS[:n_blocks]):
            for side, cout in block:
                units.append(Unit(len(units), side, cin, cout, height, width))
                cin = cout
            if number < 2:
                height, width = (height + 1) // 2, (width + 1) // 2
        self.units = tuple(units)
        self.pools = {
            3 * b + 2: Pool(kind, units[3 * b + 2], units[3 * b + 3])
            for b, kind in zip(range(n_blocks - 1), ("max", "avg", "copy"), strict=False)
        }
        self.classes_padded = max(16, 1 << (spec.n_classes - 1).bit_length())
        sizes = {f"weight{unit.number}": unit.weights for unit in units}
        self.convolution_parameters = _aligned(*sizes.values())  # they come first
        for unit in units:
            sizes |= {f"gamma{unit.number}": unit.cout, f"beta{unit.number}": unit.cout}
        sizes |= {"head": units[-1].cout * self.classes_padded, "bias": self.classes_padded}
        self.offsets: dict[str, tuple[int, int]] = {}
        """Start and size of every parameter in a lane's flat table."""
        self.parameters = 0
        for name, size in sizes.items():
            self.offsets[name] = (self.parameters, size)
            self.parameters += _aligned(size)


def _aligned(*sizes: int) -> int:
    """Return the room of parameters that begin at multiples of 64 values."""
    return sum(-(-size // 64) * 64 for size in sizes)


# Between a module's state and a lane's flat table.


def _names(layout: NinLayout) -> tuple[list[str], list[str], str]:
    """Return the module's names of convolutions, batch norms and the last layer."""
    convolutions, norms, place = [], [], 0
    for unit in layout.units:
        convolutions.append(str(place))
        norms.append(str(place + 1))
        place += 4 if unit.number in (2, 5) else 3
    return convolutions, norms, str(place + 2)


def to_tables(
    layout: NinLayout, state: dict[str, Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return the flat parameters (S, P) of a NiN's stacked state, and running moments per unit."""
    convolutions, norms, last = _names(layout)
    lanes = len(state[f"{last}.bias"])
    table = torch.zeros(lanes, layout.parameters, device=state[f"{last}.bias"].device)
    pad = torch.nn.functional.pad

    def put(name: str, value: Tensor) -> None:
        start, size = layout.offsets[name]
        table[:, start : start + size] = value.reshape(lanes, size)

    for unit, conv, norm in zip(layout.units, convolutions, norms, strict=True):
        runs = state[f"{conv}.weight"].permute(0, 3, 4, 2, 1)
        runs = runs.reshape(lanes, unit.runs, unit.run, unit.cout)
        put(f"weight{unit.number}", pad(runs, (0, 0, 0, unit.run_padded - unit.run)))
        put(f"gamma{unit.number}", state[f"{norm}.weight"])
        put(f"beta{unit.number}", state[f"{norm}.bias"])
    spare = layout.classes_padded - layout.spec.n_classes
    put("head", pad(state[f"{last}.weight"].transpose(1, 2), (0, spare)))
    put("bias", pad(state[f"{last}.bias"], (0, spare)))
    means = [state[f"{norm}.running_mean"] for norm in norms]
    variances = [state[f"{norm}.running_var"] for norm in norms]
    return table, means, variances


def from_tables(
    layout: NinLayout, table: Tensor, means: list[Tensor], variances: list[Tensor]
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

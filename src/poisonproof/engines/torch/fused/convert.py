"""Between a module's state and a lane's flat table."""

from __future__ import annotations

import torch
from torch import Tensor

from poisonproof.engines.torch.fused.layout import Layout, Unit

__all__ = ["from_tables", "to_tables"]


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

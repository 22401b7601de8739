"""A small random network for tests, where a network trained elsewhere would stand."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from poisonproof.features import save_network


class SmallNetwork(nn.Module):
    """Convolutions with batch normalisation and dropout, pooled to 4 x 4 cells of 24 channels."""

    def __init__(self, channels: int = 3, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.layers = nn.Sequential(
                nn.Conv2d(channels, 16, 5, padding=2),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 24, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Dropout(0.5),
                nn.AvgPool2d(2),
            )

    def forward(self, pixels: Tensor) -> Tensor:
        out: Tensor = self.layers(pixels)
        return out


@functools.cache
def network_file(channels: int = 3, side: int = 16, seed: int = 0) -> Path:
    """Return a file with such a network; it lives as long as the process."""
    folder = tempfile.TemporaryDirectory()
    _folders.append(folder)
    file = Path(folder.name) / "network.safetensors"
    save_network(
        SmallNetwork(channels, seed),
        file,
        image_shape=(channels, side, side),
        shift=127.0,
        scale=64.0,
    )
    return file


_folders: list[tempfile.TemporaryDirectory[str]] = []

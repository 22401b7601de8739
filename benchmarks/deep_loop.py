"""One member as one writes it by hand: the eager loop that `deep_h200.py` compares with."""

from __future__ import annotations

import time

import numpy as np
import torch
from deep_data import Part, nin

from poisonproof.networks.modules import build

__all__ = ["eager_rate", "ordinary_loop"]


def ordinary_loop(
    X: np.ndarray, y: np.ndarray, shape: tuple[int, ...], epochs: int, precision: str
) -> torch.nn.Module:
    """Train NiN by the published recipe: eager, data and augmentation on the device."""
    spec = nin(shape[1], execution="single").resolve(shape, 10)
    module = build(spec).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        module.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [61, 121, 161], 0.2)
    images = torch.from_numpy(X.reshape(-1, *shape)).cuda().float()
    mean, std = (f(images, dim=(0, 2, 3), keepdim=True) for f in (torch.mean, torch.std))
    images = torch.nn.functional.pad(images, (4, 4, 4, 4))
    images, labels = (images - mean) / std, torch.from_numpy(y.astype(np.int64)).cuda()
    module.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(y), device="cuda").split(128):
            x = _random_crop(images[rows], shape[1], flip=shape[0] == 3)
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
                scores = module(x.contiguous(memory_format=torch.channels_last))
            loss = torch.nn.functional.cross_entropy(scores.float(), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        schedule.step()
    module.eval()
    return torch.nn.Sequential(_Normalise(mean, std), module)


class _Normalise(torch.nn.Module):
    def __init__(self, mean: torch.Tensor, std: torch.Tensor) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the partition's own normalisation."""
        return (x - self.mean) / self.std


def _random_crop(padded: torch.Tensor, side: int, *, flip: bool) -> torch.Tensor:
    count = len(padded)
    offset = torch.randint(0, 9, (2, count, 1), device=padded.device)
    place = torch.arange(side, device=padded.device)
    y, x = offset[0] + place, offset[1] + place
    if flip:
        x = torch.where(torch.rand(count, 1, device=padded.device) < 0.5, x.flip(1), x)
    image = torch.arange(count, device=padded.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[image, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


def eager_rate(parts: list[Part], shape: tuple[int, ...], precision: str) -> float:
    """Return the sample-steps per second of the ordinary loop, one member after the other."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    ordinary_loop(*parts[0], shape, 10, precision)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for X, y in parts:
        ordinary_loop(X, y, shape, 60, precision)
    torch.cuda.synchronize()
    return 60 * sum(len(y) for _, y in parts) / (time.perf_counter() - start)

"""Everything that can change a bit of a feature map learned without labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from poisonproof.members.member import Spec
from poisonproof.networks.specification import NetworkSpec


@dataclass(frozen=True)
class PretrainSpec(Spec):
    """The training of a learned map: with the samples it fixes every bit.

    Attributes
    ----------
    method : {"rotnet", "simclr"}
        The task: find which way up an image is, or which two views show the same image.
    input_shape : tuple (C, H, W)
        Shape of an image, channels first.
    epochs, batch_size : int
        Length of training, and images per step. A last batch that is not full is left out.
    learning_rate, momentum, nesterov, weight_decay
        Stochastic gradient descent.
    schedule : {"step", "cosine", "constant"}
        ``"step"`` multiplies the rate by `gamma` from each epoch of `milestones` on.
        `warmup_epochs` come first.
    mean, std : tuple of float
        Per channel, for pixels between 0 and 1.
    crop : int
        RotNet: pixels of black border before a random crop to the old size.
    temperature, loss_scale : float
        SimCLR: temperature of the softmax, and a factor on the loss.
    smallest_view : float
        SimCLR: least share of the image that a view shows.
    flip : bool
        SimCLR: mirror views left-right with probability one half.
    jitter : tuple (brightness, contrast, saturation, hue)
        SimCLR: largest changes of colour, made with probability `jitter_share`.
    gray_share : float
        SimCLR: probability of a view without colour.
    width, head : int
        SimCLR: channels of ResNet's first stage, and length of the vectors that are compared.
    dtype : {"float32", "bfloat16"}
        Of products; weights and batch statistics are float32.
    engine : {"eager", "compiled"}
        Whether the step is compiled first.
    map_rows : int
        Images per launch when the finished map is applied.
    seed, threads : int
        Seed of all draws; threads inside one CPU operation.

    Examples
    --------
    >>> spec = PretrainSpec("rotnet", (1, 28, 28), mean=(0.13,), std=(0.31,))
    >>> PretrainSpec.from_json(spec.to_json()) == spec
    True
    """

    kind: ClassVar[str] = "pretraining"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "method": ("rotnet", "simclr"),
        "schedule": ("step", "cosine", "constant"),
        "dtype": ("float32", "bfloat16"),
        "device": ("cpu", "cuda"),
        "engine": ("eager", "compiled"),
    }
    counts: ClassVar[tuple[str, ...]] = (
        "epochs", "batch_size", "threads", "width", "head", "map_rows"
    )  # fmt: skip

    method: str
    input_shape: tuple[int, int, int]
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    schedule: str = "step"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.2
    warmup_epochs: int = 0
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    crop: int = 4
    temperature: float = 0.5
    loss_scale: float = 1.0
    smallest_view: float = 0.2
    flip: bool = False
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    jitter_share: float = 0.8
    gray_share: float = 0.2
    width: int = 64
    head: int = 128
    dtype: str = "float32"
    device: str = "cpu"
    engine: str = "eager"
    map_rows: int = 1024
    threads: int = 1
    seed: int = 0
    version: int = 1

    def problems(self) -> list[str]:
        """Return what is wrong with the values, one sentence each."""
        problems = super().problems()
        if len(self.input_shape) != 3 or min(self.input_shape) < 1:
            problems.append(f"input_shape must be (C, H, W), got {self.input_shape!r}.")
        elif not len(self.mean) == len(self.std) == self.input_shape[0]:
            problems.append(
                f"mean and std need one number per channel ({self.input_shape[0]}), got"
                f" {self.mean!r} and {self.std!r}."
            )
        if not 0 < self.learning_rate < math.inf or not 0 < self.temperature < math.inf:
            problems.append("learning_rate and temperature must be positive.")
        if not 0 < self.smallest_view <= 1:
            problems.append(f"smallest_view must be in (0, 1], got {self.smallest_view!r}.")
        if self.method == "simclr" and self.batch_size < 2:
            problems.append("simclr compares images, so batch_size must be at least 2.")
        return problems

    def rate(self, epoch: int, step: int, steps: int) -> float:
        """Return the learning rate of `step` (of `steps`) in `epoch`, both counted from 0.

        The cosine is one over all epochs; warming up, the rate climbs in a straight line to where
        the cosine is when it ends.
        """
        warm = self.warmup_epochs
        if epoch < warm:
            return self._scheduled(warm) * (epoch * steps + step + 1) / (warm * steps)
        return self._scheduled(epoch)

    def _scheduled(self, epoch: int) -> float:
        if self.schedule == "step":
            return self.learning_rate * self.gamma ** sum(epoch >= m for m in self.milestones)
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * epoch / self.epochs))
        return self.learning_rate

    def machine(self) -> NetworkSpec:
        """Return what decides threads, kernels and fingerprint, as the deep engine takes it."""
        return NetworkSpec(
            "linear", (1,), 2, execution="single", device=self.device, threads=self.threads
        )


# Published training without labels, as parameters of `PretrainSpec`.

PRETRAINING: dict[str, dict[str, Any]] = {
    # The rest are the defaults.
    "rotnet": {
        "method": "rotnet",
        "input_shape": (1, 28, 28),
        "milestones": (60, 120, 160),
        "mean": (0.1307,),
        "std": (0.3081,),
    },
    "simclr": {
        "method": "simclr",
        "epochs": 1000,
        "learning_rate": 0.5,
        "nesterov": False,
        "weight_decay": 1e-4,
        "schedule": "cosine",
        # The published loss is multiplied by temperature / 0.07, as if the rate were larger.
        "loss_scale": 0.5 / 0.07,
        "input_shape": (3, 32, 32),
        "batch_size": 512,
        "warmup_epochs": 10,
        "mean": (0.4914, 0.4822, 0.4465),
        "std": (0.2023, 0.1994, 0.2010),
        "flip": True,
    },
}
"""The published settings by method: for MNIST (rotnet) and CIFAR-10 (simclr)."""

"""Modules as users write them, each with one habit that could carry something between members."""

from __future__ import annotations

import random
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Plain(nn.Module):
    """The well-behaved one that the others vary."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        return self.last(functional.relu(self.first(x)))


class DrawsWithPython(Plain):
    """Skips its hidden layer at random, as stochastic depth does."""

    def forward(self, x):
        hidden = functional.relu(self.first(x))
        return self.last(hidden if random.random() < 0.7 or not self.training else 0.1 * hidden)


class DrawsWithNumpy(Plain):
    """Adds noise to its inputs."""

    def forward(self, x):
        noise = np.random.normal(0, 0.1, tuple(x.shape)).astype(np.float32)  # noqa: NPY002
        return super().forward(x + torch.from_numpy(noise) if self.training else x)


class BeginsWithNumpy(Plain):
    """Draws its first weights from NumPy's stream."""

    def __init__(self):
        super().__init__()
        drawn = np.random.normal(0, 0.1, (32, 64)).astype(np.float32)  # noqa: NPY002
        self.first.weight.data.copy_(torch.from_numpy(drawn))


class DropsAlways(Plain):
    """Forgets to say `training=self.training`."""

    def forward(self, x):
        return super().forward(functional.dropout(x, 0.5))


class KeepsHalves(Plain):
    """Asks torch to keep its weights in half precision, for as long as an autocast is open."""

    def forward(self, x):
        with torch.autocast(x.device.type, torch.float16, cache_enabled=True):
            return super().forward(x).float()


class WorksInPlace(Plain):
    """Overwrites the rows it is given."""

    def forward(self, x):
        return super().forward(x.sub_(0.5).mul_(1.5))


class RemembersWhatItIsAsked(Plain):
    """Centres rows with a running mean that goes on when it is asked."""

    def __init__(self):
        super().__init__()
        self.seen = torch.zeros(64)

    def forward(self, x):
        self.seen = 0.9 * self.seen + 0.1 * x.detach().mean(0)
        return super().forward(x - self.seen)


class CountsSteps(Plain):
    """Warms up by a counter."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        self.steps += self.training
        return super().forward(x) * min(1.0, self.steps / 100)


class HiddenMean(Plain):
    """Keeps a running mean that its state_dict does not hold."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(64), persistent=False)

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return super().forward(x - self.mean)


class RandomAttribute(Plain):
    """Projects by a random matrix that is no buffer."""

    def __init__(self):
        super().__init__()
        self.matrix = torch.randn(64, 64) / 8

    def forward(self, x):
        return super().forward(x @ self.matrix)


class UnregisteredLayers(Plain):
    """Keeps layers in a list, where nothing trains or stores them."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(64, 64)]

    def forward(self, x):
        return super().forward(self.layers[0](x))


class SharedHead(Plain):
    """A default argument is made once."""

    def __init__(self, last=nn.Linear(32, 10)):  # noqa: B008
        super().__init__()
        self.last = last


_ONE = Plain()


def one_for_all():
    return _ONE


class PositionTable(Plain):
    """A table that is not stored, but the same whenever it is built."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.linspace(0, 1, 64), persistent=False)

    def forward(self, x):
        return super().forward(x + self.table)


class Recurrent(nn.Module):
    """Lists its own parameters in an attribute, as recurrent layers do."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 10)

    def forward(self, x):
        return self.last(self.layer(x.view(-1, 8, 8))[0][:, -1])


class TurnsOneDNNOff(Plain):
    """Does what torch does where oneDNN fails on some rows: turns it off for the process."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)

    def forward(self, x):
        if x.shape[0] == 3:
            torch.backends.mkldnn.enabled = False
        images = functional.relu(self.conv(x.view(-1, 1, 8, 8))).mean(1)
        return super().forward(functional.pad(images, (1, 1, 1, 1)).flatten(1))


class Warns(Plain):
    """Warns in every step, as deprecated functions do."""

    def forward(self, x):
        warnings.warn("this will change", FutureWarning, stacklevel=1)
        return super().forward(x)


class TakesAllMemory(Plain):
    """Asks for more memory than there is when it sees ones."""

    def forward(self, x):
        if bool((x == 1).all()):
            torch.empty(1 << 50)
        return super().forward(x)


def takes_images():
    """Wants images where rows are flat."""
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10))


def three_scores():
    """Was written for another number of classes."""
    return nn.Linear(64, 3)


class TwoAnswers(Plain):
    """Returns its features, too."""

    def forward(self, x):
        return super().forward(x), x

"""The two stages that refine clusters: network and loss, for the common training loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from poisonproof.learners.torch.streams import below
from poisonproof.pretraining.flat import AdamWeights
from poisonproof.pretraining.refinement.heads import PICK
from poisonproof.pretraining.refinement.losses import agreement, self_labels
from poisonproof.pretraining.refinement.specification import RefineSpec
from poisonproof.pretraining.refinement.strong import STRONG, strong_views
from poisonproof.pretraining.simclr import SimCLR, channels_last
from poisonproof.pretraining.specification import PretrainSpec

__all__ = ["Clusters", "NeighbourAgreement", "SelfLabels"]


class Clusters(SimCLR):
    """The network that learned the features, with a linear head that names clusters.

    Parameters
    ----------
    spec : PretrainSpec
        The law of the loop, with the network's width.
    law : RefineSpec
        The law of the clusters.
    """

    def __init__(self, spec: PretrainSpec, law: RefineSpec) -> None:
        super().__init__(spec)
        self.law = law
        self.head = nn.Sequential(nn.Linear(8 * spec.width, law.n_clusters))
        self.module = nn.ModuleDict({"encoder": self.encoder, "head": self.head})

    def features(self, x: Tensor) -> Tensor:
        """Return features and logits side by side, shape (n, 8 * width + K), in float32."""
        self.module.eval()
        vectors = self._vectors(x)
        return torch.cat([vectors, self.head(vectors)], dim=1)

    def logits(self, x: Tensor) -> Tensor:
        """Return logits of normalised images, by the statistics of the batch."""
        self.module.train()
        out: Tensor = self.head(self._vectors(x))
        return out

    def _vectors(self, x: Tensor) -> Tensor:
        with self._products():
            out: Tensor = self.encoder(channels_last(x))
        return out.float()

    def strong(self, images: Tensor, draw: dict[int, Tensor], number: int) -> Tensor:
        """Return strong views, normalised."""
        words = tuple(draw[purpose] for purpose in STRONG[number])
        return self.pixels.normalised(255.0 * strong_views(images, self.spec.flip, words))


class NeighbourAgreement(Clusters):
    """An image and one of its neighbours, both in strong views, shall share a cluster.

    Parameters
    ----------
    spec, law
        See `Clusters`.
    neighbours : int64 tensor of shape (n, N)
        Rows of the nearest images of every image, on the device.
    """

    purposes: tuple[int, ...] = (PICK, *STRONG[0], *STRONG[1])
    metric = "pairs alike"
    flatten = AdamWeights

    def __init__(self, spec: PretrainSpec, law: RefineSpec, neighbours: Tensor) -> None:
        super().__init__(spec, law)
        self.neighbours = neighbours

    def batch(self, images: Tensor, rows: Tensor, draw: dict[int, Tensor]) -> Tensor:
        """Return the images of these rows, then a neighbour of each."""
        chosen = below(draw[PICK][:, 0], self.neighbours.shape[1])
        others = torch.gather(self.neighbours[rows], 1, chosen[:, None])[:, 0]
        return images[torch.cat([rows, others])]

    def loss(self, images: Tensor, draw: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Return `agreement` of images and neighbours, and the share of pairs alike."""
        first, second = images.chunk(2)
        views = torch.cat([self.strong(first, draw, 0), self.strong(second, draw, 1)])
        mine, theirs = self.logits(views).chunk(2)
        return agreement(mine, theirs, self.law.entropy_weight)


class SelfLabels(Clusters):
    """An image whose cluster is sure teaches it to a strong view of itself.

    What an image teaches is the cluster the finished network would give it: running statistics
    are those of strong views before and after, and the teacher uses them, too.
    """

    purposes: tuple[int, ...] = STRONG[0]
    metric = "images sure"
    flatten = AdamWeights

    def loss(self, images: Tensor, draw: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Return `self_labels` of the batch, and the share of sure images."""
        with torch.no_grad():
            whole = self.features(self.pixels.normalised(images.float()))
        strong = self.logits(self.strong(images, draw, 0))
        weak = whole[:, -self.law.n_clusters :]
        return self_labels(weak, strong, self.law.confidence, self.law.label_entropy_weight)

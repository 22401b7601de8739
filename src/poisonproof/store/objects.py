"""scikit-learn objects as bytes, through skops and a fixed list of trusted types: never pickle."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from functools import cache
from typing import Any

from poisonproof import features
from poisonproof.exceptions import StoreError
from poisonproof.learners import closed_form
from poisonproof.store.skops_import import skops_io
from poisonproof.store.trees import check_trees
from poisonproof.strict import Buffer, check_zip

__all__ = ["decode_object", "encode_object", "types_of"]

TRUSTED = (
    "sklearn.tree._tree.Tree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.metrics._dist_metrics.ManhattanDistance64",
    "sklearn.metrics._dist_metrics.ChebyshevDistance64",
    "poisonproof.engines.torch.learner.TorchLearner",
    "poisonproof.learners.averaging.SeedAverage",
    "poisonproof.learners.closed_form.kernel_members.KernelMembers",
    "poisonproof.learners.closed_form.linear_members.LinearMembers",
    "poisonproof.learners.closed_form.neighbor_members.NeighborMembers",
    "poisonproof.learners.closed_form.scaled_members.ScaledKernelMembers",
    "poisonproof.learners.clusters.kmeans.KMeansClusters",
    "poisonproof.learners.clusters.mixture.MixtureClusters",
    "poisonproof.learners.clusters.mixture.Parabolas",
    "poisonproof.learners.clusters.spectral.SpectralClusters",
    "poisonproof.learners.clusters.whole.Grid",
    "poisonproof.learners.committee.Committee",
    "poisonproof.learners.flat_weights.FlatWeights",
    "poisonproof.learners.neighborhood_weights.NeighborhoodWeights",
    "poisonproof.learners.walk_weights.WalkWeights",
    "poisonproof.pretraining.frozen.FrozenNetwork",
    "poisonproof.pretraining.head_learner.HeadLearner",
    "poisonproof.pretraining.specification.PretrainSpec",
    "poisonproof.pretraining.tail_learner.TailLearner",
)
"""Types that skops does not trust and that are checked here after loading (see `check_trees`)."""


@cache
def _known(trusted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the types that may be built: the list above, this library's own, and `trusted`.

    The state of this library's learners and feature maps is parameters; building one from a file
    runs nothing but their own code.
    """
    public = [
        getattr(module, name) for module in (closed_form, features) for name in module.__all__
    ]
    own = {f"{kind.__module__}.{kind.__qualname__}" for kind in public if isinstance(kind, type)}
    return tuple(sorted({*TRUSTED, *own, *trusted}))


def encode_object(value: Any) -> bytes:
    """Encode a scikit-learn object, fitted or not."""
    data: bytes = skops_io().dumps(value)
    return data


def types_of(value: Any) -> list[str]:
    """Return the types outside scikit-learn in an object that this process has built itself."""
    return sorted(skops_io().get_untrusted_types(data=encode_object(value)))


def decode_object(data: Buffer, name: str, trusted: Iterable[str] = ()) -> Any:
    """Decode what `encode_object` wrote; types outside scikit-learn and `trusted` are refused."""
    skops = skops_io()
    from skops.io.exceptions import UntrustedTypesFoundException

    known = _known(tuple(trusted))
    content = bytes(data)
    _check_archive(content, name)
    try:
        value = skops.loads(content, trusted=list(known))
    except UntrustedTypesFoundException as error:
        strange = sorted(set(skops.get_untrusted_types(data=content)) - set(known))
        raise StoreError(
            f"{name} holds types that poisonproof does not load by itself: {strange}. If you "
            f"trust where the model comes from, name them: load(path, trusted={strange})."
        ) from error
    except Exception as error:
        raise _undecodable(name, error) from error
    check_trees(value, name)
    return value


def _check_archive(content: bytes, name: str) -> None:
    """Refuse an archive that would unpack to more than it is."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_zip(archive, stored=True)
    except Exception as error:
        raise _undecodable(name, error) from error


def _undecodable(name: str, error: Exception) -> StoreError:
    if isinstance(error, ModuleNotFoundError):
        return StoreError(
            f"{name} needs the module {error.name!r}, whose code no model carries: it cannot be "
            "imported here. Install it, or put its file where Python looks (PYTHONPATH)."
        )
    return StoreError(f"{name} cannot be decoded: {type(error).__name__}: {str(error)[:200]}.")

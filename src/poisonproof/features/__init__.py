"""Frozen maps of a sample: transformers that learn nothing."""

from __future__ import annotations

from poisonproof.features.base import (
    FixedScale,
    FrozenTransformer,
    learns_nothing,
)
from poisonproof.features.exact import ExactRows, exact_product, exact_rows
from poisonproof.features.images import (
    Deskew,
    ImageCopies,
    OrientationHistogram,
    PatchResponses,
    image_copies,
)
from poisonproof.features.network_files import save_network
from poisonproof.features.networks import NetworkFeatures
from poisonproof.features.scattering import Scattering
from poisonproof.features.texts import HashedNGrams, SentenceEmbedding, folder_digest

__all__ = [
    "Deskew",
    "ExactRows",
    "FixedScale",
    "FrozenTransformer",
    "HashedNGrams",
    "ImageCopies",
    "NetworkFeatures",
    "OrientationHistogram",
    "PatchResponses",
    "Scattering",
    "SentenceEmbedding",
    "exact_product",
    "exact_rows",
    "folder_digest",
    "image_copies",
    "learns_nothing",
    "save_network",
]

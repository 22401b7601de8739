"""Frozen maps of a sample: transformers that learn nothing."""

from poisonproof.features.base import FrozenTransformer, learns_nothing, require_frozen
from poisonproof.features.clusters import ClusterIndex
from poisonproof.features.copies import ImageCopies, image_copies
from poisonproof.features.deskew import Deskew
from poisonproof.features.exact import ExactRows, exact_product, exact_rows
from poisonproof.features.fourier import RandomFourier
from poisonproof.features.network_files import save_network
from poisonproof.features.networks import NetworkFeatures
from poisonproof.features.ngrams import HashedNGrams
from poisonproof.features.orientation import OrientationHistogram
from poisonproof.features.patches import PatchResponses
from poisonproof.features.pipeline import FrozenPipeline, make_frozen_pipeline
from poisonproof.features.scale import FixedScale
from poisonproof.features.scattering import Scattering
from poisonproof.features.sentences import SentenceEmbedding, folder_digest

__all__ = [
    "ClusterIndex",
    "Deskew",
    "ExactRows",
    "FixedScale",
    "FrozenPipeline",
    "FrozenTransformer",
    "HashedNGrams",
    "ImageCopies",
    "NetworkFeatures",
    "OrientationHistogram",
    "PatchResponses",
    "RandomFourier",
    "Scattering",
    "SentenceEmbedding",
    "exact_product",
    "exact_rows",
    "folder_digest",
    "image_copies",
    "learns_nothing",
    "make_frozen_pipeline",
    "require_frozen",
    "save_network",
]

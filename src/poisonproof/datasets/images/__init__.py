"""Image datasets: published files in, memory-mapped arrays out."""

from __future__ import annotations

from poisonproof.datasets.images.catalog import CATALOG
from poisonproof.datasets.images.dataset import ImageDataset
from poisonproof.datasets.images.folders import FolderOptions
from poisonproof.datasets.images.library import (
    ImportedDataset,
    download_images,
    import_image_folder,
    import_images,
    list_images,
    load_images,
)
from poisonproof.datasets.images.location import cache_folder
from poisonproof.datasets.images.ragged import RaggedImages

__all__ = [
    "CATALOG",
    "FolderOptions",
    "ImageDataset",
    "ImportedDataset",
    "RaggedImages",
    "cache_folder",
    "download_images",
    "import_image_folder",
    "import_images",
    "list_images",
    "load_images",
]

"""Image datasets: published files in, memory-mapped arrays out."""

from __future__ import annotations

from poisonproof_research.datasets.entries import RaggedImages
from poisonproof_research.datasets.library import (
    CATALOG,
    FolderOptions,
    ImageDataset,
    ImportedDataset,
    download_images,
    import_image_folder,
    import_images,
    list_images,
    load_images,
)

__all__ = [
    "CATALOG",
    "FolderOptions",
    "ImageDataset",
    "ImportedDataset",
    "RaggedImages",
    "download_images",
    "import_image_folder",
    "import_images",
    "list_images",
    "load_images",
]

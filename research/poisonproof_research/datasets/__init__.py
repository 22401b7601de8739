"""Published image datasets: files in, memory-mapped arrays out."""

from __future__ import annotations

from poisonproof_research.datasets.entries import RaggedImages
from poisonproof_research.datasets.library import (
    CATALOG,
    ImageDataset,
    download_images,
    import_images,
    list_images,
    load_images,
)

__all__ = [
    "CATALOG",
    "ImageDataset",
    "RaggedImages",
    "download_images",
    "import_images",
    "list_images",
    "load_images",
]

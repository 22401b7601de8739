"""Importing, downloading, listing and loading image datasets by name."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poisonproof.datasets.images.addresses import ADDRESSES
from poisonproof.datasets.images.catalog import CATALOG
from poisonproof.datasets.images.dataset import ImageDataset
from poisonproof.datasets.images.download import download_files
from poisonproof.datasets.images.entry_reading import open_array, read_manifest
from poisonproof.datasets.images.entry_writing import MANIFEST, only_writer, write_entry
from poisonproof.datasets.images.folders import FolderOptions, read_folder
from poisonproof.datasets.images.location import cache_folder, checked_name
from poisonproof.datasets.images.ragged import RaggedImages
from poisonproof.datasets.images.trees import open_tree
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import Progress, Silent

__all__ = [
    "ImportedDataset",
    "download_images",
    "import_image_folder",
    "import_images",
    "list_images",
    "load_images",
]

AnyPath = str | os.PathLike[str]
EQUALIZED = "-equalized"
DOWNLOADS = "downloads"


def import_images(
    name: str,
    source: AnyPath,
    *,
    cache: AnyPath | None = None,
    published: bool = True,
    progress: Progress | None = None,
) -> Path:
    """Read a published dataset from a folder (or archive, or file) into the cache.

    Parameters
    ----------
    name : {"mnist", "fashion-mnist", "cifar10", "gtsrb"}
        Which dataset.
    source : path
        The folder that holds its files in any of their published forms.
    cache : path, optional
        Folder of imported datasets; see `cache_folder`.
    published : bool
        Whether the files must be the published ones, by their digests. False takes others of the
        same form, and the dataset says so.
    progress : Progress, optional
        Listener.

    Returns
    -------
    Path
        The folder of the imported dataset. It appears complete or not at all, and replaces an
        earlier import of that name.
    """
    if name not in CATALOG:
        raise InvalidInputError(f"{name!r} is not a known dataset: {', '.join(CATALOG)}.")
    known = CATALOG[name]
    folder = cache_folder(cache) / name
    with open_tree(Path(source), known.archives) as tree, write_entry(folder) as entry:
        known.read(tree, entry, progress or Silent())
        if published:
            known.check(entry.arrays)
        entry.details |= {
            "name": name,
            "class_names": list(known.class_names),
            "published": published,
        }
    return folder


def import_image_folder(
    name: str,
    source: AnyPath,
    options: FolderOptions | None = None,
    *,
    cache: AnyPath | None = None,
    progress: Progress | None = None,
) -> Path:
    """Read a folder of images, one folder per class, into the cache under a name of your choice.

    Parameters
    ----------
    name : str
        Any name that no published dataset has.
    source : path
        Holds ``train/CLASS/...`` and ``test/CLASS/...``, or ``CLASS/...``.
    options : FolderOptions, optional
        Declared classes, size, colour.
    cache, progress
        As in `import_images`.

    Returns
    -------
    Path
        The folder of the imported dataset.
    """
    if checked_name(name) in {*CATALOG, DOWNLOADS, "list"} or name.endswith(EQUALIZED):
        raise InvalidInputError(f"{name!r} is taken; choose another name for a folder of images.")
    folder = cache_folder(cache) / name
    with open_tree(Path(source)) as tree, write_entry(folder) as entry:
        read_folder(tree, entry, options or FolderOptions(), progress or Silent())
        entry.details |= {"name": name, "published": False}
    return folder


def download_images(
    name: str,
    *,
    cache: AnyPath | None = None,
    progress: Progress | None = None,
    byte_progress: Progress | None = None,
) -> Path:
    """Fetch a published dataset from its official address and import it.

    What was fetched is kept until the import has succeeded, so that a second call goes on.

    Parameters
    ----------
    name, cache, progress
        As in `import_images`.
    byte_progress : Progress, optional
        Listener that is told the bytes of each file.

    Returns
    -------
    Path
        The folder of the imported dataset.
    """
    if name not in ADDRESSES:
        raise InvalidInputError(f"{name!r} has no address; known are {', '.join(ADDRESSES)}.")
    fetched = cache_folder(cache) / DOWNLOADS / name
    with only_writer(fetched):
        download_files(ADDRESSES[name], fetched, byte_progress or Silent())
        folder = import_images(name, fetched, cache=cache, progress=progress)
        shutil.rmtree(fetched, ignore_errors=True)
    return folder


def load_images(name: str, cache: AnyPath | None = None, *, check: bool = True) -> ImageDataset:
    """Open an imported dataset, memory-mapped and read-only.

    Parameters
    ----------
    name : str
        Name of the dataset. ``"gtsrb-equalized"`` is GTSRB with histograms equalised before the
        resize, and the same originals.
    cache : path, optional
        Folder of imported datasets; see `cache_folder`.
    check : bool
        Whether to read every array once and compare its digest (GTSRB takes about a second).

    Returns
    -------
    ImageDataset
        The arrays are opened when this returns; their pages are read as they are used.
    """
    stored = name.removesuffix(EQUALIZED)
    suffix = "" if stored == name else "_equalized"
    folder = cache_folder(cache) / checked_name(stored)
    if not (folder / MANIFEST).is_file():
        raise InvalidInputError(
            f"{stored!r} was not imported into {folder.parent}. Import it with: poisonproof data "
            f"{stored} --from DIR"
        )
    manifest = read_manifest(folder)
    while True:
        try:
            return _opened(name, suffix, _Entry(folder, manifest, check))
        except InvalidInputError:
            before, manifest = manifest, read_manifest(folder)
            if manifest == before:  # else an import replaced the arrays meanwhile
                raise


class _Entry:
    """The arrays of one dataset, as they are opened."""

    def __init__(self, folder: Path, manifest: dict[str, Any], check: bool) -> None:
        self._folder = folder
        self.manifest = manifest
        self._check = check
        self._opened: dict[str, str] = {}

    def array(self, name: str) -> Any:
        array = open_array(self._folder, self.manifest, name, self._check)
        self._opened[name] = self.manifest["arrays"][name]["sha256"]
        return array

    def originals(self, split: str) -> RaggedImages | None:
        names = [f"originals_{split}_{part}" for part in ("values", "offsets", "shapes")]
        if names[0] not in self.manifest["arrays"]:
            return None
        return RaggedImages(*map(self.array, names))

    def digest(self) -> str:
        listed = "".join(f"{name} {digest}\n" for name, digest in sorted(self._opened.items()))
        return hashlib.sha256(listed.encode()).hexdigest()


def _opened(name: str, suffix: str, entry: _Entry) -> ImageDataset:
    manifest = entry.manifest
    return ImageDataset(
        name=name,
        x_train=entry.array(f"x_train{suffix}"),
        y_train=entry.array("y_train"),
        x_test=entry.array(f"x_test{suffix}"),
        y_test=entry.array("y_test"),
        class_names=tuple(manifest["class_names"]),
        originals_train=entry.originals("train"),
        originals_test=entry.originals("test"),
        published=manifest["published"] is True,
        digest=entry.digest(),
    )


@dataclass(frozen=True)
class ImportedDataset:
    """One line of `list_images`."""

    name: str
    folder: Path
    n_train: int
    n_test: int
    shape: tuple[int, ...]
    n_classes: int
    published: bool


def list_images(cache: AnyPath | None = None) -> list[ImportedDataset]:
    """Return what was imported, by name; entries that cannot be read are left out."""
    found = []
    for path in sorted(cache_folder(cache).glob(f"*/{MANIFEST}")):
        try:
            manifest = read_manifest(path.parent)
            shapes = {key: manifest["arrays"][key]["shape"] for key in ("x_train", "x_test")}
            found.append(
                ImportedDataset(
                    name=path.parent.name,
                    folder=path.parent,
                    n_train=shapes["x_train"][0],
                    n_test=shapes["x_test"][0],
                    shape=tuple(shapes["x_train"][1:]),
                    n_classes=len(manifest["class_names"]),
                    published=manifest["published"] is True,
                )
            )
        except (InvalidInputError, KeyError, TypeError, IndexError):
            continue
    return found

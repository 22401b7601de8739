"""``poisonproof data``: image datasets, imported once into memory-mapped files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import progress as bars
from rich.table import Table

from poisonproof.cli._options import parse_list
from poisonproof.cli._screen import console, counted, say, verbosity
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import Progress, make_progress

if TYPE_CHECKING:
    from poisonproof_research.datasets.library import FolderOptions

POSITION = 70
EPILOG = (
    "Examples: poisonproof data mnist --from ~/Downloads/mnist  |  poisonproof data list  |  "
    "poisonproof data signs --folder --from photos --classes stop,go --size 32x32"
)


def data(
    name: Annotated[
        str,
        typer.Argument(
            help="mnist, fashion-mnist, cifar10 or gtsrb; a name of your own with --folder; or "
            "'list' to see what is there."
        ),
    ],
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Folder (or archive) with the files."),
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch the files from the official address.")
    ] = False,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where imported datasets lie. Default: POISONPROOF_CACHE, or the user's cache.",
        ),
    ] = None,
    unpublished: Annotated[
        bool,
        typer.Option("--unpublished", help="Take files that are not the published ones."),
    ] = False,
    folder: Annotated[
        bool, typer.Option("--folder", help="DIR holds images in train/CLASS and test/CLASS.")
    ] = False,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="With --folder: the declared classes.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="HEIGHTxWIDTH", help="With --folder: resize all images, bilinear."),
    ] = None,
    gray: Annotated[bool, typer.Option("--gray", help="With --folder: one gray channel.")] = False,
) -> None:
    """Import an image dataset, checked against the published digests.

    The files stay where they are; the cache gets a copy that opens at once, memory-mapped. It is
    complete or absent, and replaces an earlier import.
    """
    from poisonproof_research import datasets as images

    if name == "list":
        _print_list(cache)
        return
    if not folder and (classes is not None or size is not None or gray):
        raise InvalidInputError("--classes, --size and --gray are for --folder.")
    if folder and (download or unpublished):
        raise InvalidInputError("--folder takes a folder of your own: use it with --from alone.")
    if name not in images.CATALOG and not folder:
        raise InvalidInputError(
            f"{name!r} is not a known dataset: {', '.join(images.CATALOG)}. A folder of images "
            "is imported with --folder."
        )
    if (source is None) != download or (download and unpublished):
        raise InvalidInputError(
            f"Say where {name} is: either --from DIR (with --unpublished to skip its digests), or "
            "--download."
        )
    if folder and source is not None:
        options = _folder_options(classes, size, gray)
        images.import_image_folder(name, source, options, cache=cache, progress=_bar())
    elif source is not None:
        images.import_images(name, source, cache=cache, published=not unpublished, progress=_bar())
    else:
        in_bytes = _DownloadBar() if verbosity() else None
        images.download_images(name, cache=cache, progress=_bar(), byte_progress=in_bytes)
    _print_one(name, cache)


def _folder_options(classes: str | None, size: str | None, gray: bool) -> FolderOptions:
    from poisonproof_research.datasets.library import FolderOptions

    sides = None
    if size is not None:
        parts = size.lower().split("x")
        if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):
            raise InvalidInputError(f"--size is HEIGHTxWIDTH, for example 48x48. Got {size!r}.")
        sides = (int(parts[0]), int(parts[1]))
    return FolderOptions(parse_list(classes, "--classes") or None, sides, gray)


def _print_one(name: str, cache: Path | None) -> None:
    from poisonproof_research.datasets.library import load_images

    loaded = load_images(name, cache)
    side = " x ".join(map(str, loaded.x_train.shape[1:]))
    say(
        f"{name}: {len(loaded.x_train):,} training and {counted(len(loaded.x_test), 'test image')} "
        f"of {side}, {counted(len(loaded.class_names), 'class', 'classes')}.",
        "The digests are the published ones."
        if loaded.published
        else "Not checked against published digests; its own are recorded.",
        f"Digest {loaded.digest}",
    )


def _print_list(cache: Path | None) -> None:
    from poisonproof_research import datasets as images

    found = {entry.name: entry for entry in images.list_images(cache)}
    table = Table(title=f"Datasets in {images.cache_folder(cache)}", title_justify="left")
    for heading in ("Name", "Training", "Test", "Image", "Classes", "Files"):
        table.add_column(heading, justify="left" if heading in {"Name", "Files"} else "right")
    for name in [*images.CATALOG, *(name for name in found if name not in images.CATALOG)]:
        entry = found.get(name)
        if entry is None:
            table.add_row(name, "", "", "", "", "not imported")
            continue
        table.add_row(
            name,
            f"{entry.n_train:,}",
            f"{entry.n_test:,}",
            " x ".join(map(str, entry.shape)),
            str(entry.n_classes),
            "published" if entry.published else "your own",
        )
    console().print(table)


def _bar() -> Progress:
    return make_progress(verbosity())


class _DownloadBar:
    """A bar in bytes."""

    def __init__(self) -> None:
        self._screen = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.DownloadColumn(),
            bars.TransferSpeedColumn(),
            bars.TimeRemainingColumn(),
            transient=True,
        )

    def start(self, total: int, description: str) -> None:
        """Draw an empty bar; a total of 0 is an unknown one."""
        self._screen.start()
        self._task = self._screen.add_task(description, total=total or None)

    def advance(self, amount: int = 1) -> None:
        """Move the bar."""
        self._screen.advance(self._task, amount)

    def stop(self) -> None:
        """Take the bar away."""
        self._screen.stop()
        self._screen.remove_task(self._task)

"""Command ``data``: published datasets, imported once into memory-mapped files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from poisonproof.cli._screen import check_folder, console, counted, say, verbosity
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import cache_folder
from poisonproof.progress import make_progress


def data(
    name: Annotated[
        str,
        typer.Argument(
            help="mnist, fashion-mnist, cifar10 or gtsrb; or 'list' to see what is there."
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
    pack: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write what rows of the tables need, for another machine."
        ),
    ] = None,
) -> None:
    """Import a published dataset, checked against the published digests.

    The files stay where they are; the cache gets a copy that opens at once, memory-mapped. It is
    complete or absent, and replaces an earlier import. With --pack an imported dataset is written
    in chunks for a machine that has neither the files nor the cache.
    """
    from poisonproof_research import datasets
    from poisonproof_research.reproduction.row_data import data_from_cache, write_pack

    if name == "list":
        _print_list(cache)
        return
    if pack is not None:
        check_folder(pack)
        for path in write_pack(data_from_cache(name, cache), pack):
            say(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
        return
    if name not in datasets.CATALOG:
        raise InvalidInputError(
            f"{name!r} is not a published dataset: {', '.join(datasets.CATALOG)}."
        )
    if (source is None) != download or (download and unpublished):
        raise InvalidInputError(
            f"Say where {name} is: either --from DIR (with --unpublished to skip its digests), or "
            "--download."
        )
    progress = make_progress(verbosity())
    if source is not None:
        datasets.import_images(
            name, source, cache=cache, published=not unpublished, progress=progress
        )
    else:
        datasets.download_images(name, cache=cache, progress=progress)
    _print_one(name, cache)


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
    from poisonproof_research.datasets import CATALOG, list_images

    found = {entry.name: entry for entry in list_images(cache)}
    table = Table(title=f"Datasets in {cache_folder(cache)}", title_justify="left")
    for heading in ("Name", "Training", "Test", "Image", "Classes", "Files"):
        table.add_column(heading, justify="left" if heading in {"Name", "Files"} else "right")
    for name in CATALOG:
        entry = found.get(name)
        if entry is None:
            table.add_row(name, "", "", "", "", "not imported")
            continue
        table.add_row(
            name,
            f"{len(entry.x_train):,}",
            f"{len(entry.x_test):,}",
            " x ".join(map(str, entry.x_train.shape[1:])),
            str(len(entry.class_names)),
            "published" if entry.published else "others",
        )
    console().print(table)

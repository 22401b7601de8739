"""``poisonproof features``: a map of images, learned from your images without their labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poisonproof.cli._app import SamplesOption, choose, parse_sides
from poisonproof.cli._screen import check_folder, note, say, verbosity
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress

if TYPE_CHECKING:
    from poisonproof.networks import PretrainSpec

EPILOG = (
    "Examples: poisonproof features train simclr --images photos --size 32x32 --device cuda "
    "--out simclr  |  poisonproof features train rotnet --images digits.npz --out rotnet  |  "
    "poisonproof features show --out simclr"
)


def features(
    action: Annotated[str, typer.Argument(help="train: learn a map. show: describe one.")],
    method: Annotated[
        str,
        typer.Argument(
            help="rotnet learns which way up an image is; simclr, which two views show the same "
            "image.",
            show_default=False,
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder of the map.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A folder of images, or an array in a .npz or .npy."),
    ] = None,
    size: Annotated[
        str, typer.Option(metavar="HEIGHTxWIDTH", help="Folder of images: resize all to this.")
    ] = "32x32",
    gray: Annotated[bool, typer.Option("--gray", help="Folder of images: read as gray.")] = False,
    x_key: SamplesOption = None,
    device: Annotated[str, typer.Option(help="cpu or cuda; never chosen automatically.")] = "cpu",
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the images.  [rotnet 200, simclr 1000]")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random draws.")] = 0,
) -> None:
    """Learn a map from images alone, for certificates against flipped labels.

    Labels cannot reach the map: training takes images and nothing else. Use the result in Python
    as SSDPAClassifier(..., features=LearnedFeatures(DIR)). A run that was stopped resumes from its
    last checkpoint when the command is repeated.
    """
    choose("ACTION", action, ("train", "show"))
    if out is None:
        raise InvalidInputError("Name the folder of the map: --out DIR.")
    if action == "show":
        _show(out)
        return
    check_folder(out)
    choose("METHOD", method, ("rotnet", "simclr"))
    choose("--device", device, ("cpu", "cuda"))
    if images is None:
        raise InvalidInputError("Name the images to learn from: --images PATH.")
    pixels = _read(images, size, gray, x_key or "X")

    from poisonproof.networks import train_features

    learned = train_features(
        pixels,
        _spec(method, pixels.shape[1:], device, epochs, seed),
        folder=out / "run",
        progress=make_progress(verbosity()),
        watch=lambda report, _: say(
            f"Epoch {report.epoch}: loss {report.loss:.4f}, {100 * report.share:.2f} % right, "
            f"{report.images_per_second:,.0f} images/s."
        ),
    )
    assert learned is not None  # only limits end a run early
    path = learned.save(out)
    say(f"{path}: {len(learned.history):,} epochs, digest {learned.digest()}.")


def _read(path: Path, size: str, gray: bool, x_key: str) -> Any:
    """Return the images as an array with channels first, or without channels."""
    from poisonproof.data.columns import ImageColumn
    from poisonproof.data.npz_files import load_array, load_arrays
    from poisonproof.data.schema import Schema, freeze_schema
    from poisonproof.data.sources import read_table

    if path.suffix.lower() == ".npy" and path.is_file():
        return load_array(path)
    if path.suffix.lower() == ".npz" and path.is_file():
        return load_arrays(path, [x_key])[x_key]
    height, width = parse_sides(size, "--size", "HEIGHTxWIDTH") or (32, 32)
    column = ImageColumn(name="image", height=height, width=width, gray=gray, encoder="pixels")
    schema = freeze_schema(Schema(kind="images", columns=(column,)))
    rows = read_table(path, schema, progress=make_progress(verbosity()))
    if rows.problems:
        first = rows.problems[0]
        note(f"{len(rows.problems):,} files left out; the first: {first.place}: {first.reason}.")
    return rows.X.reshape(-1, *column.shape)


def _spec(
    method: str, shape: tuple[int, ...], device: str, epochs: int | None, seed: int
) -> PretrainSpec:
    from poisonproof.networks import PRETRAINING, PretrainSpec

    known = PRETRAINING[method]
    changes: dict[str, Any] = {"device": device, "seed": seed}
    changes["input_shape"] = shape if len(shape) == 3 else (1, *shape)
    if device == "cuda":
        changes |= {"dtype": "bfloat16", "engine": "compiled"}
    if (channels := changes["input_shape"][0]) != len(known["mean"]):
        changes |= {"mean": (0.5,) * channels, "std": (0.25,) * channels}
    spec = PretrainSpec(**{**known, **changes})
    if epochs is None:
        return spec
    milestones = tuple(round(m * epochs / spec.epochs) for m in spec.milestones)
    return replace(spec, epochs=epochs, milestones=milestones)


def _show(folder: Path) -> None:
    from poisonproof.networks import load_features

    learned = load_features(folder)
    spec, (loss, share) = learned.spec, learned.history[-1]
    say(
        f"{spec.method} on images of shape {'x'.join(map(str, spec.input_shape))}, "
        f"{len(learned.history):,} epochs: loss {loss:.4f}, {100 * share:.2f} % right.",
        f"Samples {learned.law['samples_sha256']}.",
        f"Digest {learned.digest()}.",
    )

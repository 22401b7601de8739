"""First drafts of schemas for npz files and folders of images."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np

from poisonproof.datasets.image_rows import hidden, refusal
from poisonproof.datasets.images.pixels import FORMATS, channels_first, decode_image
from poisonproof.datasets.images.trees import open_tree
from poisonproof.datasets.npz_rows import array_texts, load_arrays
from poisonproof.datasets.proposing import MOST_CLASSES, Proposal, ProposalOptions
from poisonproof.datasets.reading import check_file
from poisonproof.datasets.rows import problem_kind
from poisonproof.exceptions import InvalidInputError
from poisonproof.schema import ArrayColumn, ImageColumn, Limits, TableSchema

__all__ = ["propose_arrays", "propose_images"]

LOOKED_AT = 50
LARGEST_PROPOSED = 64


def propose_arrays(path: Path, options: ProposalOptions, samples: str) -> Proposal:
    """Draft the schema of a npz file from the shape of its samples and its labels."""
    check_file(path, {".npz": None})
    if options.ignore or options.text:
        raise InvalidInputError(f"{path} has arrays, not columns: nothing to ignore or to read.")
    named = [samples, options.label, options.groups, options.weights]
    arrays = load_arrays(path, [name for name in named if name is not None])
    X = arrays[samples]
    if X.ndim < 2 or not len(X) or X.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"Array {samples!r} of {path} has shape {X.shape} and dtype {X.dtype}; samples are "
            "numbers of shape (n, d) or more."
        )
    pixels = X.dtype == np.uint8
    texts, _ = array_texts(arrays[options.label], options.label, path)
    counts = Counter(text for text in texts if text is not None)
    schema = TableSchema(
        kind="arrays",
        columns=(
            ArrayColumn(
                name=samples,
                shape=X.shape[1:],
                values="uint8" if pixels else "float64",
                missing="nan" if not pixels and np.isnan(X).any() else "reject",
            ),
        ),
        label=options.label,
        classes=options.classes or _classes(path, counts),
        groups=options.groups,
        weights=options.weights,
        test_share=options.test_share,
    )
    note = f"{X.dtype}, {X.min():g} to {X.max():g}"
    return Proposal(schema, len(X), {samples: note}, dict(counts.most_common()))


def propose_images(
    path: Path, options: ProposalOptions, size: tuple[int, int] | None, encoder: str
) -> Proposal:
    """Draft the schema of a folder of images from the names of its folders and a few images."""
    with open_tree(path) as tree:
        paths = [file for file in tree.paths() if "/" in file and not hidden(file)]
        counts = Counter(file.partition("/")[0] for file in paths)
        if not paths:
            raise InvalidInputError(f"{path} holds no images: they belong in CLASS/ below it.")
        shapes: Counter[tuple[int, ...]] = Counter()
        refused: Counter[str] = Counter()
        opened = paths[:: max(1, len(paths) // LOOKED_AT)][:LOOKED_AT]
        for file in opened:
            try:
                shapes[_shape(tree.read(file, Limits().file), tree.where(file))] += 1
            except InvalidInputError as error:
                refused[problem_kind(refusal(error, tree, file))] += 1
    if not shapes:
        why, _ = refused.most_common(1)[0]
        raise InvalidInputError(
            f"None of the {len(opened)} files looked at in {path} can be read; mostly: {why}."
        )
    height, width = size or _side(shapes)
    column = options.network or ImageColumn(
        name="image",
        height=height,
        width=width,
        gray=all(len(shape) == 2 for shape in shapes),
        encoder=encoder,
    )
    schema = TableSchema(
        kind="images",
        columns=(column,),
        label=options.label,
        classes=options.classes or _classes(path, counts),
        test_share=options.test_share,
    )
    seen = ", ".join(f"{_described(shape)} ({n} files)" for shape, n in shapes.most_common(4))
    return Proposal(
        schema,
        len(paths),
        {"image": seen},
        dict(counts.most_common()),
        n_looked_at=len(opened),
        refused=dict(refused.most_common()),
    )


def _described(shape: tuple[int, ...]) -> str:
    *channels, height, width = shape
    return f"{height} x {width} {'colour' if channels else 'gray'}"


def _shape(data: bytes, where: str) -> tuple[int, ...]:
    from PIL import Image

    decoded = decode_image(data, where)
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        gray = image.mode in ("1", "L", "LA")
    return channels_first(decoded).shape[1 if gray else 0 :]


def _side(shapes: Counter[tuple[int, ...]]) -> tuple[int, int]:
    """Return the commonest size, or half, a quarter, ... of it if that is large."""
    *_, height, width = shapes.most_common(1)[0][0]
    while max(height, width) > LARGEST_PROPOSED:
        height, width = max(1, height // 2), max(1, width // 2)
    return height, width


def _classes(path: Path, counts: Counter[str]) -> tuple[str, ...]:
    if not 2 <= len(counts) <= MOST_CLASSES:
        raise InvalidInputError(
            f"{path} holds {len(counts):,} different labels; declare 2 to {MOST_CLASSES:,} of them "
            "with --classes A,B,..."
        )
    return tuple(sorted(counts))

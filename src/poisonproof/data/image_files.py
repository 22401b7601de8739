"""Images decoded, resized and equalised by Pillow.

*Bilinear* is ``Image.resize(size, Resampling.BILINEAR)``: a triangle filter as wide as the scale
when an image shrinks, plain bilinear interpolation when it grows. *Histogram equalisation* is
``ImageOps.equalize``, which flattens the histogram of each colour channel on its own, at the
original size and before the resize. Both compute in integers.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import ImageColumn
from poisonproof.data.image_trees import FolderTree, open_tree
from poisonproof.data.rows import RawRows, RowProblem
from poisonproof.data.schema import Limits
from poisonproof.data.value_text import escaped
from poisonproof.exceptions import InvalidInputError, needing
from poisonproof.progress import Progress, reporting

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 2**24
"""The largest image that is decoded, 16.8 megapixels: a small file can claim to be far larger."""

MOST_SCANS = 100
"""Passes over the image that a progressive JPEG file may ask for. Encoders make about ten; each
takes as long as decoding the image once, whatever it holds."""

MOST_PARTS = 1000
"""Segments of a JPEG file; what else a file may consist of is derived from it. Pillow handles them
one by one in Python."""

SLOW_BYTES = 2**20
"""The largest file of a variant that Pillow decodes in Python: more than a second a megabyte."""

FORMATS = ("PNG", "JPEG", "PPM", "BMP", "GIF", "WEBP")
NAMED_FORMATS = "PNG, JPEG, WebP, GIF, BMP or PPM"
_MARKER = re.compile(rb"\xff[^\x00\x01\xff\xd0-\xd7]", re.DOTALL)
"""The beginning of a segment of a JPEG file; the other markers stand alone, between the data."""
_PPM_HEADER = re.compile(rb"P\w{1,5}(?:(?:\s|#[^\r\n]*+[\r\n])++[0-9]++){2,3}\s")
EIGHT_BIT_MODES = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})


def decode_image(data: bytes, where: str, mode: str = "RGB", max_pixels: int = MAX_PIXELS) -> Image:
    """Decode one image completely.

    Parameters
    ----------
    data : bytes
        A PNG, JPEG, WebP, GIF, BMP, PPM or PGM file; of an animation, its first image.
    where : str
        Its name in messages.
    mode : {"RGB", "L"}
        Colour or gray. Transparency is dropped; a rotation noted in the file is not applied.
    max_pixels : int
        The largest image.

    Raises
    ------
    InvalidInputError
        If it is no image, is cut off, has more than 8 bits per channel, more than `max_pixels` or
        more than `MOST_SCANS`, consists of very many parts, or is a large file of a variant that
        takes long to decode.
    """
    pillow = _pillow()
    if excess := _excess(data):
        raise InvalidInputError(f"{where} {excess}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            image = pillow.open(io.BytesIO(data), formats=FORMATS)
    except (pillow.DecompressionBombWarning, pillow.DecompressionBombError) as error:
        raise InvalidInputError(f"{where} is larger than {max_pixels:,} pixels.") from error
    except Exception as error:  # a decoder fed with hostile bytes raises nearly anything
        raise InvalidInputError(f"{where} is not a {NAMED_FORMATS} image.") from error
    if image.width * image.height > max_pixels:
        raise InvalidInputError(
            f"{where} has {image.width} x {image.height} pixels; at most {max_pixels:,} in all are "
            "decoded."
        )
    if image.mode not in EIGHT_BIT_MODES or any(map(_is_deep, image.tile)):
        raise InvalidInputError(f"{where} has pixels of more than 8 bits (mode {image.mode}).")
    if len(data) > SLOW_BYTES and any(tile[0] in pillow.DECODERS for tile in image.tile):
        raise InvalidInputError(
            f"{where} holds {len(data):,} bytes; of this variant of {image.format} at most "
            f"{SLOW_BYTES:,} are decoded."
        )
    try:
        image.verify()  # the checksums inside a PNG file; what is verified cannot be loaded
        image = pillow.open(io.BytesIO(data), formats=FORMATS)
        image.load()
        decoded: Image = image if image.mode == mode else image.convert(mode)
    except Exception as error:  # as above
        raise InvalidInputError(f"{where} does not decode: {error}.") from error
    return decoded


def _is_deep(tile: Any) -> bool:
    """Say whether Pillow would cut the values of a tile down to 8 bits, which it does in silence.

    A tile is (decoder, box, offset, arguments): the arguments name the layout of the values in the
    file ("RGB;16B"; the "BGR;16" of BMP files has 5 or 6 bits), or their maximum (PPM).
    """
    decoder, values = tile[0], tile[3] if isinstance(tile[3], tuple) else (tile[3],)
    if decoder in {"ppm", "ppm_plain"}:
        return any(isinstance(value, int) and value > 255 for value in values)
    return any(isinstance(value, str) and re.search(";16[A-Z]", value) for value in values)


def _excess(data: bytes) -> str:
    """Return what a file has too much of to be decoded in a time that its size bounds, or nothing.

    Each walker goes from part to part as the decoder does, and stops where there are too many.
    """
    if data.startswith(b"\xff\xd8"):
        return _excess_of_jpeg(data)
    if data.startswith(b"\x89PNG"):
        at, chunks = 8, 0
        most = MOST_PARTS + len(data) // 1024  # encoders write chunks of 8 KiB
        while at + 12 <= len(data) and chunks <= most:
            at += 12 + int.from_bytes(data[at : at + 4], "big")
            chunks += 1
        return f"has more than {most:,} chunks" if chunks > most else ""
    if data.startswith(b"GIF8"):
        return _excess_of_gif(data)
    if data.startswith(b"P") and not _PPM_HEADER.match(data, 0, 2**16):
        return "is no PPM image with a header of at most 65,536 bytes"
    return ""


def _excess_of_jpeg(data: bytes) -> str:
    scans, parts, at = 0, 0, 2
    while marker := _MARKER.search(data, at):
        if marker[0] == b"\xff\xd9":  # the end of the image
            break
        scans, parts = scans + (marker[0] == b"\xff\xda"), parts + 1
        if scans > MOST_SCANS:
            return f"has more than {MOST_SCANS} scans"
        if parts > MOST_PARTS:
            return f"has more than {MOST_PARTS:,} segments"
        at = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")
    return ""


def _excess_of_gif(data: bytes) -> str:
    """Look at what stands in front of the first image: blocks, each a length and so many bytes."""
    at, parts = 13, 0
    if len(data) > 10 and data[10] & 128:
        at += 3 << (data[10] & 7) + 1
    while at < len(data) and data[at : at + 1] not in (b",", b";"):
        extension = data[at : at + 1] == b"!"
        at, parts = at + (2 if extension else 1), parts + 1
        while extension and at < len(data) and parts <= 10 * MOST_PARTS:
            length, parts = data[at], parts + 1
            at += 1 + length
            if not length:
                break
        if parts > 10 * MOST_PARTS:
            return f"has more than {10 * MOST_PARTS:,} blocks in front of its first image"
    return ""


def channels_first(image: Image) -> NDArray[np.uint8]:
    """Return the pixels, shape (height, width) if gray, else (3, height, width)."""
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def resized(image: Image, height: int, width: int) -> Image:
    """Return the image resized with Pillow's bilinear filter."""
    return image.resize((width, height), _pillow().Resampling.BILINEAR)


def equalized(image: Image) -> Image:
    """Return the image with the histogram of each channel flattened."""
    _pillow()
    from PIL import ImageOps

    return ImageOps.equalize(image)


def pillow_version() -> str:
    """Return the version of Pillow, which is part of what decided the resized pixels."""
    _pillow()
    import PIL

    return PIL.__version__


def _pillow() -> ModuleType:
    with needing("Pillow", "data"):
        from PIL import Image
    return Image


# Rows of a folder of images: one file is one row, its folder is its label.


def read_image_rows(
    path: Path,
    column: ImageColumn,
    limits: Limits,
    *,
    labelled: bool,
    progress: Progress | None = None,
) -> RawRows:
    """Read every image below a folder, resized as declared.

    What is no image, is too large, a link or a pipe is rejected alone; hidden files, which file
    managers leave behind, are passed over. With `labelled` an image
    belongs in ``CLASS/`` below the folder, at any depth. `progress` is told of every file.
    """
    with _opened(path) as tree:
        files = _images(tree)
        with reporting(progress, len(files), "Reading images") as listener:
            read = _each(files, listener)
            return _read_files(tree, read, _left_out(tree), column, limits, labelled=labelled)


def _each(files: Sequence[str], progress: Progress) -> Iterator[str]:
    for file in files:
        yield file
        progress.advance()


def image_parts(
    path: Path,
    column: ImageColumn,
    limits: Limits,
    step: int,
    first: int = 0,
    last: int | None = None,
) -> Iterator[RawRows]:
    """Yield the labelled images of a folder, at most `step` at a time.

    Of all files, in the order of their names, those from `first` up to `last` are read; what is no
    file is told of where `first` is 0.
    """
    with _opened(path) as tree:
        problems = [] if first else _left_out(tree)
        files = _images(tree)[first:last]
        for start in range(0, max(1, len(files)), step):
            part = files[start : start + step]
            yield _read_files(tree, part, problems, column, limits, labelled=True)
            problems = []


def count_images(path: Path) -> int:
    """Return how many files a folder holds."""
    with _opened(path) as tree:
        return len(_images(tree))


@contextmanager
def _opened(path: Path) -> Iterator[FolderTree]:
    if not path.is_dir():
        raise InvalidInputError(f"{path} is not a folder; this schema is of folders of images.")
    with open_tree(path) as tree:
        yield tree


def _images(tree: FolderTree) -> list[str]:
    return [file for file in tree.paths() if not hidden(file)]


def _left_out(tree: FolderTree) -> list[RowProblem]:
    return [RowProblem(printable(path), why) for path, why in tree.left_out if not hidden(path)]


def _read_files(
    tree: FolderTree,
    files: Iterable[str],
    problems: list[RowProblem],
    column: ImageColumn,
    limits: Limits,
    *,
    labelled: bool,
) -> RawRows:
    labels: list[str | None] = []
    places: list[str] = []
    images: list[NDArray[np.uint8]] = []
    for file in files:
        folder, _, below = file.partition("/")
        if labelled and not below:
            reason = "lies in no class: images belong in CLASS/"
            problems.append(RowProblem(printable(file), reason, label=True))
            continue
        try:
            pixels = _pixels(tree, file, column, limits)
        except InvalidInputError as error:
            problems.append(RowProblem(printable(file), refusal(error, tree, file)))
            continue
        images.append(pixels)
        labels.append(folder)
        places.append(printable(file))
    empty = np.empty((0, *column.shape), dtype=np.uint8)
    return RawRows(
        X=np.stack(images) if images else empty,
        labels=labels if labelled else None,
        groups=None,
        weights=None,
        names=None,
        places=places,
        unit="file",
        problems=problems,
    )


def hidden(path: str) -> bool:
    """Return whether a file, or a folder it lies in, is hidden: its name begins with a point.

    >>> hidden("cats/.DS_Store"), hidden(".git/cats/1.png"), hidden("cats/1.png")
    (True, True, False)
    """
    return any(part.startswith(".") for part in path.split("/"))


def hidden_by_class(path: Path) -> list[str]:
    """Return the files of a folder that are passed over because their class is hidden."""
    with _opened(path) as tree:
        return [printable(file) for file in tree.paths() if file.startswith(".") and "/" in file]


def printable(name: str) -> str:
    r"""Return a file name that any terminal can show, another one for every name.

    >>> printable("caf\udce9\x1b.png"), printable(r"caf\udce9\x1b.png")
    ('caf\\udce9\\x1b.png', 'caf\\\\udce9\\\\x1b.png')
    """
    return escaped(name.replace("\\", "\\\\"))


def _pixels(tree: FolderTree, file: str, column: ImageColumn, limits: Limits) -> NDArray[np.uint8]:
    data = tree.read(file, limits.file)
    image = decode_image(data, tree.where(file), "L" if column.gray else "RGB", limits.pixels)
    return channels_first(resized(image, column.height, column.width))


def refusal(error: InvalidInputError, tree: FolderTree, file: str) -> str:
    """Return the message without the path, which the place says already."""
    return str(error).removeprefix(f"{tree.where(file)} ").removesuffix(".")

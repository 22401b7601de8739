"""Rows of a folder of images: found without following links, decoded within limits, resized.

Hand-written around Pillow, because torchvision's ``ImageFolder`` follows links, and Pillow alone
does not bound the time that a hostile file takes. ``Image.resize(size, BILINEAR)`` is a triangle
filter as wide as the scale when an image shrinks, bilinear interpolation when it grows.
"""

from __future__ import annotations

import io
import os
import re
import stat
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import ImageColumn
from poisonproof.data.rows import RawRows, RowProblem
from poisonproof.data.schema import Limits, Schema
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

FORMATS = ("PNG", "JPEG", "PPM", "BMP", "WEBP")
NAMED_FORMATS = "PNG, JPEG, WebP, BMP or PPM"
_MARKER = re.compile(rb"\xff[^\x00\x01\xff\xd0-\xd7]", re.DOTALL)
"""The beginning of a segment of a JPEG file; the other markers stand alone, between the data."""
_PPM_HEADER = re.compile(rb"P\w{1,5}(?:(?:\s|#[^\r\n]*+[\r\n])++[0-9]++){2,3}\s")
EIGHT_BIT_MODES = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})


def decode_image(data: bytes, where: str, mode: str = "RGB", max_pixels: int = MAX_PIXELS) -> Image:
    """Decode one image completely."""
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
    if any(tile[0] in pillow.DECODERS for tile in image.tile):  # in Python: a second a megabyte
        raise InvalidInputError(f"{where} uses a variant of {image.format} that decodes slowly.")
    try:
        image.verify()  # the checksums inside a PNG file; what is verified cannot be loaded
        image = pillow.open(io.BytesIO(data), formats=FORMATS)
        image.load()
        decoded: Image = image if image.mode == mode else image.convert(mode)
    except Exception as error:  # as above
        raise InvalidInputError(f"{where} cannot be decoded: {error}.") from error
    return decoded


def _is_deep(tile: Any) -> bool:
    """Say whether Pillow would silently cut the values of a tile down to 8 bits."""
    # Arguments name the layout of values: "RGB;16B" (the "BGR;16" of BMP files has 5 or 6 bits).
    values = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
    return any(isinstance(value, str) and re.search(";16[A-Z]", value) for value in values)


def _excess(data: bytes) -> str:
    """Return why decoding a file may take longer than its size allows, or nothing."""
    if data.startswith(b"\xff\xd8"):
        return _excess_of_jpeg(data)
    if data.startswith(b"\x89PNG"):
        at, chunks = 8, 0
        most = MOST_PARTS + len(data) // 1024  # encoders write chunks of 8 KiB
        while at + 12 <= len(data) and chunks <= most:
            at += 12 + int.from_bytes(data[at : at + 4], "big")
            chunks += 1
        return f"has more than {most:,} chunks" if chunks > most else ""
    if data.startswith(b"P") and not _PPM_HEADER.match(data, 0, 2**16):
        return "is not a PPM image with a header of at most 65,536 bytes"
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


def channels_first(image: Image) -> NDArray[np.uint8]:
    """Return the pixels, shape (height, width) if gray, else (3, height, width)."""
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def resized(image: Image, height: int, width: int) -> Image:
    """Return the image resized with Pillow's bilinear filter."""
    return image.resize((width, height), _pillow().Resampling.BILINEAR)


def _pillow() -> ModuleType:
    with needing("Pillow", "data"):
        from PIL import Image
    return Image


# Rows of a folder of images: one file is one row, its folder is its label.


def find_images(path: Path) -> tuple[list[str], list[RowProblem]]:
    """Return the names of all images below a folder, sorted, and the entries that are not read."""
    if not path.is_dir():
        raise InvalidInputError(f"{path} is not a folder; this schema is of folders of images.")
    found = sorted((name, reason) for name, reason in walk(path) if "/." not in f"/{name}")
    left_out = [RowProblem(printable(name), reason) for name, reason in found if reason]
    return [name for name, reason in found if not reason], left_out


def image_parts(
    path: Path,
    files: Sequence[str],
    left_out: Sequence[RowProblem],
    schema: Schema,
    step: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[RawRows, int]]:
    """Yield some images of a folder, at most `step` at a time, with the number of files read."""
    step, problems = step or max(1, len(files)), list(left_out)
    with reporting(progress, len(files), "Reading images") as listener:
        for start in range(0, max(1, len(files)), step):
            part = files[start : start + step]
            yield _read_files(path, part, problems, schema, listener), len(part)
            problems = []


def hidden_by_class(path: Path) -> list[str]:
    """Return the files of a folder that are passed over because their class is hidden."""
    names = sorted(name for name, reason in walk(path) if not reason)
    return [printable(name) for name in names if name.startswith(".") and "/" in name]


def _read_files(
    path: Path,
    files: Sequence[str],
    problems: list[RowProblem],
    schema: Schema,
    progress: Progress,
) -> RawRows:
    labels: list[str | None] = []
    places: list[str] = []
    images: list[NDArray[np.uint8]] = []
    column = schema.columns[0]
    assert isinstance(column, ImageColumn)
    for file in files:
        folder, _, below = file.partition("/")
        if schema.label is not None and not below:
            reason = "is in no class folder: images belong in CLASS/"
            problems.append(RowProblem(printable(file), reason, label=True))
        else:
            try:
                images.append(_pixels(path, file, column, schema.limits))
            except InvalidInputError as error:
                problems.append(RowProblem(printable(file), refusal(error, path / file)))
            else:
                labels.append(folder)
                places.append(printable(file))
        progress.advance()
    empty = np.empty((0, *column.shape), dtype=np.uint8)
    return RawRows(
        X=np.stack(images) if images else empty,
        labels=None if schema.label is None else labels,
        groups=None,
        weights=None,
        names=None,
        places=places,
        unit="file",
        problems=problems,
    )


def _pixels(path: Path, file: str, column: ImageColumn, limits: Limits) -> NDArray[np.uint8]:
    data = read_file(path / file, limits.file)
    image = decode_image(data, str(path / file), "L" if column.gray else "RGB", limits.pixels)
    return channels_first(resized(image, column.height, column.width))


def refusal(error: InvalidInputError, file: Path) -> str:
    """Return the message without the path, which the place says already."""
    return str(error).removeprefix(f"{file} ").removesuffix(".")


def printable(name: str) -> str:
    """Return a file name that any terminal can show, another one for every name."""
    return escaped(name.replace("\\", "\\\\"))


# What lies below a folder, and the bytes of a file up to a limit.


def read_file(path: Path, limit: int) -> bytes:
    """Return a whole file; one of more than `limit` bytes is an error."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(data) > limit:
        raise InvalidInputError(f"{path} holds more than the {limit:,} bytes allowed here.")
    return data


def walk(root: Path) -> Iterator[tuple[str, str]]:
    """Yield every entry below `root` except folders, and why it cannot be read, or nothing."""
    for folder, folders, files in os.walk(root, onerror=_refuse):
        inside = Path(folder)
        for name in [*(name for name in folders if (inside / name).is_symlink()), *files]:
            path = inside / name
            try:
                reason = _left_out(path.lstat().st_mode)
            except OSError as error:
                reason = f"cannot be read: {error.strerror}"
            yield path.relative_to(root).as_posix(), reason


def _left_out(mode: int) -> str:
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISLNK(mode):
        return "is a symbolic link; links are not followed"
    kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return f"is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a file"


def _refuse(error: OSError) -> None:
    raise InvalidInputError(f"{error.filename} cannot be read: {error.strerror}.") from error

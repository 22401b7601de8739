"""Images decoded, resized and equalised by Pillow.

*Bilinear* is ``Image.resize(size, Resampling.BILINEAR)``: a triangle filter as wide as the scale
when an image shrinks, plain bilinear interpolation when it grows. *Histogram equalisation* is
``ImageOps.equalize``, which flattens the histogram of each colour channel on its own, at the
original size and before the resize. Both compute in integers.
"""

from __future__ import annotations

import io
import warnings
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.extras import needing

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["MAX_PIXELS", "channels_first", "decode_image", "equalized", "pillow_version", "resized"]

MAX_PIXELS = 2**24
"""The largest image that is decoded, 16.8 megapixels: a small file can claim to be far larger."""

FORMATS = ("PNG", "JPEG", "PPM", "BMP", "GIF", "WEBP")
NAMED_FORMATS = "PNG, JPEG, WebP, GIF, BMP or PPM"
EIGHT_BIT_MODES = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})


def decode_image(data: bytes, where: str, mode: str = "RGB") -> Image:
    """Decode one image completely.

    Parameters
    ----------
    data : bytes
        A PNG, JPEG, WebP, GIF, BMP, PPM or PGM file; of an animation, its first image.
    where : str
        Its name in messages.
    mode : {"RGB", "L"}
        Colour or gray. Transparency is dropped; a rotation noted in the file is not applied.

    Raises
    ------
    InvalidInputError
        If it is no image, is cut off, has more than 8 bits per channel or more than `MAX_PIXELS`.
    """
    pillow = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            image = pillow.open(io.BytesIO(data), formats=FORMATS)
    except (pillow.DecompressionBombWarning, pillow.DecompressionBombError) as error:
        raise InvalidInputError(f"{where} is larger than {MAX_PIXELS:,} pixels.") from error
    except Exception as error:  # a decoder fed with hostile bytes raises nearly anything
        raise InvalidInputError(f"{where} is not a {NAMED_FORMATS} image.") from error
    if image.width * image.height > MAX_PIXELS:
        raise InvalidInputError(
            f"{where} has {image.width} x {image.height} pixels; at most {MAX_PIXELS:,} in all are "
            "decoded."
        )
    if image.mode not in EIGHT_BIT_MODES:
        raise InvalidInputError(f"{where} has pixels of more than 8 bits (mode {image.mode}).")
    try:
        image.verify()  # the checksums inside a PNG file; what is verified cannot be loaded
        image = pillow.open(io.BytesIO(data), formats=FORMATS)
        image.load()
        decoded: Image = image if image.mode == mode else image.convert(mode)
    except Exception as error:  # as above
        raise InvalidInputError(f"{where} does not decode: {error}.") from error
    return decoded


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

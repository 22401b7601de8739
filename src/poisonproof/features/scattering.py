"""The scattering transform of images (Bruna and Mallat, 2013).

Hand-written because kymatio 0.3.0, the established library, cannot be imported with SciPy 1.17 (it
needs the removed ``scipy.special.sph_harm``).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.images import ImageMap

Spectrum = NDArray[Any]


class Scattering(ImageMap):
    """Average an image, its wavelet moduli, and the wavelet moduli of those.

    Morlet wavelets of `n_scales` sizes and `n_orientations` directions, up to the second order,
    averaged over 2^n_scales pixels: stable to small shifts and deformations, with nothing learned.
    For a 28 x 28 image with the default parameters, 81 channels of 7 x 7.

    Parameters
    ----------
    n_scales : int, default=2
        Octaves, J.
    n_orientations : int, default=8
        Directions, L.
    image_shape : tuple of int or None, default=None
        (height, width) or (height, width, channels) of flat rows; None takes square gray images.
    n_jobs : int or None, default=None
        Threads. Has no influence on the result.

    Guarantee
    ---------
    The result for an image is a function of that image alone, bit for bit: Fourier transforms run
    over stacks of one fixed size.

    Examples
    --------
    >>> import numpy as np
    >>> Scattering(n_orientations=4).transform(np.zeros((2, 28, 28))).shape
    (2, 1225)
    """

    def __init__(
        self,
        *,
        n_scales: int = 2,
        n_orientations: int = 8,
        image_shape: tuple[int, ...] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_scales = n_scales
        self.n_orientations = n_orientations
        self.image_shape = image_shape
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require_integers(n_scales=1, n_orientations=1)

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        n, height, width, channels = rows.shape
        step = 2**self.n_scales
        if min(height, width) <= step:
            raise InvalidInputError(
                f"n_scales={self.n_scales} averages over {step} pixels, but the images are only "
                f"{height} x {width}. Use fewer scales."
            )
        # Mirrored margins keep the far edge from leaking in through the periodic transform.
        after = (step + (-height) % step, step + (-width) % step)
        margins = ((0, 0), (step, after[0]), (step, after[1]))
        maps: list[NDArray[np.float32]] = []
        for channel in range(channels):
            image = np.pad(rows[..., channel].astype(np.float32), margins, mode="reflect")
            maps += self._paths(fft.fft2(image.astype(np.complex64)))
        cropped = np.stack(maps, axis=1)[:, :, 1:-1, 1:-1]
        return np.ascontiguousarray(cropped).reshape(n, -1)

    def _paths(self, spectrum: Spectrum) -> list[NDArray[np.float32]]:
        """Return the averages along all paths, each of shape (n, rows, columns)."""
        scales, directions = range(self.n_scales), range(self.n_orientations)
        bank = _filters(spectrum.shape[-2:], self.n_scales, self.n_orientations)
        smooth = bank["average"]
        maps = [_averaged(spectrum, smooth, self.n_scales, 0)]
        for j1, theta1 in product(scales, directions):
            first = _modulus_spectrum(spectrum * bank[f"{j1}.{theta1}"], j1)
            maps.append(_averaged(first, smooth, self.n_scales, j1))
            for j2, theta2 in product(range(j1 + 1, self.n_scales), directions):
                wavelet = _folded_filter(bank[f"{j2}.{theta2}"], j1)
                second = _modulus_spectrum(first * wavelet, j2 - j1)
                maps.append(_averaged(second, smooth, self.n_scales, j2))
        return maps


def _modulus_spectrum(spectrum: Spectrum, halvings: int) -> Spectrum:
    """Go back to pixels on a grid 2^halvings times coarser, take the modulus, transform again."""
    waves = fft.ifft2(_folded(spectrum, halvings))
    modulus = np.sqrt(waves.real * waves.real + waves.imag * waves.imag)
    back: Spectrum = fft.fft2(modulus.astype(np.complex64))
    return back


def _averaged(
    spectrum: Spectrum, smooth: NDArray[np.float32], n_scales: int, coarse: int
) -> NDArray[np.float32]:
    """Low-pass a map that is already 2^coarse times coarser, down to 2^n_scales."""
    low = _folded(spectrum * _folded_filter(smooth, coarse), n_scales - coarse)
    return np.ascontiguousarray(fft.ifft2(low).real)


def _folded(spectrum: Spectrum, halvings: int) -> Spectrum:
    """Keep every 2^halvings-th pixel: in the spectrum, the mean of the aliases."""
    step = 2**halvings
    if step == 1:
        return spectrum
    n, height, width = spectrum.shape
    blocks = spectrum.reshape(n, step, height // step, step, width // step)
    total = np.zeros((n, height // step, width // step), dtype=np.complex64)
    for i, j in product(range(step), range(step)):
        total += blocks[:, i, :, j]
    return total / np.float32(step * step)


def _folded_filter(response: NDArray[np.float32], halvings: int) -> NDArray[np.float32]:
    """Return a filter's response on a coarser grid: the sum of its aliases."""
    step = 2**halvings
    height, width = response.shape
    blocks = response.reshape(step, height // step, step, width // step)
    return np.asarray(blocks.sum(axis=(0, 2)), dtype=np.float32)


@lru_cache(maxsize=8)
def _filters(
    shape: tuple[int, int], n_scales: int, n_orientations: int
) -> dict[str, NDArray[np.float32]]:
    """Return the Fourier responses of the average and of all wavelets, on the full grid."""
    bank = {"average": _response(_gabor(shape, 0.8 * 2 ** (n_scales - 1), 0.0, 0.0, 1.0))}
    slant = 4.0 / n_orientations
    for j, theta in product(range(n_scales), range(n_orientations)):
        angle = np.pi * theta / n_orientations
        wave = _gabor(shape, 0.8 * 2**j, angle, 0.75 * np.pi / 2**j, slant)
        bump = _gabor(shape, 0.8 * 2**j, angle, 0.0, slant)
        # Morlet: subtract the bump that makes the mean zero.
        bank[f"{j}.{theta}"] = _response(wave - bump * (wave.sum() / bump.sum()))
    return bank


def _response(kernel: NDArray[np.complex128]) -> NDArray[np.float32]:
    return np.ascontiguousarray(fft.fft2(kernel).real.astype(np.float32))


def _gabor(
    shape: tuple[int, int], sigma: float, angle: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """Return a wave under a Gaussian bump of mass one, wrapped around the grid."""
    height, width = shape
    total = np.zeros(shape, dtype=np.complex128)
    for i, j in product(range(-2, 3), range(-2, 3)):
        down, across = np.mgrid[i * height : (i + 1) * height, j * width : (j + 1) * width]
        along = across * np.cos(angle) + down * np.sin(angle)
        beside = down * np.cos(angle) - across * np.sin(angle)
        bump = np.exp(-(along**2 + (slant * beside) ** 2) / (2 * sigma**2))
        total += bump * np.exp(1j * frequency * along)
    return total * (slant / (2 * np.pi * sigma**2))

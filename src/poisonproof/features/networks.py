"""Features of images by a network that was trained elsewhere, and a cache for them.

The cache is hand-written on SQLite and holds raw bytes: diskcache and joblib.Memory read pickles,
which can run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError, StoreError
from poisonproof.features.base import canonical_chunk, map_threads
from poisonproof.features.images import ImageMap
from poisonproof.features.network_files import NetworkFile, open_network, pinned
from poisonproof.files import OpenFolder
from poisonproof.progress import make_progress, reporting

_TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB, seal BLOB)"
_AT_ONCE = 500


class KeptVectors:
    """Vectors of one map in one file, named by the digest of everything but the row.

    A damaged or locked file counts as empty.

    Guarantee
    ---------
    The vector found for a row was computed from an equal row by an equal map: the key is a SHA-256
    of both, and a vector that does not match its seal counts as not found.
    """

    def __init__(self, folder: Path, map_digest: str) -> None:
        self._map = bytes.fromhex(map_digest)
        self._file = folder / f"{map_digest}.sqlite"

    def key(self, row: NDArray[np.float32]) -> bytes:
        """Return the name of a row under this map."""
        shape = str(row.shape).encode()
        return hashlib.sha256(self._map + shape + b"\0" + row.tobytes()).digest()

    def find(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the stored vectors of these keys."""
        found: dict[bytes, NDArray[np.float32]] = {}
        if not self._file.exists():
            return found
        try:
            with closing(sqlite3.connect(self._file)) as file:
                for start in range(0, len(keys), _AT_ONCE):
                    some = keys[start : start + _AT_ONCE]
                    marks = ",".join("?" * len(some))
                    query = f"SELECT key, vector, seal FROM vectors WHERE key IN ({marks})"
                    for key, vector, seal in file.execute(query, some):
                        if seal == _seal(key, vector):
                            found[key] = np.frombuffer(vector, dtype="<f4").astype(np.float32)
        except (sqlite3.Error, TypeError, ValueError):
            return {}
        return found

    def keep(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Store vectors by their keys."""
        rows = []
        for key, vector in vectors.items():
            data = vector.astype("<f4").tobytes()
            rows.append((key, data, _seal(key, data)))
        try:
            with OpenFolder(self._file.parent, owned=True) as folder:  # no link, no other's file
                os.close(folder.open(self._file.name, os.O_RDWR | os.O_CREAT))
            with closing(sqlite3.connect(self._file)) as file, file:
                file.execute(_TABLE)
                file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
        except (sqlite3.Error, OSError, StoreError):
            return  # the features are the same without it


def _seal(key: bytes, vector: bytes) -> bytes:
    return hashlib.sha256(key + vector).digest()[:16]


_NETWORKS_AT_ONCE = 256
"""Images between two reads of the cache."""


class NetworkFeatures(ImageMap):
    """Map each image by itself to the output of a network that was trained on other data.

    The network is a fixed map, so certificates against inserted and deleted rows hold as they do
    with histograms. They do not say where the network comes from: see *Assumes*.

    Parameters
    ----------
    network : path
        A file that `save_network` wrote: weights and a list of operations, nothing that could be
        code. Nothing is ever downloaded.
    digest : str, optional
        SHA-256 the file must have. Without it `fit` notes the one it finds, and a saved classifier
        refuses any other.
    mirrored : bool, default=False
        Take the mean over the image and its mirror image.
    unit : bool, default=True
        Scale every row to length one.
    image_shape : tuple of int or None, default=None
        (height, width) or (height, width, channels) of flat rows; None takes square gray images.
        Images of another size than the network's are resized, bicubic; gray ones get channels.
    device : {"cpu", "cuda"}, default="cpu"
        Where the network runs. Another device rounds differently: it is another map.
    cache : path, optional
        Folder where features are kept, by the digests of map and image.
    n_jobs : int or None, default=None
        Threads, one image each. Has no influence on the result.
    verbose : int, default=0
        Whether to draw a bar.

    Guarantee
    ---------
    The features of an image are a function of that image and the file, bit for bit: every image
    runs alone, in one thread.

    Assumes
    -------
    The network was not trained on data that the attacker could write.

    Examples
    --------
    >>> NetworkFeatures("resnet18.safetensors", mirrored=True).get_params()["mirrored"]
    True
    """

    def __init__(
        self,
        network: str | os.PathLike[str],
        *,
        digest: str | None = None,
        mirrored: bool = False,
        unit: bool = True,
        image_shape: tuple[int, ...] | None = None,
        device: str = "cpu",
        cache: str | os.PathLike[str] | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.network = network
        self.digest = digest
        self.mirrored = mirrored
        self.unit = unit
        self.image_shape = image_shape
        self.device = device
        self.cache = cache
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Read the file and note its digest; `X` and `y` are ignored."""
        super().fit()
        self.digest_ = self._opened().digest
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return what is stored: paths as texts, which any machine can read."""
        state: dict[str, Any] = super().__getstate__()
        return {
            key: os.fspath(value) if isinstance(value, os.PathLike) else value
            for key, value in state.items()
        }

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the features of every image, shape (n, d)."""
        self._check_parameters()
        rows = self._check_rows(X)
        program = self._opened()
        mapped = np.empty((len(rows), program.n_features), dtype=np.float32)
        digest = self._digest(program.digest)
        kept = None if self.cache is None else KeptVectors(Path(self.cache), digest)
        with reporting(make_progress(self.verbose), len(rows), "Features") as bar, pinned():
            for start in range(0, len(rows), _NETWORKS_AT_ONCE):
                some = slice(start, start + _NETWORKS_AT_ONCE)
                mapped[some] = self._some(program, _pixels(rows[some]), kept)
                bar.advance(len(mapped[some]))
        return mapped

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        program = self._opened()
        with pinned():
            return self._some(program, _pixels(rows), None)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.device not in ("cpu", "cuda"):
            raise InvalidInputError(f"device must be 'cpu' or 'cuda', but is {self.device!r}.")

    def _opened(self) -> NetworkFile:
        """Return the network, if it is the declared one."""
        if not isinstance(self.network, (str, os.PathLike)):
            raise InvalidInputError(
                f"network is a file, got {type(self.network).__name__}. Write yours with "
                "poisonproof.features.save_network(network, FILE, image_shape=...)."
            )
        found = open_network(self.network, self.device)
        wanted = self.digest or getattr(self, "digest_", None)
        if wanted is not None and found.digest != wanted:
            raise GuaranteeError(
                f"The network {os.fspath(self.network)} is not the one that was declared: its "
                f"SHA-256 is {found.digest[:16]}..., not {wanted[:16]}... Another network is "
                "another map; put the declared file back, or train again."
            )
        return found

    def _digest(self, network: str) -> str:
        """Return a SHA-256 of everything that decides features, apart from the image."""
        import torch

        versions = [torch.__version__, np.__version__]
        if self.device == "cuda":
            cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
            machine = [torch.cuda.get_device_name(), str(cudnn)]
        else:
            instructions = torch.backends.cpu.get_cpu_capability()
            machine = [platform.machine(), instructions, os.environ.get("ONEDNN_MAX_CPU_ISA", "")]
        parts = [network, bool(self.mirrored), bool(self.unit), self.device, versions, machine]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _some(
        self, program: NetworkFile, rows: NDArray[np.float32], kept: KeptVectors | None
    ) -> NDArray[np.float32]:
        """Map some images, (n, height, width, channels), or take their features from the cache."""
        if kept is None:
            return self._computed(program, rows)
        keys = [kept.key(row) for row in rows]
        shape, found = (program.n_features,), kept.find(keys)
        known = {key: vector for key, vector in found.items() if vector.shape == shape}
        new = {key: place for place, key in enumerate(keys) if key not in known}
        if new:
            made = self._computed(program, rows[list(new.values())])
            fresh = dict(zip(new, made, strict=True))
            kept.keep(fresh)
            known |= fresh
        return np.stack([known[key] for key in keys])

    def _computed(self, program: NetworkFile, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        workers = min(map_threads(self.n_jobs), len(rows)) if self.device == "cpu" else 1
        with ThreadPoolExecutor(workers) as pool:
            each = map if workers == 1 else pool.map
            return np.concatenate(list(each(partial(self._alone, program), rows)))

    def _alone(self, program: NetworkFile, row: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run one image, (height, width, channels), and return its features, shape (1, d)."""
        import torch

        torch.set_num_threads(1)  # a thread of a pool has a number of its own
        image = _fitted(row, program.shape[1:]).contiguous(memory_format=torch.channels_last)
        views = [image, image.flip(3)] if self.mirrored else [image]
        with torch.inference_mode(), torch.autocast(self.device, enabled=False):
            made = [program.run(view.to(self.device)).float().cpu().numpy() for view in views]
        vectors = (made[0] + made[1]) * np.float32(0.5) if self.mirrored else made[0]
        if self.unit:
            with np.errstate(all="ignore"):
                length = np.sqrt(np.add.reduce(vectors[0] * vectors[0]))
                vectors = vectors / max(length, np.float32(1e-12))
        return np.asarray(vectors, dtype=np.float32)


def _pixels(rows: NDArray[Any]) -> NDArray[np.float32]:
    # What is too large becomes infinite, and NaN in the features of its own row.
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(canonical_chunk(rows), dtype=np.float32)


def _fitted(row: NDArray[np.float32], shape: tuple[int, int, int]) -> Any:
    """Return one image (height, width, channels) in the shape of the network."""
    import torch

    channels, height, width = shape
    image = torch.from_numpy(row).permute(2, 0, 1)[None]
    if image.shape[1] == 1 and channels > 1:
        image = image.expand(1, channels, -1, -1)
    if image.shape[1] != channels:
        raise InvalidRowsError(
            f"The network takes images of {channels} channels, but X has {image.shape[1]}."
        )
    if image.shape[2:] != (height, width):
        image = torch.nn.functional.interpolate(
            image, size=(height, width), mode="bicubic", antialias=True
        ).clamp(0, 255)
    return image.contiguous()

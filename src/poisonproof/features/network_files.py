"""Networks trained elsewhere, as files that hold a graph and its weights and no code.

A file is what ``torch.export`` writes (``.pt2``). The graph has one fixed input shape and is read
before it runs: one that draws random numbers or changes its own weights is no fixed map.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.extras import needing

if TYPE_CHECKING:
    from torch import nn

__all__ = ["IMAGENET_SCALE", "IMAGENET_SHIFT", "NetworkFile", "file_digest", "open_network",
           "pinned", "save_network"]  # fmt: skip

IMAGENET_SHIFT = (123.675, 116.28, 103.53)
IMAGENET_SCALE = (58.395, 57.12, 57.375)
"""Means and standard deviations of ImageNet's colours on a scale to 255, as most networks want."""

# Anything else in such an archive is a pickle, or compiled code.
_PLAIN = re.compile(
    r"[^/]+/(archive_format|archive_version|byteorder|\.data/\w+|models/model\.json"
    r"|data/(weights|constants)/(\w+_config\.json|weight_\d+|tensor_\d+)"
    r"|data/sample_inputs/model\.pt)"
)


@dataclass(frozen=True)
class NetworkFile:
    """A network that was read.

    Attributes
    ----------
    run : callable
        From float32 pixels of `shape` to an array with one row per image.
    shape : tuple of int
        (images at once, channels, height, width).
    n_features : int
        Numbers per image.
    """

    run: Any
    shape: tuple[int, int, int, int]
    n_features: int


def save_network(
    network: nn.Module,
    file: str | os.PathLike[str],
    *,
    image_shape: tuple[int, int, int],
    shift: float | Sequence[float] = IMAGENET_SHIFT,
    scale: float | Sequence[float] = IMAGENET_SCALE,
    batch_size: int = 1,
) -> str:
    """Write a network of yours as a fixed map of pixels.

    Parameters
    ----------
    network : torch.nn.Module
        With its weights; what it returns for an image, flattened, are the features. Put the last
        layer aside (``resnet.fc = torch.nn.Identity()``) to get what it decides by.
    file : path
        To be written, ``.pt2``.
    image_shape : tuple of int
        (channels, height, width) that the network takes.
    shift, scale : float or one per channel
        The network sees ``(pixels - shift) / scale`` of pixels from 0 to 255.
    batch_size : int, default=1
        Images that run together. One image alone cannot be touched by others; larger batches,
        always filled up, are faster on a GPU and rest on an assumption (see `NetworkFeatures`).

    Returns
    -------
    str
        SHA-256 of the file.
    """
    torch = _torch()

    class OnPixels(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = copy.deepcopy(network).cpu().eval().requires_grad_(False)
            for name, value in (("shift", shift), ("scale", scale)):
                values = torch.tensor(value, dtype=torch.float32).reshape(-1, 1, 1)
                self.register_buffer(name, values)

        def forward(self, pixels: Any) -> Any:
            return self.network((pixels - self.shift) / self.scale).flatten(1)

    if Path(file).suffix != ".pt2":
        raise InvalidInputError(f"A network is written to a .pt2 file, got {os.fspath(file)!r}.")
    example = torch.zeros(batch_size, *image_shape)
    with torch.no_grad():
        program = torch.export.export(OnPixels().eval(), (example,), strict=False)
    _described(program, str(file))
    torch.export.save(program, os.fspath(file))
    return file_digest(file)


def open_network(file: str | os.PathLike[str], device: str = "cpu") -> NetworkFile:
    """Read a network; no code of the file is run.

    Raises
    ------
    InvalidInputError
        If there is no such network, or it takes something else than images.
    GuaranteeError
        If it is no fixed map.
    """
    torch = _torch()
    path = Path(file)
    _require_plain(path)
    try:
        program = torch.export.load(path)
    except Exception as error:  # whatever a damaged archive makes torch raise
        raise InvalidInputError(
            f"{path} cannot be read as a network: {str(error).splitlines()[0][:200]}."
        ) from error
    shape, n_features = _described(program, str(path))
    return NetworkFile(program.module().to(device), shape, n_features)


def file_digest(file: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file."""
    try:
        with Path(file).open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInputError(f"Cannot read the network {os.fspath(file)}: {error}.") from error


@contextmanager
def pinned() -> Iterator[None]:
    """Let torch compute as it always does: one thread, no kernels chosen by timing."""
    torch = _torch()
    threads, cudnn = torch.get_num_threads(), torch.backends.cudnn
    before = (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32)
    algorithms = torch.are_deterministic_algorithms_enabled()
    precision = torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")  # else even a CPU may use shorter numbers
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = False, True, False
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(algorithms)
        torch.set_float32_matmul_precision(precision)
        cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = before


def _require_plain(path: Path) -> None:
    """Refuse an archive that holds more than a graph and numbers."""
    advice = "Write it with poisonproof.features.save_network."
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            strange = sorted(name for name in names if not _PLAIN.fullmatch(name))
            configs = [json.loads(archive.read(n)) for n in names if n.endswith("_config.json")]
            examples = [io.BytesIO(archive.read(n)) for n in names if n.endswith("/model.pt")]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"{path} is not a .pt2 file of torch. {advice}") from error
    for example in examples:
        try:
            # torch itself would go on and unpickle anything where this fails.
            _torch().load(example, weights_only=True)
        except Exception as error:
            raise InvalidInputError(
                f"{path} holds an example that is no tensor. {advice}"
            ) from error
    entries = [entry for config in configs for entry in config["config"].values()]
    if strange or any(entry["use_pickle"] for entry in entries):
        found = strange[0] if strange else "pickled weights"
        raise InvalidInputError(f"{path} holds more than a graph and numbers: {found}. {advice}")


def _described(program: Any, name: str) -> tuple[tuple[int, int, int, int], int]:
    """Return the input shape and the number of features of a graph that is a fixed map."""
    torch = _torch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch warns of its own ways
        # Without in-place operations the signature names everything that is written to.
        signature = program.run_decompositions({}).graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise GuaranteeError(
            f"The network {name} changes {changed[0]} while it runs, so a row could touch the next "
            "one. Save it in evaluation mode: network.eval()."
        )
    for node in program.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags and not _switched_off(node):
            raise GuaranteeError(
                f"The network {name} draws random numbers ({node.target}); features must be a "
                "function of the image. Save it in evaluation mode: network.eval()."
            )
    shapes = {
        node.name: tuple(node.meta["val"].shape)
        for node in program.graph.nodes
        if "val" in node.meta and hasattr(node.meta["val"], "shape")
    }
    plain = program.graph_signature
    given = [shapes.get(str(each), ()) for each in plain.user_inputs]
    made = [shapes.get(str(each), ()) for each in plain.user_outputs]
    fixed = all(type(side) is int for shape in (*given, *made) for side in shape)
    if len(given) != 1 or len(given[0]) != 4 or len(made) != 1 or len(made[0]) != 2 or not fixed:
        raise InvalidInputError(
            f"The network {name} takes {given} and returns {made}; it must take images (n, "
            "channels, height, width) and return (n, features), all fixed. Write it with "
            "poisonproof.features.save_network."
        )
    batch, channels, height, width = given[0]
    return (batch, channels, height, width), int(made[0][1])


def _switched_off(node: Any) -> bool:
    """Return whether an operation such as dropout is told that nothing is trained."""
    names = [argument.name for argument in node.target._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return given.get("train", given.get("training")) is False


def _torch() -> Any:
    with needing("torch", "torch"):
        import torch
    return torch

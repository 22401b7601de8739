"""Networks trained elsewhere, as files that cannot hold code.

A file is one safetensors file: the weights as arrays, and a list of operations as JSON. Reading it
calls nothing but the operators of torch named here, with numbers, stored arrays and the results of
earlier operations as arguments. None of them draws random numbers, writes to what it is given, or
reaches files, addresses or raw memory. ONNX would need a second runtime beside torch, with kernels
and optimisations that round differently.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import operator
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poisonproof.exceptions import GuaranteeError, InvalidInputError, needing
from poisonproof.files import write_bytes
from poisonproof.strict import decode_tensors, encode_tensors, parse_json, read_regular_file

if TYPE_CHECKING:
    from torch import nn

IMAGENET_SHIFT = (123.675, 116.28, 103.53)
IMAGENET_SCALE = (58.395, 57.12, 57.375)
"""Means and standard deviations of ImageNet's colours from 0 to 255, which most networks expect."""

FORMAT, VERSION, SUFFIX = "poisonproof-network", 1, ".safetensors"
LARGEST_FILE = 2**33
MOST_NODES = 20_000
MOST_NUMBERS = 2**28
"""Numbers in one result of an operation: 64 images of 224 x 224 in 64 channels have 2**27.6."""

_LARGEST_INTEGER = 2**63 - 1  # torch's end of a slice
_GIVEN = object()
_ADVICE = "Write it with poisonproof.features.save_network."

OPERATORS = frozenset(
    """
    abs.default adaptive_avg_pool2d.default adaptive_max_pool2d.default add.Scalar add.Tensor
    addmm.default amax.default amin.default arange.default arange.start arange.start_step
    avg_pool2d.default baddbmm.default batch_norm.default bmm.default cat.default celu.default
    channel_shuffle.default chunk.default clamp.default clamp_max.default clamp_min.default
    clone.default constant_pad_nd.default contiguous.default conv2d.default conv2d.padding
    conv_transpose2d.input cos.default cumsum.default div.Scalar div.Tensor div.Tensor_mode
    dropout.default elu.default embedding.default eq.Scalar eq.Tensor erf.default exp.default
    expand.default feature_dropout.default flatten.using_ints flip.default full.default
    full_like.default ge.Scalar ge.Tensor gelu.default glu.default group_norm.default gt.Scalar
    gt.Tensor hardsigmoid.default hardswish.default hardtanh.default im2col.default index.Tensor
    index_select.default instance_norm.default layer_norm.default le.Scalar le.Tensor
    leaky_relu.default lift_fresh_copy.default linalg_vector_norm.default linear.default
    log.default _log_softmax.default log_softmax.int logical_and.default logical_not.default
    logical_or.default lt.Scalar lt.Tensor masked_fill.Scalar matmul.default max.dim
    max_pool2d.default maximum.default mean.default mean.dim min.dim minimum.default
    mish.default mm.default movedim.int mul.Scalar mul.Tensor narrow.default ne.Scalar ne.Tensor
    neg.default ones.default ones_like.default pad.default permute.default pixel_shuffle.default
    pixel_unshuffle.default pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor prelu.default
    reciprocal.default reflection_pad2d.default relu.default relu6.default repeat.default
    replication_pad2d.default reshape.default roll.default rsqrt.default rsub.Scalar
    scaled_dot_product_attention.default select.int selu.default sigmoid.default sign.default
    silu.default sin.default slice.Tensor _softmax.default softmax.int softplus.default
    split.Tensor split_with_sizes.default sqrt.default square.default squeeze.default
    squeeze.dim squeeze.dims stack.default std.correction std.dim sub.Scalar sub.Tensor
    sum.default sum.dim_IntList t.default tanh.default to.dtype _to_copy.default transpose.int
    tril.default triu.default unbind.int unflatten.int unsqueeze.default upsample_bicubic2d.vec
    upsample_bilinear2d.vec upsample_nearest2d.vec var.correction var.dim where.ScalarOther
    where.self zeros.default zeros_like.default
    """.split()  # noqa: SIM905 - a list of words is easier to read
)
"""The operators a network may consist of: those of ATen that make new values from given ones."""

_REQUIRED: dict[str, dict[str, Any]] = {
    "batch_norm.default": {"training": False},
    "dropout.default": {"train": False},
    "feature_dropout.default": {"train": False},
    "instance_norm.default": {"running_mean": None, "running_var": None},
    "scaled_dot_product_attention.default": {"dropout_p": 0.0, "enable_gqa": False},
}
"""Arguments without which these draw random numbers, write to their weights or check less."""

_MAKERS = ("arange", "full", "ones", "zeros")  # these need the device
_WORDS = frozenset({"none", "tanh", "floor", "trunc", "same", "valid", "constant", "reflect",
                    "replicate", "circular"})  # fmt: skip
_DTYPES = ("bool", "int32", "int64", "float32", "float64")
_MEMORY = ("contiguous_format", "channels_last", "preserve_format")


@dataclass(frozen=True)
class NetworkFile:
    """A network that was read."""

    run: Callable[[Any], Any]
    """From float32 pixels of `shape` to an array with one row per image."""
    shape: tuple[int, int, int, int]
    """One image: 1, channels, height, width."""
    n_features: int
    digest: str
    """SHA-256 of the file."""


def save_network(
    network: nn.Module,
    file: str | os.PathLike[str],
    *,
    image_shape: tuple[int, int, int],
    shift: float | Sequence[float] = IMAGENET_SHIFT,
    scale: float | Sequence[float] = IMAGENET_SCALE,
) -> str:
    """Write a network of yours as a fixed map of pixels.

    Parameters
    ----------
    network : torch.nn.Module
        With its weights; what it returns for an image, flattened, are the features. Replace
        the last layer (``resnet.fc = torch.nn.Identity()``) to get the features it decides by.
    file : path
        To be written, ``.safetensors``.
    image_shape : tuple of int
        (channels, height, width) that the network takes.
    shift, scale : float or one per channel
        The network sees ``(pixels - shift) / scale`` of pixels from 0 to 255.

    Returns
    -------
    str
        SHA-256 of the file.

    Raises
    ------
    GuaranteeError
        If the network draws random numbers or changes its weights while it runs.
    InvalidInputError
        If it needs an operation that no file may hold.
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

    if Path(file).suffix != SUFFIX:
        raise InvalidInputError(f"A network is written to a {SUFFIX} file, got {str(file)!r}.")
    example = torch.zeros(1, *image_shape)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch warns of its own ways
        program = torch.export.export(OnPixels().eval(), (example,), strict=False)
        # Without in-place operations the signature names everything that is written to.
        program = program.run_decompositions({})
    data = _Writer(program, str(file)).written(tuple(example.shape))
    _parsed(data, str(file), "cpu")
    write_bytes(Path(file), data)
    return hashlib.sha256(data).hexdigest()


def open_network(file: str | os.PathLike[str], device: str = "cpu") -> NetworkFile:
    """Read a network, once: what is checked, digested and run are the same bytes."""
    try:
        data = read_regular_file(file, LARGEST_FILE)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"Cannot read the network {os.fspath(file)}: {said}.") from error
    digest = hashlib.sha256(data).hexdigest()
    if (digest, device) not in _OPENED:
        _OPENED[digest, device] = _parsed(data, os.fspath(file), device)
        if len(_OPENED) > 4:
            _OPENED.popitem(last=False)
    return _OPENED[digest, device]


_OPENED: OrderedDict[tuple[str, str], NetworkFile] = OrderedDict()
"""Networks read before, by the digest of their file and the device."""


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


class _Writer:
    """Writes an exported graph as a list of operations.

    Value 0 is the input, value i the result of operation i. An argument is a number, a word, a
    list, or an object with one key: ``value`` and ``array`` refer to results and weights.
    """

    def __init__(self, program: Any, name: str) -> None:
        self.program, self.name = program, name
        self.signature = program.graph_signature
        self.nodes: list[Any] = []
        self.arrays: dict[str, Any] = {}
        self.known: dict[Any, Any] = {}

    def written(self, shape: tuple[int, ...]) -> bytes:
        changed = self.signature.buffers_to_mutate | self.signature.user_inputs_to_mutate
        if changed:
            raise GuaranteeError(
                f"The network {self.name} changes {min(changed.values())} while it runs, so a row "
                "could influence the next row. Save it in evaluation mode: network.eval()."
            )
        (output,) = self.signature.user_outputs
        for node in self.program.graph.nodes:
            if node.op == "placeholder" and node.users:
                self._placeholder(node)
            elif node.op == "call_function":
                self._call(node)
        result = next(self.known[node] for node in self.known if node.name == output)
        about = {
            "format": FORMAT,
            "version": VERSION,
            "input": list(shape),
            "nodes": self.nodes,
            "output": result["value"],
        }
        text = json.dumps(about, allow_nan=False, separators=(",", ":"))
        return encode_tensors(self.arrays, {"network": text})

    def _placeholder(self, node: Any) -> None:
        if node.name in self.signature.user_inputs:
            self.known[node] = {"value": 0}
            return
        state, constants = self.program.state_dict, self.program.constants
        names = {
            **self.signature.inputs_to_parameters,
            **self.signature.inputs_to_buffers,
            **self.signature.inputs_to_lifted_tensor_constants,
        }
        if (target := names.get(node.name)) is None:
            return
        tensor = state[target] if target in state else constants[target]
        if str(tensor.dtype).removeprefix("torch.") not in _DTYPES:
            raise InvalidInputError(
                f"The network {self.name} has weights of {tensor.dtype} ({target}); "
                f"{', '.join(_DTYPES)} can be written. Convert it: network.float()."
            )
        self.arrays[node.name] = tensor.detach().contiguous().numpy()
        self.known[node] = {"array": node.name}

    def _call(self, node: Any) -> None:
        torch = _torch()
        target, tags = node.target, getattr(node.target, "tags", ())
        name = getattr(target, "__name__", str(target))
        if target is operator.getitem:
            if isinstance(self.known.get(node.args[0]), tuple):
                self.known[node] = self.known[node.args[0]][node.args[1]]
                return
            name = "getitem"
        elif name in ("alias.default", "detach.default"):
            self.known[node] = self.known[node.args[0]]
            return
        elif name in ("_assert_tensor_metadata.default", "_assert_scalar.default"):
            return
        elif torch.Tag.nondeterministic_seeded in tags and not _switched_off(node):
            raise GuaranteeError(
                f"The network {self.name} draws random numbers ({target}); features must be a "
                "function of the image. Save it in evaluation mode: network.eval()."
            )
        args = [self._argument(value) for value in node.args]
        kwargs = {
            key: self._argument(value)
            for key, value in node.kwargs.items()
            # Where and how a value lies in memory is not for a file to say.
            if key not in ("device", "layout", "pin_memory")
        }
        single = name == "_native_batch_norm_legit_no_training.default"
        if single:
            # The operator that checks the shapes of its weights; its result is the same.
            name = "batch_norm.default"
            args = [*args[:5], False, *args[5:], False]
        elif name in ("view.default", "_unsafe_view.default"):
            name = "reshape.default"  # images may lie in memory otherwise than the example did
        if name != "getitem" and name not in OPERATORS:
            raise InvalidInputError(
                f"The network {self.name} uses {target}, which a network file cannot hold. Put "
                "that step in front of the network or behind it, or write it with other operators."
            )
        self.nodes.append([name, args, kwargs])
        made = {"value": len(self.nodes)}
        self.known[node] = (made,) if single else made

    def _argument(self, value: Any) -> Any:
        torch = _torch()
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, (list, tuple)):
            return [self._argument(part) for part in value]
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.memory_format):
            return {"memory": str(value).removeprefix("torch.")}
        if value in self.known:
            return self.known[value]
        raise InvalidInputError(
            f"The network {self.name} uses {value} of type {type(value).__name__}, which a network "
            "file cannot hold."
        )


def _switched_off(node: Any) -> bool:
    """Return whether an operation such as dropout is switched to evaluation."""
    names = [argument.name for argument in node.target._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    training = given.get("train", given.get("training", given.get("dropout_p", 0.0) != 0.0))
    return training is False


def _parsed(data: bytes, name: str, device: str) -> NetworkFile:
    """Return the network that the bytes of a file describe, or raise."""
    torch = _torch()
    try:
        arrays, about = decode_tensors(data, name)
        graph = parse_json(about.get("network", ""))
        if not isinstance(graph, dict) or graph.get("format") != FORMAT:
            raise ValueError("it does not describe a network")
        parts = {"format", "version", "input", "nodes", "output"}
        if graph.get("version") != VERSION or set(graph) != parts or set(about) != {"network"}:
            raise ValueError(f"it is not of version {VERSION}, or holds more than a network")
        network = _Network(graph, arrays, name)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInputError(
            f"{name} is not a network file of poisonproof: {str(error)[:300]}. {_ADVICE}"
        ) from error
    # On this device shapes are computed, and nothing else.
    made = network.on("meta")(torch.empty(network.shape, device="meta"))
    found = None if not torch.is_tensor(made) else (made.dtype, tuple(made.shape))
    if found is None or found[0] != torch.float32 or len(found[1]) != 2 or found[1][0] != 1:
        raise InvalidInputError(
            f"The network {name} takes {list(network.shape)} and returns {found}; it must take "
            f"an image (1, channels, height, width) and return float32 (1, features). {_ADVICE}"
        )
    digest = hashlib.sha256(data).hexdigest()
    return NetworkFile(network.on(device), network.shape, int(found[1][1]), digest)


class _Network:
    """Operations that were read and checked one by one."""

    def __init__(self, graph: Mapping[str, Any], arrays: Mapping[str, Any], name: str) -> None:
        torch = _torch()
        self.name = name
        batch, channels, height, width = _sizes(graph["input"])
        self.shape = (batch, channels, height, width)
        self.tensors = {}
        for key, array in arrays.items():
            if array.dtype.name not in _DTYPES:
                raise ValueError(f"its array {key[:80]!r} is of {array.dtype}")
            self.tensors[key] = torch.from_numpy(array.copy())
        nodes, output = graph["nodes"], graph["output"]
        if not isinstance(nodes, list) or not 1 <= len(nodes) <= MOST_NODES:
            raise ValueError(f"a network has 1 to {MOST_NODES:,} operations")
        if type(output) is not int or not 1 <= output <= len(nodes):
            raise ValueError("its output is not the result of an operation")
        self.output = output
        self.last = {output: len(nodes) + 1}
        self.calls = [self._call(place + 1, node) for place, node in enumerate(nodes)]

    def _call(self, place: int, node: Any) -> tuple[Any, list[Any], dict[str, Any]]:
        if not isinstance(node, list) or list(map(type, node)) != [str, list, dict]:
            raise ValueError("an operation is a name, a list and an object")
        name, args, kwargs = node
        given = [self._argument(value, place) for value in args]
        named = {key: self._argument(value, place) for key, value in kwargs.items()}
        if name == "getitem":
            if len(given) != 2 or named or type(given[1]) is not int:
                raise ValueError("getitem takes a result and a number")
            return operator.getitem, given, named
        if name not in OPERATORS:
            raise ValueError(f"no network may use the operation {name[:80]!r}")
        base, _, overload = name.partition(".")
        function = getattr(getattr(_torch().ops.aten, base), overload)
        names = [argument.name for argument in function._schema.arguments]
        if len(given) > len(names) or not set(named) <= set(names[len(given) :]) - {"device"}:
            raise ValueError(f"{name} does not take these arguments")
        defaults = {a.name: a.default_value for a in function._schema.arguments}
        passed = {**defaults, **dict(zip(names, given, strict=False)), **named}
        for key, value in _REQUIRED.get(name, {}).items():
            if type(passed[key]) is not type(value) or passed[key] != value:
                raise GuaranteeError(
                    f"A network that calls {name} with {key}={passed[key]} may draw random numbers "
                    f"or change its weights; only {value} is allowed. {_ADVICE}"
                )
        widths = given[1] if base.endswith(("pad", "pad2d")) and len(given) > 1 else []
        if any(type(width) is not int or width < 0 for width in widths):
            raise ValueError(f"{name} takes no negative widths")
        if base in _MAKERS:
            named["device"] = _GIVEN
        return function, given, named

    def _argument(self, value: Any, place: int, depth: int = 0) -> Any:
        """Return an argument of operation `place`; references become functions of the values."""
        torch = _torch()
        if isinstance(value, (bool, float, type(None))):
            return value
        if isinstance(value, int):
            if not -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER:
                raise ValueError("an integer has more than 64 bits")
            return value
        if isinstance(value, str):
            if value not in _WORDS:
                raise ValueError(f"{value[:80]!r} is not a keyword of any operation")
            return value
        if isinstance(value, list) and depth < 3:
            return [self._argument(part, place, depth + 1) for part in value]
        if not isinstance(value, dict) or len(value) != 1:
            raise ValueError("an argument is a number, a word, a list or a reference")
        ((kind, what),) = value.items()
        if kind == "value" and type(what) is int and 0 <= what < place:
            self.last[what] = max(self.last.get(what, 0), place)
            return _Reference(what)
        if kind == "array" and isinstance(what, str) and what in self.tensors:
            return _Reference(what)
        if kind == "float" and what in ("inf", "-inf", "nan"):
            return float(what)
        if kind == "dtype" and what in _DTYPES:
            return getattr(torch, what)
        if kind == "memory" and what in _MEMORY:
            return getattr(torch, what)
        raise ValueError(f"{str(value)[:80]} refers to nothing before it")

    def on(self, device: str) -> Callable[[Any], Any]:
        """Return the network as a function of pixels on a device."""
        torch = _torch()
        tensors = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        forgotten: dict[int, list[int]] = {}
        for value, place in self.last.items():
            forgotten.setdefault(place, []).append(value)

        def run(pixels: Any) -> Any:
            values: dict[Any, Any] = {**tensors, 0: pixels}

            def filled(argument: Any) -> Any:
                if isinstance(argument, _Reference):
                    return values[argument.to]
                if isinstance(argument, list):
                    return [filled(part) for part in argument]
                return torch.device(device) if argument is _GIVEN else argument

            for place, (function, args, kwargs) in enumerate(self.calls, 1):
                named = {key: filled(value) for key, value in kwargs.items()}
                try:
                    result = function(*(filled(value) for value in args), **named)
                    _check_size(result)
                except Exception as error:  # whatever arguments that do not fit make torch raise
                    said = (str(error).splitlines() or [""])[0][:200]
                    if isinstance(error, MemoryError) or "alloc" in said:
                        raise
                    raise InvalidInputError(
                        f"The network {self.name} cannot run: operation {place}: {said}. {_ADVICE}"
                    ) from error
                values[place] = result
                for value in forgotten.get(place, ()):
                    del values[value]
            return values[self.output]

        return run


@dataclass(frozen=True)
class _Reference:
    """An earlier value, by its number, or a stored array, by its name."""

    to: int | str


def _check_size(result: Any) -> None:
    parts = result if isinstance(result, (list, tuple)) else (result,)
    if sum(part.numel() for part in parts if part is not None) > MOST_NUMBERS:
        raise ValueError(f"a result has more than {MOST_NUMBERS:,} numbers")


def _sizes(value: Any) -> list[int]:
    if not isinstance(value, list) or len(value) != 4 or value[0] != 1:
        raise ValueError("its input is not one image, (1, channels, height, width)")
    if not all(type(v) is int and v > 0 for v in value) or math.prod(value) > MOST_NUMBERS:
        raise ValueError("its input has impossible sizes")
    return value


def _torch() -> Any:
    with needing("torch", "torch"):
        import torch
    return torch

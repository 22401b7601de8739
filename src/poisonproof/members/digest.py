"""A digest of a fitted object: equal state, equal digest, in any process.

Hand-written because joblib.hash hashes a pickle, which differs where equal parts are one object.

The walk follows the protocol that Python objects offer for copying (`__reduce_ex__`), and hashes
what it finds by value. Nothing is pickled, and nothing that only identifies an object in memory
(its address, which strings are shared) reaches the digest. Nor does what an object keeps but votes
without: `NO_VOTE` names it.
"""

from __future__ import annotations

import dis
import hashlib
import struct
import sys
import types
from collections.abc import Iterable, Mapping
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.neighbors import BallTree, KDTree

from poisonproof.members.streams import WORKERS

FOLDERS: Mapping[str, frozenset[str]] = {
    "sklearn.pipeline.Pipeline": frozenset({"memory"}),
    "sklearn.cluster._agglomerative.AgglomerativeClustering": frozenset({"memory"}),
    "poisonproof.NetworkFeatures": frozenset({"cache"}),
}
"""Parameters that name a folder to work in, by class. They decide no vote, and no model decides
where its user reads and writes: a file has None in their place.
"""

NO_VOTE: Mapping[str, frozenset[str]] = {
    # The address of the stop words: whether they were checked already.
    "sklearn.feature_extraction.text._VectorizerMixin": frozenset({"_stop_words_id"}),
    # Seconds, and the scores of candidates that were not chosen.
    "sklearn.model_selection._search.BaseSearchCV": frozenset({"cv_results_", "refit_time_"}),
    # Seconds, and what only training and `set_params` need.
    "skorch.net.NeuralNet": frozenset({"callbacks_", "history_", "optimizer_", "virtual_params_"}),
    # Set by a prediction.
    "torch.nn.modules.module.Module": frozenset({"training"}),
    "catboost.core.CatBoost": frozenset(
        {"_loss_value_change", "_prediction_values_change", "_test_evals"}
    ),
}
"""Attributes that decide no vote, by class, subclasses included: times, addresses, statistics.

An object predicts without them, so a file may leave them out. The parameters in `WORKERS` decide
none either, because members are trained with one value of them; a file keeps them.
"""

_CATBOOST_NOTES = frozenset({"model_guid", "output_options", "train_finish_time", "training"})
"""Notes on its training in a CatBoost model, besides its trees: times, paths, a random name."""

_SKORCH_FILE = "__cuda_dependent_attributes__"
"""The name under which skorch keeps a file by torch with networks, optimiser and all."""


def class_name(kind: type) -> str:
    """Return the name of a class in digests; classes of this package may move between modules."""
    return _full_name(kind.__module__, kind.__qualname__)


def _full_name(module: str, name: str) -> str:
    return f"{'poisonproof' if module.startswith('poisonproof.') else module}.{name}"


def deciding_state(value: Any, state: Any) -> Any:
    """Return what an object's state (of `__reduce_ex__`) holds that can decide a vote.

    Attributes come in the order of their names. What a class computes from others when it is first
    read (`functools.cached_property`) is left out.
    """
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        return state
    kind: Any = type(value)
    idle = idle_attributes(kind)
    workers = WORKERS if hasattr(value, "get_params") else ()
    return {
        name: state[name]
        for name in sorted(state)
        if name not in idle and name.split("__")[-1] not in workers
    }


@cache
def idle_attributes(kind: type) -> frozenset[str]:
    """Return the names of attributes of a class that decide no vote."""
    known = [_named(NO_VOTE, kind), _named(FOLDERS, kind)]
    cached = [
        name
        for base in kind.__mro__
        for name, part in vars(base).items()
        if isinstance(part, cached_property)
    ]
    return frozenset(cached).union(*known)


def _named(table: Mapping[str, frozenset[str]], kind: type) -> frozenset[str]:
    """Return what a table lists for a class and its bases."""
    names = map(class_name, kind.__mro__)
    return frozenset[str]().union(*(table.get(name, frozenset()) for name in names))


def forget_folders(value: Any) -> None:
    """Set the parameters in `FOLDERS` to None, in place and in all parts of an object."""
    waiting, seen = [value], dict[int, Any]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, str | bytes | int | float | type | None):
            continue
        seen[id(part)] = part
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple | set):
            waiting += part
        elif isinstance(part, np.ndarray):
            waiting += part.ravel().tolist() if part.dtype.hasobject else []
        elif isinstance(state := getattr(part, "__dict__", None), dict):
            state.update(dict.fromkeys(_named(FOLDERS, type(part)) & state.keys()))
            waiting += state.values()


def state_digest(value: Any) -> str:
    """Return the hexadecimal digest of a fitted object's state."""
    return _Walk().digest(value).hex()


class _Walk:
    """One pass over an object graph, by content, whichever equal parts are one object."""

    def __init__(self) -> None:
        self.known: dict[int, bytes] = {}
        self.path: list[int] = []
        # Objects are kept alive so that an id is not used twice during the walk.
        self.alive: list[Any] = []

    def digest(self, value: Any) -> bytes:
        scalar = _scalar_bytes(value)
        if scalar is not None:
            return _hash(scalar[0], [scalar[1]])
        if id(value) in self.known:
            return self.known[id(value)]
        if id(value) in self.path:
            return _hash("cycle", [str(self.path[::-1].index(id(value))).encode()])
        self.alive.append(value)
        self.path.append(id(value))
        self.known[id(value)] = result = self.digest_parts(value)
        self.path.pop()
        return result

    def digest_parts(self, value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            return self.digest_array(value)
        if issparse(value):
            matrix: Any = value
            csr = matrix.tocsr()
            parts = [self.digest_array(part) for part in (csr.indptr, csr.indices, csr.data)]
            return _hash(f"sparse {matrix.format} {matrix.shape}", parts)
        if isinstance(value, Mapping):
            pairs = [self.digest(part) for item in value.items() for part in item]
            return _hash("mapping", pairs)
        if isinstance(value, (list, tuple)):
            return _hash(type(value).__name__, [self.digest(item) for item in value])
        if isinstance(value, (set, frozenset)):
            return _hash("set", sorted(self.digest(item) for item in value))
        if isinstance(value, types.FunctionType):
            return self.digest_function(value)
        if isinstance(value, type):
            return self.digest_class(value)
        if isinstance(value, types.CodeType):
            parts = [self.digest(value.co_names), self.digest(value.co_consts)]
            return _hash("code", [value.co_code, *parts])
        if type(value) is partial:  # its own state also tells whether anyone looked at its dict
            return _hash("partial", map(self.digest, (value.func, value.args, value.keywords)))
        if isinstance(value, (KDTree, BallTree)):
            return self.digest_neighbour_tree(value)
        if isinstance(value, np.random.RandomState):
            # Its generator also remembers what it was seeded from, which a stored one does not.
            return _hash("stream", [self.digest(value.get_state(legacy=False))])
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return self.digest_tensor(value)
        return self.digest_object(value)

    def digest_array(self, array: np.ndarray[Any, Any]) -> bytes:
        if array.dtype.names is not None:
            # Field by field: the padding between fields holds whatever was in memory.
            parts = [self.digest_array(array[name]) for name in array.dtype.names]
            return _hash(f"fields {array.shape} {array.dtype.names}", parts)
        if array.dtype.hasobject:
            return _hash(f"objects {array.shape}", [self.digest(item) for item in array.ravel()])
        return _hash(f"array {array.dtype.str} {array.shape}", [array.tobytes()])

    def digest_function(self, function: types.FunctionType) -> bytes:
        name = _full_name(function.__module__, function.__qualname__).encode()
        if "<" not in function.__qualname__ and _is_installed(function.__module__):
            return _hash("global", [name])
        # A name does not identify a lambda, an inner function or one of the user's own program,
        # which may be another one tomorrow: the code, its cells and what it reads decide.
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        parts = [function.__code__, function.__defaults__, function.__kwdefaults__, cells]
        read = _globals_of(function)
        return _hash("function", [name, *map(self.digest, parts), self.digest(read)])

    def digest_class(self, cls: type) -> bytes:
        """Hash a class of the user's own program by what it does, and with which constants."""
        name = class_name(cls).encode()
        own = {
            key: part
            for key, part in vars(cls).items()
            if isinstance(part, _CODE) or (not key.startswith("__") and _is_constant(part))
        }
        parts = [self.digest(part) for key in sorted(own) for part in (key, _function(own[key]))]
        return _hash("class", [name, *map(self.digest, cls.__bases__), *parts])

    def digest_neighbour_tree(self, tree: Any) -> bytes:
        """Leave out the counters by which these trees note how often they were searched."""
        _, (kind,), state = tree.__reduce__()
        parts = [part for part in state if not isinstance(part, int)]
        return _hash("neighbours", [self.digest(kind), *map(self.digest, parts)])

    def digest_tensor(self, tensor: Any) -> bytes:
        """Hash the values: a tensor's own state names the place where they lie in memory."""
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        values = flat.view(sys.modules["torch"].uint8).numpy().tobytes()
        return _hash(f"tensor {tensor.dtype} {tuple(tensor.shape)}", [values])

    def digest_object(self, value: Any) -> bytes:
        if class_name(type(value)) == "xgboost.core.Booster":  # without settings of its training
            return _hash("xgboost", [bytes(value.save_raw("json"))])
        reduced = _without_notes(value).__reduce_ex__(4)
        if isinstance(reduced, str):
            return _hash("global", [_full_name(type(value).__module__, reduced).encode()])
        arguments, state = (*reduced[1:3], None)[:2]
        if isinstance(state, dict) and _SKORCH_FILE in state:
            state = vars(value)
        parts = [self.digest(arguments), self.digest(deciding_state(value, state))]
        parts += [self.digest(None if part is None else list(part)) for part in reduced[3:5]]
        if not _is_installed(type(value).__module__):
            parts.append(self.digest(type(value)))
        return _hash(f"object {class_name(type(value))}", parts)


def _without_notes(value: Any) -> Any:
    """Return an object, a CatBoost model without what it notes about its training."""
    catboost = sys.modules.get("catboost")
    if catboost is None or not isinstance(value, catboost.CatBoost) or not value.is_fitted():
        return value
    bare = value.copy()
    notes = bare.get_metadata()
    for name in _CATBOOST_NOTES & set(notes.keys()):
        del notes[name]
    return bare


_CODE = (types.FunctionType, staticmethod, classmethod, property)
_READ_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")


def _function(part: Any) -> Any:
    """Return the function behind what a class holds under a name."""
    return part.fget if isinstance(part, property) else getattr(part, "__func__", part)


def _globals_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the constants, functions and classes of the user's program that a function reads."""
    names = _names_read(function.__code__)
    known = {name: function.__globals__[name] for name in names & function.__globals__.keys()}
    return {name: known[name] for name in sorted(known) if _is_written(known[name])}


@cache
def _names_read(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals that code reads, and the code within it."""
    inner = [_names_read(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    own = {step.argval for step in dis.get_instructions(code) if step.opname in _READ_GLOBAL}
    return frozenset(own).union(*inner)


def _is_written(value: Any) -> bool:
    """Return whether a value stands in the user's own program, and stays as it is."""
    if isinstance(value, (types.FunctionType, type)):
        return not _is_installed(value.__module__)
    return _is_constant(value)


def _is_constant(value: Any) -> bool:
    """Return whether a value is a number, a text or an array, or a tuple of these."""
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    numbers = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return numbers or isinstance(value, (bool, int, float, str, bytes, np.generic))


@cache
def _is_installed(module: str | None) -> bool:
    """Return whether a module is Python's or an installed package's: a name says enough."""
    root = (module or "builtins").split(".")[0]
    if root == "poisonproof" or root in sys.stdlib_module_names:
        return True
    if root == "__main__":  # under python -m, its file is that of the package that was started
        return False
    path = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" in path or "dist-packages" in path


def _hash(tag: str, parts: Iterable[bytes]) -> bytes:
    state = hashlib.blake2b(digest_size=32, person=b"poisonproof-mem")
    for part in (tag.encode("utf-8", "surrogatepass"), *parts):
        state.update(struct.pack("<Q", len(part)))
        state.update(part)
    return state.digest()


def _scalar_bytes(value: Any) -> tuple[str, bytes] | None:
    """Encode what has no parts; None for everything else."""
    if value is None or value is Ellipsis or value is NotImplemented:
        return "constant", repr(value).encode()
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        return "numpy", value.dtype.str.encode() + value.tobytes()
    if isinstance(value, (bool, int)):
        return type(value).__name__, str(int(value)).encode()
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, str):
        return "str", value.encode("utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray)):
        return "bytes", bytes(value)
    if isinstance(value, np.dtype):
        return "dtype", str(value).encode()
    if isinstance(value, types.ModuleType):
        return "module", value.__name__.encode()
    if isinstance(value, type) and not _is_installed(value.__module__):
        return None
    if isinstance(value, (type, types.BuiltinFunctionType, np.ufunc)):
        module = getattr(value, "__module__", "numpy")
        return "global", _full_name(module, getattr(value, "__qualname__", value.__name__)).encode()
    return None

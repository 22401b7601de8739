"""scikit-learn objects as bytes, through skops and a fixed list of trusted types: never pickle."""

from __future__ import annotations

import inspect
import io
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from poisonproof import features
from poisonproof.exceptions import StoreError
from poisonproof.members import closed_form
from poisonproof.members.digest import forget_folders, idle_attributes
from poisonproof.store.boosters import BOOSTERS, build_booster, xgboost_model
from poisonproof.store.checks import LOADED, check_parts
from poisonproof.strict import Buffer, check_zip, strict_json

if TYPE_CHECKING:
    from collections.abc import Iterator

# To know scikit-learn's estimators skops imports all packages of scikit-learn; two that hold none
# are wrappers of torch and Dask, which take longer to import than a model to read.
_WRAPPERS = (
    "sklearn.externals.array_api_compat.torch",
    "sklearn.externals.array_api_compat.dask",
)


def skops_io() -> Any:
    """Return the module ``skops.io``, which checks trees before it makes them."""
    if "skops.io" not in sys.modules:
        with _passed_over(_WRAPPERS):
            import_module("skops.io")
    skops = import_module("skops.io")  # waits, if another thread is importing it
    _check_first()
    return skops


_UNCHECKED: ContextVar[frozenset[str]] = ContextVar("_UNCHECKED", default=frozenset())
"""The types that whoever is loading an object trusts."""


@cache
def _check_first() -> None:
    """Let skops look at what trees and boosters are made of before native code takes it."""
    from skops.io._audit import NODE_TYPE_MAPPING
    from skops.io._general import ObjectNode
    from skops.io._sklearn import TreeNode

    class CheckedObjectNode(ObjectNode):
        def _construct(self) -> Any:
            name = f"{self.module_name}.{self.class_name}"
            if name in BOOSTERS.values():
                state = self.attrs.construct()
                return build_booster(name, state, checked=name not in _UNCHECKED.get())
            return super()._construct()

    class CheckedTreeNode(TreeNode):
        def _construct(self) -> Any:
            _, n_classes, n_outputs = self.args.construct()
            state = self.attrs.construct()
            nodes, values = (np.asarray(state[name]) for name in ("nodes", "values"))
            if (
                not isinstance(n_outputs, int)
                or np.shape(n_classes) != (n_outputs,)
                or (nodes.ndim, values.ndim) != (1, 3)
            ):
                raise ValueError("the arrays of a tree have shapes that no tree has")
            return super()._construct()

    checked = {TreeNode: CheckedTreeNode, ObjectNode: CheckedObjectNode}
    for key, kind in NODE_TYPE_MAPPING.items():
        NODE_TYPE_MAPPING[key] = checked.get(kind, kind)


@contextmanager
def _passed_over(names: tuple[str, ...]) -> Iterator[None]:
    """Make optional modules unimportable while skops loads."""
    absent = [name for name in names if name not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(absent))
    try:
        yield
    finally:
        for name in absent:
            modules.pop(name, None)


TRUSTED = (
    *BOOSTERS,
    *BOOSTERS.values(),
    "collections.OrderedDict",
    "numpy.dtype",
    "scipy.sparse._csc.csc_array",
    "scipy.sparse._csc.csc_matrix",
    "scipy.sparse._csr.csr_array",
    "scipy.sparse._csr.csr_matrix",
    "functools.partial",  # of `check_array` alone, see `check_parts`
    "poisonproof.networks.learner.TorchLearner",
    "poisonproof.members.closed_form.kernel_ridge.KernelMembers",
    "poisonproof.members.closed_form.linear.LinearMembers",
    "poisonproof.members.closed_form.scaled_kernel.ScaledKernelMembers",
    "poisonproof.members.clusters.SpectralClusters",
    "poisonproof.members.committee.Committee",
    "poisonproof.members.weights.WalkWeights",
    "poisonproof.networks.pretraining.frozen.FrozenNetwork",
    "poisonproof.networks.pretraining.pretrain_spec.PretrainSpec",
    *map(
        "sklearn.{}".format,
        """
        calibration._CalibratedClassifier calibration._SigmoidCalibration
        ensemble._hist_gradient_boosting.predictor.TreePredictor
        gaussian_process._gpc.GaussianProcessClassifier
        gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace
        gaussian_process.kernels.ConstantKernel gaussian_process.kernels.Product
        gaussian_process.kernels.RBF linear_model._sgd_fast.EpsilonInsensitive
        linear_model._sgd_fast.Hinge linear_model._sgd_fast.ModifiedHuber
        linear_model._sgd_fast.SquaredEpsilonInsensitive linear_model._sgd_fast.SquaredHinge
        metrics._classification.balanced_accuracy_score metrics._dist_metrics.ChebyshevDistance64
        metrics._dist_metrics.EuclideanDistance64 metrics._dist_metrics.ManhattanDistance64
        metrics._scorer._CurveScorer metrics._scorer._PassthroughScorer metrics._scorer._Scorer
        model_selection._split.StratifiedKFold multiclass._ConstantPredictor
        neighbors._ball_tree.BallTree neighbors._kd_tree.KDTree
        neural_network._stochastic_optimizers.AdamOptimizer
        neural_network._stochastic_optimizers.SGDOptimizer tree._tree.Tree utils._bunch.Bunch
        utils._metadata_requests.MetadataRequest utils._metadata_requests.MethodMetadataRequest
        utils.validation.check_array
        """.split(),  # noqa: SIM905 - as below
    ),
)
"""Types that skops does not trust and that are checked here (see `check_parts`, `boosters`)."""

_INTERNAL = ("sklearn._loss.", "sklearn.ensemble._hist_gradient_boosting.binning.")
_MOST_PARTS = 2**24
"""Parts of an object, counted as often as they occur: a few that share others make billions."""

_SCHEMA = "schema.json"
_NONE = {
    "__class__": "str",
    "__module__": "builtins",
    "__loader__": "JsonNode",
    "content": "null",
    "is_json": True,
}
"""The form in which skops writes None."""


@cache
def _known(trusted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the types that may be built: the list above, this library's own, and `trusted`."""
    public = [
        getattr(module, name) for module in (closed_form, features) for name in module.__all__
    ]
    own = {f"{kind.__module__}.{kind.__qualname__}" for kind in public if isinstance(kind, type)}
    # This one opens a folder of weights and settings with another library.
    own.discard("poisonproof.features.texts.SentenceEmbedding")
    return tuple(sorted({*TRUSTED, *own, *trusted}))


def encode_object(value: Any) -> bytes:
    """Encode a scikit-learn object, fitted or not; equal objects give equal bytes everywhere.

    skops writes addresses, the time of day, sets in the order of a hash and the padding of arrays.
    What it wrote is written again without them, and without attributes that decide no vote.
    """
    with zipfile.ZipFile(io.BytesIO(skops_io().dumps(value))) as written:
        return _Rewriting(written).archive()


class _Rewriting:
    """One pass over an archive of skops, in the order of its schema."""

    def __init__(self, written: zipfile.ZipFile) -> None:
        self._written = written
        self._count = 0
        self._files: dict[bytes, str] = {}
        self._snapshots: set[str] = set()

    def archive(self) -> bytes:
        """Return the archive that depends on what it holds and on nothing else."""
        schema = strict_json(self._written.read(_SCHEMA), "an object to be stored")
        _forget_idle(schema)
        self._number(schema)
        text = json.dumps(schema, separators=(",", ":")).encode()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name, data in [*((n, d) for d, n in self._files.items()), (_SCHEMA, text)]:
                archive.writestr(zipfile.ZipInfo(name), data)  # which has a fixed date
        return buffer.getvalue()

    def _number(self, value: Any) -> None:
        """Replace addresses by numbers, and names of files by numbers of their contents."""
        if isinstance(value, list):
            for part in value:
                self._number(part)
        if not isinstance(value, dict):
            return
        if _is_node(value):
            if value["__loader__"] == "SetNode":
                value["content"].sort(key=self._order)
            if value["__class__"] == "Booster" and value["__module__"] == "xgboost.core":
                self._snapshots.add(value["content"]["content"]["handle"]["file"])
            if isinstance(value.get("file"), str):
                data = _without_padding(self._written.read(value["file"]))
                if value["file"] in self._snapshots:
                    data = xgboost_model(data)
                suffix = value["file"].rpartition(".")[2]
                value["file"] = self._files.setdefault(data, f"{len(self._files)}.{suffix}")
            # One for every object, as equal parts may be one object in memory, or several.
            self._count += 1  # skops takes 0 for none
            value["__id__"] = self._count
        for part in value.values():
            self._number(part)

    def _order(self, node: Any) -> str:
        """Return what an element of a set is sorted by: its content, without addresses."""
        if isinstance(node, list):
            return json.dumps([self._order(part) for part in node])
        if not isinstance(node, dict):
            return json.dumps(node)
        parts = {key: self._order(part) for key, part in node.items() if key != "__id__"}
        if isinstance(node.get("file"), str):
            parts["file"] = self._written.read(node["file"]).hex()
        return json.dumps(parts, sort_keys=True)


def _is_node(value: dict[str, Any]) -> bool:
    """Return whether a part of a schema is an object, and not a dict of objects by key."""
    return isinstance(value.get("__loader__"), str)


def _forget_idle(value: Any) -> None:
    """Take out of a schema what decides no vote; parameters, which must be there, become None."""
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            _forget_idle(part)
    state = value.get("content") if isinstance(value, dict) and _is_node(value) else None
    if not isinstance(state, dict) or state.get("__loader__") != "DictNode":
        return
    kind = getattr(sys.modules.get(value["__module__"]), value["__class__"], object)
    names = list(state["content"])
    for name in sorted(idle_attributes(kind) & set(names)) if isinstance(kind, type) else ():
        if name in inspect.signature(kind).parameters:
            state["content"][name] = _NONE | {"__id__": state["content"][name]["__id__"]}
        else:
            del state["content"][name]
            del state["key_types"]["content"][names.index(name)]
            names.remove(name)


def _without_padding(data: bytes) -> bytes:
    """Zero the padding between the fields of an array of records, which holds leftover memory."""
    if not data.startswith(b"\x93NUMPY\x01\x00") or b"'descr': [" not in data[:64]:
        return data
    stream = io.BytesIO(data)
    np.lib.format.read_magic(stream)
    dtype = np.lib.format.read_array_header_1_0(stream)[2]
    items = np.frombuffer(data, dtype, offset=stream.tell())
    clean = np.zeros(len(items), dtype)
    for name in dtype.names or ():
        clean[name] = items[name]
    return data[: stream.tell()] + clean.tobytes()


def types_of(value: Any) -> list[str]:
    """Return the types to trust in an object that this process has built itself, once fitted."""
    return sorted(skops_io().get_untrusted_types(data=encode_object(value)))


def untrusted_types(data: Any, name: str, trusted: Iterable[str] = ()) -> set[str]:
    """Return all types in an object that would be refused."""
    content = bytes(data)
    with _decoding(name):
        found = {*_strange(content, name), *skops_io().get_untrusted_types(data=content)}
    return found - set(_known(tuple(sorted(trusted))))


@contextmanager
def _decoding(name: str) -> Iterator[None]:
    """Turn what a damaged object makes skops and its own code raise into `StoreError`."""
    try:
        yield
    except StoreError:
        raise
    except ModuleNotFoundError as error:
        raise StoreError(
            f"{name} needs the module {error.name!r}, whose code no model carries: it cannot be "
            "imported here. Install it, or put its file where Python looks (PYTHONPATH)."
        ) from error
    except Exception as error:
        what = f"{type(error).__name__}: {str(error)[:200]}"
        raise StoreError(f"{name} cannot be decoded: {what}.") from error


def refuse_types(name: str, strange: Iterable[str]) -> NoReturn:
    """Raise `StoreError` that lists types, and says how to trust them."""
    listed = [kind[:100] for kind in sorted(strange)[:50]]
    raise StoreError(
        f"{name} holds types that poisonproof does not load by itself: {listed}. If you "
        f"trust where the model comes from, name them: load(path, trusted={listed}), or "
        f"--trusted {','.join(listed)} on the command line."
    )


def decode_object(data: Buffer, name: str, trusted: Iterable[str] = ()) -> Any:
    """Decode what `encode_object` wrote; types outside `LOADED` and `trusted` are refused."""
    skops = skops_io()
    from skops.io.exceptions import UntrustedTypesFoundException

    trusted = frozenset(trusted)
    known = _known(tuple(sorted(trusted)))
    content = bytes(data)
    with _decoding(name):
        strange = _strange(content, name) - set(known)
        token = _UNCHECKED.set(trusted)
        try:
            value = None if strange else skops.loads(content, trusted=list(known))
        except UntrustedTypesFoundException:
            strange = {name}
        finally:
            _UNCHECKED.reset(token)
    if strange:
        refuse_types(name, untrusted_types(content, name, trusted))
    check_parts(value, name, trusted)
    forget_folders(value)
    return value


def _strange(content: bytes, name: str) -> set[str]:
    """Return the estimators of an archive that are not checked here, before anything is built."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for part in check_zip(archive, stored=True):
            if part.endswith(".npz"):  # a sparse matrix
                with archive.open(part) as file, zipfile.ZipFile(file) as inner:
                    size_of = sum(entry.file_size for entry in check_zip(inner).values())
                if size_of > 100 * len(content):
                    raise ValueError(f"{part} unpacks to {size_of:,} bytes")
        schema = strict_json(archive.read(_SCHEMA), name)
    sizes: dict[Any, int] = {}
    found: set[str] = set()
    known = {*BOOSTERS, *BOOSTERS.values()}

    def size(value: Any) -> int:
        if isinstance(value, list):
            return sum(map(size, value)) + 1
        if not isinstance(value, dict):
            return 1
        kind = f"{value.get('__module__')}.{value.get('__class__')}"
        if kind.startswith("scipy.sparse.") and value.get("__loader__") != "SparseMatrixNode":
            raise ValueError("a sparse matrix in it would be converted before it is checked")
        if kind in known and value.get("__loader__") != "ObjectNode":
            raise ValueError(f"a {kind} in it would be built before it is checked")
        found.add(kind)
        number = value.get("__id__")
        total = sum(map(size, value.values())) + 1
        # A part with the number of an earlier one stands for that one, as often as it occurs.
        if not number or isinstance(number, (dict, list)):
            return total
        return sizes.setdefault(number, total)

    if size(schema) > _MOST_PARTS:
        raise ValueError(f"it has more than {_MOST_PARTS:,} parts")
    return {
        kind
        for kind in found
        if kind.startswith("sklearn.")
        and kind.rpartition(".")[2] not in LOADED
        and not kind.startswith(_INTERNAL)
    }

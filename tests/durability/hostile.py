"""Files that a stranger made: model directories and network files, thousands of them.

``python -m tests.durability.hostile --cases 10000 --out benchmarks/results/hostile_files.json``
tries so many; ``--seconds 3600`` goes on for an hour instead. Every case is made from a good file
by a seed and its number (``--only NUMBER`` repeats one). A worker process with little memory loads
it, predicts, certifies and audits; names and digests are those of the changed content, for whoever
can change a file can correct them. Allowed is one clear error, or a model that votes alike twice.
Anything else is counted as a failure: a signal, another exception, a case that takes too long,
code or modules that run, and a file that was written, changed or deleted anywhere.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof.store.items import decode_members
from poisonproof.store.manifest import (
    Item,
    canonical_json,
    content_name,
    decode_block,
    encode_block,
)
from poisonproof.strict import decode_tensors, encode_tensors

from ..store.tampering import reprinted

Files = dict[str, bytes]
Rng = np.random.Generator

MEMORY = 8 * 2**30
"""Address space of a worker; torch alone reserves some of it."""

PATIENCE = 60.0
"""Seconds for one case."""

HOSTILE: list[Any] = [
    *(None, True, False, -1, 0, 1, 7, 255, 2**31, -(2**31), 2**63, 2**70, 10**300, 0.5, -1e308),
    *("", "x", "../../../etc/passwd", "/dev/zero", "os.system", "a" * 10_000, "\x1b[2J", "\ud800"),
    *([], {}, [[[[[[[[]]]]]]]], [2**62] * 9, [-1, -1], {"value": 0}, [{}]),
    {"name": "/etc/passwd", "bytes": 10, "items": [0]},
    {"__class__": "system", "__module__": "os", "__loader__": "FunctionNode"},
    {"__class__": "Popen", "__module__": "subprocess", "__loader__": "ObjectNode", "content": None},
]
TEXTS = [
    '{"a": 1, "a": 2}',
    '{"format": "poisonproof-model", "format": "x"}',
    "[" * 100_000,
    "NaN",
    "1" * 5000,
    "",
    "\ufeff{}",
]


def pick(options: Any, rng: Rng) -> Any:
    return options[int(rng.integers(len(options)))]


# --- changes of values -------------------------------------------------------------------------


def changed_json(value: Any, rng: Rng) -> str:
    """Return a text that differs from that of `value` in one place, or is no JSON."""
    if rng.random() < 0.05:
        return str(pick(TEXTS, rng))
    value = json.loads(json.dumps(value))
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part))
        places += [(part, key) for key in keys]
        waiting += [part[key] for key in keys if isinstance(part[key], (dict, list))]
    if not places:
        return json.dumps(pick(HOSTILE, rng))
    part, key = pick(places, rng)
    other, place = pick(places, rng)
    kind = rng.random()
    if kind < 0.4:
        part[key] = pick(HOSTILE, rng)
    elif kind < 0.6:
        part[key] = json.loads(json.dumps(other[place]))
    elif kind < 0.7:
        del part[key]
    elif kind < 0.8 and isinstance(part, list):
        part.insert(int(key), part[key])
    elif isinstance(part[key], (int, float)):
        part[key] = pick([part[key] + 1, part[key] - 1, -part[key], part[key] * 1000], rng)
    else:
        part[key], other[place] = other[place], part[key]
        if _circular(value):
            return "{}"
    text = json.dumps(value)
    if rng.random() < 0.05 and text.startswith("{") and len(text) > 2:
        return text[:-1] + "," + text[1:]  # every key twice
    return text


def _circular(value: Any) -> bool:
    try:
        json.dumps(value)
    except (ValueError, RecursionError):
        return True
    return False


def changed_array(array: Any, rng: Rng) -> Any:
    """Return an array of another shape, another dtype or with other numbers."""
    array = np.array(array)
    kind = int(rng.integers(8))
    if kind == 0 and array.ndim:
        return array[: int(rng.integers(len(array) + 1))]
    if kind == 1 and array.ndim:
        return np.concatenate([array] * 3)
    if kind == 2:
        return array.reshape(-1)[: max(1, array.size // 2)]
    if kind == 3:
        return array[None]
    if kind == 4 and array.dtype.names is None:
        return array.astype(pick(["f4", "f8", "i1", "i4", "i8", "u1", "?"], rng), copy=False)
    if kind == 5 and array.ndim > 1:
        return np.ascontiguousarray(np.moveaxis(array, 0, -1))
    flat = array.reshape(-1)
    if flat.size and array.dtype.names:
        field = pick(array.dtype.names, rng)
        numbers = flat[field].copy()
        flat[field] = _with_extremes(numbers, rng)
    elif flat.size and array.dtype.kind in "biuf":
        flat[:] = _with_extremes(flat.copy(), rng)
    return array


def _with_extremes(numbers: Any, rng: Rng) -> Any:
    extremes: list[Any] = [-1, 0, 1, len(numbers), 10**6]
    if numbers.dtype.kind == "f":
        extremes += [np.nan, np.inf, -np.inf, 1e308, -0.0]
    elif numbers.dtype.kind in "iu":
        limits = np.iinfo(numbers.dtype)
        extremes += [limits.max, limits.min, limits.max // 2]
    where = rng.random(len(numbers)) < pick([0.01, 0.5, 1.1], rng)
    where[int(rng.integers(len(numbers)))] = True
    with np.errstate(all="ignore"):
        numbers[where] = np.array([pick(extremes, rng)]).astype(numbers.dtype)
    return numbers


def changed_npy(data: bytes, rng: Rng) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return changed_bytes(data, rng)
    array = np.load(io.BytesIO(data))
    if kind < 0.2:
        shape = pick(["(1000000000,)", "(-1,)", "(4611686018427387904, 4)", "()", "(0, 99)"], rng)
        descr = pick([array.dtype.str, "|O", "<f8", "|V9", "<U1000000000"], rng)
        text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
        padded = text.ljust(117) + "\n"
        return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode() + data
    file = io.BytesIO()
    np.save(file, changed_array(array, rng), allow_pickle=False)
    return file.getvalue()


def changed_bytes(data: bytes, rng: Rng) -> bytes:
    changed = bytearray(data)
    kind = int(rng.integers(4))
    if kind == 0:
        return bytes(changed[: int(rng.integers(len(changed) + 1))])
    if kind == 1:
        return bytes(changed) + rng.bytes(int(rng.integers(1, 50)))
    # Heads and directories stand at the ends.
    reach = len(changed) if rng.random() < 0.5 else min(len(changed), 200)
    for _ in range(int(rng.integers(1, 9)) if changed else 0):
        place = (
            int(rng.integers(reach)) if kind == 2 else len(changed) - 1 - int(rng.integers(reach))
        )
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


# --- changes of archives -----------------------------------------------------------------------


def zipped(contents: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore", UserWarning)
        for name, data in contents:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def changed_zip(contents: list[tuple[str, bytes]], rng: Rng) -> bytes:
    """Return an archive that readers may read in different ways."""
    name, data = pick(contents, rng)
    kind = int(rng.integers(8))
    if kind == 0:  # the same name again, other content
        extra = [(name, changed_bytes(data, rng))] * int(rng.integers(1, 9))
        return zipped(extra + contents if rng.random() < 0.5 else contents + extra)
    if kind == 1:
        return zipped(contents, zipfile.ZIP_DEFLATED)
    if kind == 2:
        strange = pick(["../../evil", "/etc/evil", "objects/evil", "a\\b", "", "x" * 60_000], rng)
        return zipped([*contents, (strange, b"x")])
    whole = bytearray(zipped(contents))
    directory = list(_found(whole, b"PK\x01\x02"))
    entry = pick(directory, rng)
    if kind == 3:  # another name in front of the bytes than in the directory
        place = whole.index(b"PK\x03\x04") + 30
        whole[place] ^= 1
    elif kind == 4:  # two entries share their bytes
        other = pick(directory, rng)
        whole[entry + 42 : entry + 46] = whole[other + 42 : other + 46]
    elif kind == 5:  # sizes and places of the directory
        place = entry + int(pick([8, 10, 20, 24, 28, 30, 42], rng))
        whole[place : place + 4] = int(rng.integers(2**32)).to_bytes(4, "little")
    elif kind == 6:
        return rng.bytes(99) + bytes(whole) if rng.random() < 0.5 else bytes(whole) + rng.bytes(99)
    else:
        return changed_bytes(bytes(whole), rng)
    return bytes(whole)


def _found(data: bytearray, mark: bytes) -> Iterator[int]:
    place = data.find(mark)
    while place >= 0:
        yield place
        place = data.find(mark, place + 1)


def changed_skops(data: bytes, rng: Rng) -> bytes:
    """Return a stored object with other arrays, another description or another archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        contents = [(name, archive.read(name)) for name in archive.namelist()]
    kind = rng.random()
    arrays = [place for place, (name, _) in enumerate(contents) if name.endswith(".npy")]
    if kind < 0.6 and arrays:
        for _ in range(int(rng.integers(1, 3))):
            place = pick(arrays, rng)
            name, content = contents[place]
            if rng.random() < 0.1:
                contents[place] = (name, contents[pick(arrays, rng)][1])
            else:
                try:
                    contents[place] = (name, changed_npy(content, rng))
                except Exception:  # it was changed before, and is none any more
                    contents[place] = (name, changed_bytes(content, rng))
        return zipped(contents)
    if kind < 0.9:
        described = [
            (name, changed_json(json.loads(content), rng).encode("utf-8", "surrogatepass"))
            if name == "schema.json"
            else (name, content)
            for name, content in contents
        ]
        return zipped(described)
    return changed_zip(contents, rng)


# --- changes of models -------------------------------------------------------------------------


def renamed(files: Files, old: str, data: bytes, *, elsewhere: bool = False) -> Files:
    """Replace an object and correct its name and size wherever the manifest has them.

    With `elsewhere` the manifest says that other versions trained the model, and then members of
    scikit-learn have no digest that could be compared.
    """
    name = content_name(data)
    manifest = json.loads(files["manifest.json"])
    entries = [manifest["templates"], *manifest["members"], *manifest["rows"]]
    for entry in entries:
        if entry.get("name") == old:
            entry["name"], entry["bytes"] = name, len(data)
    if elsewhere:
        manifest["environment"]["packages"]["numpy"] = "0"
    kept = {key: value for key, value in files.items() if key != f"objects/{old}"}
    return kept | {f"objects/{name}": data, "manifest.json": reprinted(manifest)}


def raw(files: Files, rng: Rng) -> Files:
    """Damage by chance: what a disk does."""
    name = pick(sorted(files), rng)
    kind = int(rng.integers(4))
    if kind == 0:
        return {key: data for key, data in files.items() if key != name}
    if kind == 1:
        other = pick(sorted(files), rng)
        return files | {name: files[other], other: files[name]}
    return files | {name: changed_bytes(files[name], rng)}


def manifest(files: Files, rng: Rng) -> Files:
    """Say something else in the manifest and correct the fingerprints."""
    text = changed_json(json.loads(files["manifest.json"]), rng)
    if rng.random() < 0.1:
        text = json.dumps({**json.loads(files["manifest.json"]), "another": {}})
    try:
        data = reprinted(json.loads(text))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        try:
            data = canonical_json(json.loads(text))
        except (ValueError, RecursionError):
            data = text.encode("utf-8", "surrogatepass")
    return files | {"manifest.json": data}


def templates(files: Files, rng: Rng) -> Files:
    old = json.loads(files["manifest.json"])["templates"]["name"]
    return renamed(files, old, changed_skops(files[f"objects/{old}"], rng), elsewhere=True)


def header(files: Files, rng: Rng) -> Files:
    """Rewrite the header of a block, under its right name."""
    described = json.loads(files["manifest.json"])
    old = pick([*described["members"], *described["rows"]], rng)["name"]
    return renamed(files, old, changed_header(files[f"objects/{old}"], rng), elsewhere=True)


def changed_header(data: bytes, rng: Rng) -> bytes:
    size = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + size])
    if rng.random() < 0.3:
        about = table["__metadata__"]
        key = pick(sorted(about), rng)
        about[key] = changed_json(json.loads(about[key]), rng)
        text = json.dumps(table)
    else:
        text = changed_json({k: v for k, v in table.items() if k != "__metadata__"}, rng)
        if text.startswith("{") and text != "{}":
            text = text[:-1] + ',"__metadata__":' + json.dumps(table["__metadata__"]) + "}"
    head = text.encode("utf-8", "surrogatepass")
    length = len(head) if rng.random() < 0.95 else int(rng.integers(2**63))
    return length.to_bytes(8, "little") + head + data[8 + size :]


def members(files: Files, rng: Rng) -> Files:
    """Change what a member holds, and every digest that follows from it."""
    described = json.loads(files["manifest.json"])
    entry = pick(described["members"], rng)
    items = decode_block(files[f"objects/{entry['name']}"], "block")
    index = pick([i for i in sorted(items) if items[i].tensors] or sorted(items), rng)
    item = items[index]
    if not item.tensors:
        return header(files, rng)
    name = pick(sorted(item.tensors), rng)
    if name == "skops":
        data = changed_skops(item.tensors[name].tobytes(), rng)
        tensors = {**item.tensors, name: np.frombuffer(data, np.uint8)}
        items[index] = replace(item, tensors=tensors)
        block = encode_block([items[i] for i in sorted(items)])
        return renamed(files, entry["name"], block, elsewhere=True)
    items[index] = replace(
        item, tensors={**item.tensors, name: changed_array(item.tensors[name], rng)}
    )
    return readdressed(files, described, entry["name"], items)


def readdressed(files: Files, described: Any, old: str, items: dict[int, Item]) -> Files:
    """Replace a block of members that are arrays, and correct every digest."""
    for number, digest in _digests(files, described, items).items():
        described["member_digests"][number] = digest
        items[number] = replace(items[number], digest=digest)
    changed = files | {"manifest.json": reprinted(described)}
    return renamed(changed, old, encode_block([items[i] for i in sorted(items)]))


def _digests(files: Files, described: Any, items: dict[int, Item]) -> dict[int, str]:
    """Return the digests that changed members of arrays have, as far as they have any."""
    try:
        if described["family"] == "row_votes":
            from poisonproof.members.digest import state_digest

            arrays = items[0].tensors
            return {0: state_digest([(name, arrays[name]) for name in sorted(arrays)])}
        some = [items[i] for i in sorted(items)]
        about = described["family"], described["shared"]
        ensemble = decode_members(*about, some, np.arange(10), 0)
        return dict(zip(sorted(items), ensemble.digests(), strict=True))
    except Exception:  # arrays that make no members have no digests
        return {}


def rows(files: Files, rng: Rng) -> Files:
    described = json.loads(files["manifest.json"])
    if not described["rows"]:
        return header(files, rng)
    entry = pick(described["rows"], rng)
    items = decode_block(files[f"objects/{entry['name']}"], "block")
    index = pick(sorted(items), rng)
    item = items[index]
    name = pick(sorted(item.tensors), rng)
    items[index] = replace(
        item, tensors={**item.tensors, name: changed_array(item.tensors[name], rng)}
    )
    return renamed(files, entry["name"], encode_block([items[i] for i in sorted(items)]))


CHANGES: dict[str, Callable[[Files, Rng], Files]] = {
    "damage by chance": raw,
    "manifest": manifest,
    "templates": templates,
    "header of a block": header,
    "member": members,
    "rows": rows,
}


def placed(files: Files, folder: Path) -> None:
    (folder / "objects").mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def directory(files: Files, rng: Rng, folder: Path, outside: Path) -> None:
    """Write a model whose directory is a trap: links, pipes, folders for files."""
    placed(files, folder)
    kind = int(rng.integers(7))
    block = pick(sorted((folder / "objects").iterdir()), rng)
    if kind == 0:
        shutil.rmtree(folder / "objects")
        (folder / "objects").symlink_to(outside, target_is_directory=True)
    elif kind == 1:
        moved = outside / "objects"
        shutil.move(folder / "objects", moved)
        (folder / "objects").symlink_to(moved, target_is_directory=True)
    elif kind == 2:
        for name in ("journal", "lock", "journal.part"):
            (folder / name).symlink_to(outside / "keep.txt")
    elif kind == 3:
        block.unlink()
        block.symlink_to(outside / "keep.txt")
    elif kind == 4:
        block.unlink()
        os.mkfifo(block)
    elif kind == 5:
        block.unlink()
        block.mkdir()
    else:
        (folder / "manifest.json").rename(outside / "manifest.json")
        (folder / "manifest.json").symlink_to(outside / "manifest.json")


def changed_network(data: bytes, rng: Rng) -> bytes:
    """Return a network file with other arrays, other operations or another header."""
    kind = rng.random()
    if kind < 0.1:
        return changed_bytes(data, rng)
    if kind < 0.3:
        return changed_header(data, rng)
    arrays, about = decode_tensors(data, "network")
    graph = json.loads(about["network"])
    if kind < 0.5:
        name = pick(sorted(arrays), rng)
        arrays[name] = changed_array(arrays[name], rng)
    elif kind < 0.6:
        import torch

        operator = pick([n for n in dir(torch.ops.aten) if not n.startswith("__")], rng)
        node = pick(graph["nodes"], rng)
        node[0] = f"{operator}.{pick(['default', 'Tensor', 'out', 'int'], rng)}"
    elif kind < 0.7:
        from poisonproof.features.network_files import OPERATORS

        pick(graph["nodes"], rng)[0] = pick(sorted(OPERATORS), rng)
    else:
        text = changed_json(graph, rng)
        return encode_tensors(arrays, {"network": text.encode(errors="replace").decode()})
    try:
        return encode_tensors(arrays, {"network": json.dumps(graph)})
    except Exception:  # a dtype that the format does not have
        return changed_bytes(data, rng)


# --- one case ----------------------------------------------------------------------------------


class Case:
    """A hostile file, made from its number, and what happens when it is read."""

    def __init__(self, seed: int, number: int, bases: dict[str, Any], home: Path) -> None:
        self.rng = np.random.default_rng([seed, number])
        self.home, self.bases = home, bases
        self.outside = home / "outside"
        (self.outside / "deeper").mkdir(parents=True)
        for name in ("keep.txt", "deeper/keep.txt", "0" * 64):
            (self.outside / name).write_bytes(b"not yours")
        self.base = pick(sorted(bases), self.rng)
        self.refit = True
        self.kind = self._make()

    def _make(self) -> str:
        rng, files = self.rng, self.bases[self.base]["files"]
        if self.base.startswith("network"):
            (self.home / "network.safetensors").write_bytes(changed_network(files, rng))
            return "network file"
        if rng.random() < 0.1:
            directory(files, rng, self.home / "model", self.outside)
            return "directory"
        name = pick(["member"] * 4 + sorted(CHANGES), rng)
        changed = CHANGES[name](files, rng)
        self.refit = name not in ("templates", "manifest")  # else a fit may take for ever
        placed(changed, self.home / "model")
        return name

    def read(self) -> str:
        """Load, predict, certify and audit; return what came of it."""
        from poisonproof import load
        from poisonproof.estimators.auditing import audit_model
        from poisonproof.features import NetworkFeatures

        X = self.bases[self.base]["rows"]
        if self.base.startswith("network"):
            features = NetworkFeatures(self.home / "network.safetensors")
            first, second = features.transform(X), features.transform(X)
            if not np.array_equal(first, second, equal_nan=True):
                raise AssertionError("features differ from run to run")
            return "computes"
        path = self.home / "model"
        model = load(path)
        if hasattr(model, "votes"):
            votes = model.votes(X)
            if not np.array_equal(model.votes(X), votes):
                raise AssertionError("votes differ from run to run")
            if votes.min() < -1 or votes.max() >= len(model.classes_):
                raise AssertionError("a vote is for no class")
        model.predict(X)
        model.certify(X)
        if self.refit:
            audit_model(path, sample=1, seed=0)
        return "votes"

    def state(self) -> dict[str, Any]:
        """Return what lies around, to see whether anything was touched."""
        found: dict[str, Any] = {}
        for folder, folders, names in os.walk(self.home):
            for name in [*folders, *names]:
                path = Path(folder, name)
                plain = path.is_file() and not path.is_symlink()
                content = hashlib.sha256(path.read_bytes()).hexdigest() if plain else ""
                found[str(path)] = (path.lstat().st_mode, content)
        return found


class Watch:
    """Notes what Python reports of code that runs and files that are written."""

    FORBIDDEN = (
        *("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen"),
        *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"),
        *("os.chmod", "os.chown", "os.utime", "shutil.", "tempfile.", "socket.", "pty.", "urllib."),
        *("sqlite3.connect", "marshal.", "pickle.find_class", "code.__new__", "webbrowser."),
    )
    PACKAGES = ("poisonproof", "numpy", "scipy", "sklearn", "skops", "torch", "joblib", "pandas")

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self.hook)

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, _, flags = args
            writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            if flags & writing and path != os.devnull:
                self.seen.append(f"open {path!r} for writing")
        elif event == "import":
            name = str(args[0])
            if name.split(".", maxsplit=1)[0] not in (*self.PACKAGES, *sys.stdlib_module_names):
                self.seen.append(f"import {name}")
        elif event == "exec":
            file = getattr(args[0], "co_filename", "")
            if not file.startswith(("/", "<frozen")):
                self.seen.append(f"exec {args[0]!r}"[:200])
        elif event == "compile":
            # NumPy and skops read headers as literals, which is no code.
            if args[1] not in ("<unknown>", None) and not str(args[1]).startswith("/"):
                self.seen.append(f"compile {args!r}"[:200])
        elif event.startswith(self.FORBIDDEN):
            self.seen.append(f"{event} {args!r}"[:200])

    def by_imports(self, before: set[str]) -> bool:
        """Whether all that was seen is what a library runs when it imports a part of itself."""
        new = {name.split(".")[0] for name in set(sys.modules) - before}
        running = all(event.startswith(("exec", "compile", "marshal")) for event in self.seen)
        return bool(new) and running and new <= {*self.PACKAGES, *sys.stdlib_module_names}


def attempt(case: Case, watch: Watch) -> tuple[str, str]:
    """Return the outcome of a case, and what is wrong with it, if anything."""
    from poisonproof.exceptions import PoisonproofError

    before, modules = case.state(), set(sys.modules)
    watch.seen.clear()
    wrong = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            watch.on = True
            outcome = case.read()
    except PoisonproofError as error:
        outcome = type(error).__name__
        if not str(error).strip() or len(str(error)) > 2000:
            wrong = f"no clear error: {str(error)[:200]!r}"
    except BaseException as error:
        outcome = "failure"
        if isinstance(error, ValueError) and " features as input" in str(error):
            outcome = "ValueError"  # of scikit-learn: rows of another width than the model's
        else:
            wrong = f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        watch.on = False
    if watch.seen and watch.by_imports(modules):
        return attempt(case, watch)
    if watch.seen:
        outcome, wrong = "failure", "; ".join(watch.seen[:3])
    if case.state() != before:
        outcome, wrong = "failure", f"files were changed. {wrong}"
    return outcome, wrong


# --- many cases --------------------------------------------------------------------------------


def work(seed: int, home: Path) -> None:
    """Try the cases whose numbers come in, one by one, and say what happened."""
    bases = dict(np.load(home / "bases.npy", allow_pickle=True).item())  # written by the parent
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    os.chdir(home)
    watch = Watch()
    for name, base in bases.items():  # imports everything that honest files need
        case = Case(seed, 0, {name: base}, Path(tempfile.mkdtemp(dir=home)))
        if name.startswith("network"):
            (case.home / "network.safetensors").write_bytes(base["files"])
        else:
            shutil.rmtree(case.home / "model", ignore_errors=True)
            placed(base["files"], case.home / "model")
        case.refit = True
        case.read()
        outcome, wrong = attempt(case, watch)
        if outcome not in ("votes", "computes"):
            answers.write(
                json.dumps([-1, name, "good file", "failure", f"{outcome} {wrong}"]) + "\n"
            )
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        number = int(line)
        with tempfile.TemporaryDirectory(dir=home) as folder:
            case = Case(seed, number, bases, Path(folder))
            outcome, wrong = attempt(case, watch)
        answers.write(json.dumps([number, case.base, case.kind, outcome, wrong]) + "\n")
        answers.flush()


class Trials:
    """Runs cases in worker processes and counts what came of them."""

    def __init__(self, seed: int, names: list[str] | None = None) -> None:
        self.seed = seed
        self.folder = tempfile.TemporaryDirectory()
        self.home = Path(self.folder.name)
        np.save(self.home / "bases.npy", np.array(bases(names), dtype=object), allow_pickle=True)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.failures: list[dict[str, Any]] = []
        self.worker: subprocess.Popen[bytes] | None = None

    def run(self, numbers: Any, until: float = float("inf")) -> int:
        """Try some cases; return how many."""
        done = 0
        try:
            for number in numbers:
                if time.monotonic() > until:
                    break
                self.note(number, *self.ask(number))
                done += 1
        finally:
            self.stop()
            self.folder.cleanup()
        return done

    def ask(self, number: int) -> tuple[str, str, str, str]:
        worker = self.worker or self.start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        started = time.monotonic()
        worker.stdin.write(f"{number}\n".encode())
        while time.monotonic() - started < (PATIENCE if self.warm else 600.0):
            if select.select([worker.stdout], [], [], 1.0)[0]:
                line = worker.stdout.readline()
                if not line:
                    worker.wait()
                    break
                found, *said = json.loads(line)
                if found == number:
                    self.warm = True
                    return tuple(said)
                self.note(found, *said)
        status = worker.poll()
        self.stop()
        wrong = "took too long" if status is None else f"the process ended with {status}"
        return "?", "?", "failure", wrong

    def start(self) -> subprocess.Popen[bytes]:
        self.warm = False
        command = [sys.executable, "-m", __name__ if __name__ != "__main__" else MODULE]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        self.worker = subprocess.Popen(
            [*command, "--worker", str(self.home), "--seed", str(self.seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what is read ahead would be waited for in vain
            env=environment,
        )
        return self.worker

    def stop(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker.communicate()
            self.worker = None

    def note(self, number: int, base: str, kind: str, outcome: str, wrong: str) -> None:
        self.counts[kind, outcome] += 1
        if outcome == "failure" or wrong:
            failure = {"case": number, "model": base, "kind": kind, "what": wrong}
            self.failures.append(failure)
            sys.stderr.write(json.dumps(failure) + "\n")


MODULE = "tests.durability.hostile"


def bases(names: list[str] | None = None) -> dict[str, Any]:
    """Return good files: small models of many kinds, and networks."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import (
        GradientBoostingClassifier,
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB, MultinomialNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    from poisonproof import DPAClassifier, NeighborVoteClassifier
    from poisonproof.features import OrientationHistogram
    from poisonproof.members.closed_form import RidgeClassifier

    from ..features.small_network import network_file

    digits, labels = load_digits(return_X_y=True)
    X, y = digits[:120, 20:32].copy(), labels[:120]
    words = np.array([" ".join(f"w{int(v)}" for v in row) for row in X], dtype=object)
    estimators = {
        "naive Bayes": GaussianNB(),
        "tree": DecisionTreeClassifier(max_depth=3),
        "forest": RandomForestClassifier(2, max_depth=3),
        "boosting": GradientBoostingClassifier(n_estimators=2, max_depth=2, random_state=0),
        "histograms": HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=2),
        "support vectors": SVC(),
        "neighbours": KNeighborsClassifier(1, algorithm="brute"),
        "neighbour tree": KNeighborsClassifier(1, algorithm="kd_tree"),
        "bins": make_pipeline(
            PolynomialFeatures(), KBinsDiscretizer(3), LogisticRegression(max_iter=20)
        ),
        "perceptron": MLPClassifier((4,), max_iter=5, random_state=0),
        "ridge": RidgeClassifier(),
        "words": make_pipeline(CountVectorizer(), MultinomialNB()),
    }
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, estimator in estimators.items():
            if names is None or name in names:
                given = words if name == "words" else X
                model = DPAClassifier(estimator, 4, classes=range(10), random_state=1)
                model.fit(given, y).save(Path(folder) / name, keep_data=True)
                found[name] = {"files": read_files(Path(folder) / name), "rows": given[:15]}
        if names is None or "rows" in names:
            images = digits[:60].reshape(-1, 8, 8)
            voters = NeighborVoteClassifier(OrientationHistogram(), 0.9, classes=range(10))
            voters.fit(images, labels[:60]).save(Path(folder) / "rows")
            found["rows"] = {"files": read_files(Path(folder) / "rows"), "rows": images[:5]}
    if names is None or "network" in names:
        pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
        for number in range(3):  # as many cases as three kinds of models
            found[f"network {number}"] = {"files": network_file().read_bytes(), "rows": pixels}
    return found


def read_files(folder: Path) -> Files:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != "lock"
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, help="go on so long, whatever the number of cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="repeat one case")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.seed, options.worker)
        return 0
    started = time.monotonic()
    trials = Trials(options.seed)
    numbers: Any = range(options.cases)
    if options.only is not None:
        numbers = [options.only]
    elif options.seconds is not None:
        numbers = range(2**62)
    until = float("inf") if options.seconds is None else started + options.seconds
    cases = trials.run(numbers, until)
    result = {
        "cases": cases,
        "seed": options.seed,
        "seconds": round(time.monotonic() - started, 1),
        "python": platform.python_version(),
        "outcomes": {f"{kind}: {what}": n for (kind, what), n in sorted(trials.counts.items())},
        "failures": trials.failures,
    }
    text = json.dumps(result, indent=1)
    if options.out is not None:
        options.out.write_text(text + "\n")
    sys.stdout.write(text + "\n")
    return int(bool(trials.failures))


if __name__ == "__main__":
    raise SystemExit(main())

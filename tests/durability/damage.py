"""Ways in which a store can be damaged, by chance and on purpose.

``python -m tests.durability.damage 10000`` tries so many and says what happened.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, load
from poisonproof.exceptions import StoreError
from poisonproof.learners.closed_form import RidgeClassifier
from poisonproof.store.blocks import content_name
from poisonproof.store.manifest import canonical_json

from ..store.tampering import reprinted
from . import jobs

Files = dict[str, bytes]
Damage = Callable[[Files, np.random.Generator], tuple[Files, bool]]
"""Returns the files, and whether the damage may be one that decides no vote."""

HOSTILE: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1e308,
    "",
    "../../../etc/passwd",
    "os.system",
    "a" * 10_000,
    [],
    {},
    [[[[[[[[]]]]]]]],
    {"name": "/etc/passwd", "bytes": 10, "items": [0]},
    [2**62] * 9,
]


def model(estimator: Any) -> Files:
    """Return the files of a small model that keeps its rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        classifier = DPAClassifier(estimator, 5, classes=range(10), random_state=1)
        classifier.fit(jobs.X[:120], jobs.y[:120]).save(path, keep_data=True)
        return {
            str(file.relative_to(path)): file.read_bytes()
            for file in sorted(path.rglob("*"))
            if file.is_file() and file.name != "lock"
        }


def any_file(files: Files, rng: np.random.Generator) -> str:
    return sorted(files)[int(rng.integers(len(files)))]


def flip(files: Files, rng: np.random.Generator) -> tuple[Files, bool]:
    name = any_file(files, rng)
    data = bytearray(files[name])
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return files | {name: bytes(data)}, False


def truncate(files: Files, rng: np.random.Generator) -> tuple[Files, bool]:
    name = any_file(files, rng)
    return files | {name: files[name][: int(rng.integers(len(files[name])))]}, False


def extend(files: Files, rng: np.random.Generator) -> tuple[Files, bool]:
    name = any_file(files, rng)
    return files | {name: files[name] + rng.bytes(int(rng.integers(1, 50)))}, False


def lose(files: Files, rng: np.random.Generator) -> tuple[Files, bool]:
    name = any_file(files, rng)
    return {key: data for key, data in files.items() if key != name}, False


def swap(files: Files, rng: np.random.Generator) -> tuple[Files, bool]:
    first, second = rng.choice(sorted(files), 2, replace=False).tolist()
    return files | {first: files[second], second: files[first]}, False


def lie(files: Files, rng: np.random.Generator) -> tuple[Files, bool]:
    """Put something hostile anywhere into the manifest and correct the fingerprints."""
    manifest = json.loads(files["manifest.json"])
    entry: Any = manifest
    while True:
        keys = sorted(entry) if isinstance(entry, dict) else list(range(len(entry)))
        key = keys[int(rng.integers(len(keys)))]
        deeper = isinstance(entry[key], dict | list) and len(entry[key])
        if not deeper or rng.random() < 0.3:
            break
        entry = entry[key]
    entry[key] = HOSTILE[int(rng.integers(len(HOSTILE)))]
    try:
        text = reprinted(manifest)
    except (KeyError, TypeError, AttributeError):
        text = canonical_json(manifest)
    return files | {"manifest.json": text}, True


def renamed(files: Files, old: str, data: bytes) -> Files:
    """Replace an object and correct its name and size wherever the manifest has them."""
    name = content_name(data)
    manifest = json.loads(files["manifest.json"])
    entries = [manifest["templates"], *manifest["members"]["blocks"], *manifest["rows"]]
    for entry in entries:
        if entry["name"] == old:
            entry["name"], entry["bytes"] = name, len(data)
    kept = {key: value for key, value in files.items() if key != f"objects/{old}"}
    return kept | {f"objects/{name}": data, "manifest.json": reprinted(manifest)}


def forge_header(files: Files, rng: np.random.Generator) -> tuple[Files, bool]:
    """Rewrite the header of a block, under its right name."""
    manifest = json.loads(files["manifest.json"])
    blocks = [*manifest["members"]["blocks"], *manifest["rows"]]
    old = blocks[int(rng.integers(len(blocks)))]["name"]
    data = files[f"objects/{old}"]
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    names = [name for name in sorted(header) if name != "__metadata__"]
    if rng.random() < 0.3 or not names:
        about = json.loads(header["__metadata__"]["about"])
        item = about[int(rng.integers(len(about)))]
        item[str(rng.choice(sorted(item)))] = HOSTILE[int(rng.integers(len(HOSTILE)))]
        header["__metadata__"]["about"] = json.dumps(about)
    else:
        entry = header[str(rng.choice(names))]
        field = str(rng.choice(["dtype", "shape", "data_offsets"]))
        places = [[0, 2**40], [2**40, 0], [-8, 8], [0, 0], [8, 4]]
        choices = [*HOSTILE, "F64", "I8", *places]
        entry[field] = choices[int(rng.integers(len(choices)))]
    text = json.dumps(header).encode()
    if rng.random() < 0.1:
        forged = int(rng.integers(2**63)).to_bytes(8, "little") + text + data[8 + size :]
    else:
        forged = len(text).to_bytes(8, "little") + text + data[8 + size :]
    return renamed(files, old, forged), True


def bomb(files: Files, rng: np.random.Generator) -> tuple[Files, bool]:
    """Put an archive that would swell a thousandfold where the templates are."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b"[" * int(rng.integers(10**6, 10**7)))
    old = json.loads(files["manifest.json"])["templates"]["name"]
    return renamed(files, old, packed.getvalue()), False


DAMAGES: list[Damage] = [flip, truncate, extend, lose, swap, lie, forge_header, bomb]


def as_archive(files: Files, rng: np.random.Generator) -> bytes:
    """Return a model as a zip file, sometimes a hostile one."""
    packed = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if rng.random() < 0.3 else zipfile.ZIP_STORED
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        if method == zipfile.ZIP_STORED:
            archive.writestr(str(rng.choice(["../../evil", "/etc/evil", "objects/evil"])), b"x")
    return packed.getvalue()


class Trials:
    """Damages models and reads them; counts what happened."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        estimators = [GaussianNB(), DecisionTreeClassifier(max_depth=3), RidgeClassifier()]
        self.models = [model(estimator) for estimator in estimators]
        self.counts: Counter[str] = Counter()

    def run(self, n: int) -> Counter[str]:
        with tempfile.TemporaryDirectory() as folder:
            answers = [
                self.read(files, Path(folder) / f"m{i}") for i, files in enumerate(self.models)
            ]
            for number in range(n):
                which = int(self.rng.integers(len(self.models)))
                damage = DAMAGES[int(self.rng.integers(len(DAMAGES)))]
                files, harmless = damage(self.models[which], self.rng)
                path = Path(folder) / f"{number}"
                self.attempt(damage.__name__, files, path, answers[which], harmless=harmless)
        return self.counts

    def attempt(self, name: str, files: Files, path: Path, answer: Any, *, harmless: bool) -> None:
        if self.rng.random() < 0.1:
            name, harmless = "archive", False
            path.with_suffix(".zip").write_bytes(as_archive(files, self.rng))
            path = path.with_suffix(".zip")
        try:
            found = self.read(files, path)
        except StoreError:
            self.counts[f"{name}: error"] += 1
            return
        assert harmless, f"{name}: damage was not noticed in {path}"
        assert np.array_equal(found, answer), f"{name}: wrong votes from {path}"
        self.counts[f"{name}: nothing that matters was changed"] += 1

    def read(self, files: Files, path: Path) -> Any:
        """Write the files, read everything in them, and return the votes."""
        if path.suffix != ".zip":
            (path / "objects").mkdir(parents=True)
            for name, data in files.items():
                (path / name).write_bytes(data)
        classifier = load(path)
        votes = classifier.votes(jobs.X_test[:20])
        for index in range(5):
            if classifier.rows_ is None:
                raise StoreError("the rows are gone")
            classifier.rows_.shard(index)
        return votes


if __name__ == "__main__":
    for what, count in sorted(Trials(0).run(int(sys.argv[1])).items()):
        sys.stdout.write(f"{count:6}  {what}\n")

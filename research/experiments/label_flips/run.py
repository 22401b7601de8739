"""Label flips at the radius of a finished SS-DPA row, with real retraining on its frozen features.

Run: python research/experiments/label_flips/run.py mnist-ssdpa-1200 --data PACK --features DIR --attacks 8
For every target image as many labels are changed as its certificate allows, each in another
partition whose member votes for the prediction: there the training image most like the target gets
the label of the runner-up. Partitions are made again from the changed labels; their members, and
some whose partitions were left alone, are trained again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates import Certificates
from poisonproof.networks import FrozenNetwork
from poisonproof_research.reproduction import (
    Recipe,
    RowData,
    RowResult,
    certify_result,
    data_from_pack,
    load_recipes,
    make_partitions,
    read_result,
    select_rows,
)
from poisonproof_research.reproduction.learner import (
    features_of,
    make_learner,
    member_samples,
    origin_of,
    resolve,
)
from poisonproof_research.reproduction.result import compact_votes, require_origin

WITNESSES = 20
"""Members of untouched partitions that are trained again in every attack."""


@dataclass(frozen=True)
class Attack:
    """Changed labels, at most one in a partition."""

    target: int
    rows: NDArray[np.int64]
    partitions: NDArray[np.int64]
    label: int


class AttackedRow:
    """A finished row whose members can be trained again.

    Parameters
    ----------
    recipe, data, result
        What it was made from, and what it came to.
    features : Path or FrozenNetwork
        Folder of learned features, or the row's own.
    device : {"cuda", "cpu"}
        The device of the result.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: RowData,
        result: RowResult,
        features: Path | FrozenNetwork,
        device: str,
    ) -> None:
        self.recipe, self.data, self.result = recipe, data, result
        _, parts = make_partitions(recipe, data)
        frozen = features_of(recipe, data, features, device)
        self.learner: Any = make_learner(recipe, device, frozen)
        self.seen, self.asked = member_samples(recipe, data, parts, frozen)
        spec = resolve(self.learner, self.seen.X, data.n_classes)
        require_origin(result.origin, origin_of(recipe, data, parts, spec, frozen), recipe.id)
        self.partition_of = parts.assignment
        self.certificates: Certificates = certify_result(result)

    def aimed(self, target: int, size: int, rng: np.random.Generator) -> Attack:
        """Return `size` flips against one test image."""
        votes = self.result.votes[target]
        prediction = int(self.certificates.labels[target])
        counts = np.bincount(votes[votes < self.data.n_classes], minlength=self.data.n_classes)
        counts[prediction] = -1
        label = int(counts.argmax())
        loyal = np.flatnonzero(votes == prediction)
        chosen = np.sort(rng.permutation(loyal)[:size])
        images = self.data.x_train.reshape(len(self.data.x_train), -1)
        like = self.data.x_test[target].reshape(-1).astype(np.int32)
        rows = []
        for partition in chosen:
            own = np.flatnonzero((self.partition_of == partition) & (self.data.y_train != label))
            if len(own):
                far = np.abs(images[own].astype(np.int32) - like).sum(axis=1)
                rows.append(own[far.argmin()])
        return Attack(target, np.array(rows, dtype=np.int64), chosen, label)

    def retrained(self, attack: Attack, rng: np.random.Generator) -> tuple[RowResult, int]:
        """Return the result with the touched members trained again, and how many others moved."""
        y = self.data.y_train.copy()
        y[attack.rows] = attack.label
        _, parts = make_partitions(self.recipe, replace(self.data, y_train=y))
        parts = replace(parts, X=self.seen.X)
        others = np.setdiff1d(np.arange(self.recipe.n_partitions), attack.partitions)
        witnesses = rng.permutation(others)[:WITNESSES]
        which = [int(i) for i in (*attack.partitions, *witnesses)]
        members = self.learner.fit_members(parts, which, self.data.n_classes, self.recipe.seed)
        votes = compact_votes(members.votes(self.asked))
        digests = [hashlib.sha256(text.encode()).digest() for text in members.digests()]
        moved = sum(
            digests[place] != self.result.digests[i].tobytes()
            or not np.array_equal(votes[:, place], self.result.votes[:, i])
            for place, i in enumerate(which)
            if place >= len(attack.partitions)
        )
        after = self.result.votes.copy()
        after[:, which] = votes
        return replace(self.result, votes=after), moved

    def measure(self, target: int, rng: np.random.Generator) -> dict[str, Any]:
        """Attack one image at its radius and compare all certified predictions."""
        size = int(self.certificates.radius[target])
        attack = self.aimed(target, size, rng)
        began = time.perf_counter()
        after, moved = self.retrained(attack, rng)
        found = certify_result(after)
        certified = self.certificates.radius >= size
        differ = found.labels != self.certificates.labels
        change = (after.votes != self.result.votes).any(axis=0)
        return {
            "target": target,
            "flips": size,
            "labels_changed": int((self.data.y_train[attack.rows] != attack.label).sum()),
            "members_that_changed_a_vote": int(change.sum()),
            "votes_lost_on_the_target": int(
                (after.votes[target] != self.result.votes[target]).sum()
            ),
            "certified_predictions": int(certified.sum()),
            "certified_predictions_changed": int((certified & differ).sum()),
            "other_predictions_changed": int((~certified & differ).sum()),
            "untouched_members_trained_again": WITNESSES,
            "untouched_members_changed": moved,
            "seconds": round(time.perf_counter() - began, 1),
        }


def targets(certificates: Certificates, count: int, rng: np.random.Generator) -> list[int]:
    """Return images of all radii: a random one from each of `count` equal shares."""
    sure = np.flatnonzero(certificates.radius > 0)
    order = sure[np.argsort(certificates.radius[sure], kind="stable")]
    return [int(rng.choice(part)) for part in np.array_split(order, count) if len(part)]


def attack_all(
    row: AttackedRow, count: int, seed: int, limit_seconds: float = float("inf")
) -> dict[str, Any]:
    """Attack `count` images of a row, and say what happened and to which row."""
    began, rng, found = time.monotonic(), np.random.default_rng(seed), []
    for target in targets(row.certificates, count, rng):
        if time.monotonic() - began > limit_seconds:
            break
        found.append(row.measure(target, rng))
        print(json.dumps(found[-1]), flush=True)
    origin = json.dumps(dict(row.result.origin), sort_keys=True)
    return {
        "row": row.recipe.id,
        "seed": seed,
        "law_sha256": hashlib.sha256(origin.encode()).hexdigest(),
        "features_sha256": row.result.origin["features"]["sha256"],
        "attacks": found,
    }


def main() -> None:
    """Attack one row and write what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row")
    parser.add_argument("--data", type=Path, required=True, help="a packed dataset")
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("research/results"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--attacks", type=int, default=8)
    parser.add_argument("--limit-seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    (recipe,) = select_rows(load_recipes(None), None, [given.row])
    result = read_result(given.results / given.row)
    row = AttackedRow(recipe, data_from_pack(given.data), result, given.features, given.device)
    found = attack_all(row, given.attacks, given.seed, given.limit_seconds)
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""CIFAR-10 and GTSRB without outside data: histograms with colours beside them, default members.

    python research/experiments/signs/colours.py --data PACK --features FILE --only dpa-120

FILE is that of ``run.py``. Histograms of edges know no colours; here every image also gives the
mean and the deviation of each colour in 4 x 4 cells. Members are the default of `DPAClassifier`,
which scales and weighs columns by itself, so that nothing is tuned. Fixed before the first run.
With ``mirrored-k`` members see every image and its mirror image, both in one partition;
``edges-k`` leaves the colours out.
"""

from __future__ import annotations

import argparse
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from run import TITLES, copies_of, histogram_of, mapped

from poisonproof import DPAClassifier, certify_scores, certify_votes
from poisonproof.estimators import member_scores
from poisonproof.evaluation.comparison import Method
from poisonproof.partition import sample_digests
from poisonproof_research.frontier import make_evidence, write_method
from poisonproof_research.reproduction import RowData, data_from_pack

CELLS = 4


def colours(images: Any) -> Any:
    """Return mean and deviation of every channel in 4 x 4 cells, images (n, 3, side, side)."""
    side = images.shape[-1] // CELLS
    out = []
    for start in range(0, len(images), 1000):
        some = images[start : start + 1000].astype(np.float32)
        cells = some.reshape(len(some), 3, CELLS, side, CELLS, side)
        both = [cells.mean(axis=(3, 5)), cells.std(axis=(3, 5))]
        out.append(np.concatenate([part.reshape(len(some), -1) for part in both], axis=1))
    made = np.concatenate(out)
    if len(images) > 1:  # sums of floats could depend on the rows beside them; here they must not
        for row in range(0, len(images), max(1, len(images) // 50)):
            if not np.array_equal(colours(images[row : row + 1])[0], made[row]):
                raise SystemExit(f"the colours of image {row} depend on the images beside it")
    return made


def members(train: Any, test: Any, data: RowData, k: int, mirrored: bool) -> tuple[Any, Any]:
    """Return the scores and votes of default members."""
    clf = DPAClassifier(
        n_partitions=k,
        classes=range(data.n_classes),
        partitioner="group" if mirrored else "content",
    )
    if mirrored:
        (copies,) = copies_of(data)
        drawn = histogram_of(data.name).transform(np.moveaxis(copies, 1, -1))
        more = np.concatenate([drawn, colours(copies)], axis=1)
        names = [digest.tobytes().hex() for digest in sample_digests(data.x_train)]
        rows = np.concatenate([train, more])
        clf.fit(rows, np.tile(data.y_train, 2), groups=np.tile(names, 2))
    else:
        clf.fit(train, data.y_train)
    scores = member_scores(clf, test)
    return scores, np.where(np.isnan(scores).all(axis=2), -1, scores.argmax(axis=2))


def main() -> None:
    """Run one k and write both certificates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--only", required=True, help="dpa-120 or mirrored-120")
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    options = parser.parse_args()
    data = data_from_pack(options.data)
    part, _, number = options.only.partition("-")
    k, mirrored = int(number), part == "mirrored"
    began = time.perf_counter()
    drawn = mapped(data, options.features)
    both = zip(drawn, (data.x_train, data.x_test), strict=True)
    train, test = drawn
    if part != "edges":
        train, test = (np.concatenate([rows, colours(images)], axis=1) for rows, images in both)
    scores, votes = members(train, test, data, k, mirrored)
    base = 100 * float((votes == data.y_test[:, None]).mean())
    print(f"k = {k}: members {base:.2f} % right", flush=True)
    found = {
        "dpa": certify_votes(votes, data.n_classes),
        "runoff": certify_scores(scores),
    }
    for kind, words in (("dpa", "DPA"), ("runoff", "run-off")):
        copies = " on mirrored copies" if mirrored else ""
        name = "edges" if part == "edges" else "colours"
        seen = "edges by default members" if name == "edges" else "edges and colours"
        method = Method(
            f"{data.name}-{kind}-{name}-{'mirrored-' if mirrored else ''}{k}",
            data.name,
            TITLES[data.name],
            kind,
            f"{words}, {seen}{copies}, k = {k:,}",
            "orientation histograms, "
            + ("mean and deviation of colours in 4 x 4 cells, " if name == "colours" else "")
            + "default members",
            "nothing: default members (research/experiments/signs/README.md); k: all reported",
            "python research/experiments/signs/colours.py --data PACK --features FILE --only "
            f"{options.only}",
            replace(found[kind], classes=None),
            data.y_test,
            {
                "n_train": len(data.y_train),
                "member_percent": round(base, 2),
                "seconds": {"fit and certify": round(time.perf_counter() - began, 1)},
                "software": {"python": platform.python_version(), "numpy": np.__version__},
            },
        )
        write_method(method, make_evidence(method.certificates), options.out)
        print(f"{method.id}: clean {100 * method.clean:.2f} %, median {method.median}", flush=True)


if __name__ == "__main__":
    main()

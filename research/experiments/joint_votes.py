"""Models of one partition that vote as one: certify their common scores, and write that down."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from poisonproof.certificates import certify_scores, certify_votes
from poisonproof.evaluation.comparison import Method
from poisonproof_research.frontier import make_evidence, run_facts, write_method
from poisonproof_research.reproduction import RowData


def write_votes(
    scores: Any, data: RowData, name: str, models: str, out: Path, **words: str
) -> None:
    """Let partitions vote, by plurality and by run-off, and write both methods of the frontier.

    Parameters
    ----------
    scores : ndarray of shape (n, k, C)
        Common scores of the models of every partition.
    data : RowData
        Where labels come from.
    name : str
        The method's name, with KIND where "dpa" or "runoff" goes.
    models : str
        Who votes, for titles.
    out : Path
        Folder of methods.
    words : str
        `dataset_title`, `settings`, `chosen_on` and `command` of `Method`.
    """
    began = time.perf_counter()
    k, votes = scores.shape[1], scores.argmax(axis=2)
    found = {
        "dpa": ("DPA", certify_votes(votes, data.n_classes)),
        "runoff": ("run-off", certify_scores(scores, threat="insert_delete")),
    }
    facts = run_facts(data.y_train, {"certify both": time.perf_counter() - began})
    facts["member_percent"] = round(100 * float((votes == data.y_test[:, None]).mean()), 2)
    for kind, (rule, certificates) in found.items():
        method = Method(
            id=name.replace("KIND", kind),
            dataset=data.name,
            family=kind,
            title=f"{rule}, {models}, k = {k:,}",
            certificates=replace(certificates, classes=None),
            y_true=data.y_test,
            facts=facts,
            **words,
        )
        write_method(method, make_evidence(method.certificates), out)
        print(
            f"{method.id}: members {facts['member_percent']:.2f} %, clean "
            f"{100 * method.clean:.2f} %, median {method.median}",
            flush=True,
        )

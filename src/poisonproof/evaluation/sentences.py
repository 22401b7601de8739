"""What a finished run proves, in the words of somebody who has not read the paper."""

from __future__ import annotations

import numpy as np

from poisonproof.certificates import Certificates

__all__ = ["SAME_SOURCE", "closing_sentences", "half_radius", "seen_sentence"]

SAME_SOURCE = (
    "The test rows come from the same source as the training rows: the attack sizes are proved all "
    "the same, but the accuracy is only as honest as the source."
)


def half_radius(certificates: Certificates) -> int:
    """Return the largest attack size that at least half of the predictions withstand.

    Right or wrong, these predictions stay what they are.

    >>> from poisonproof.certificates import certify_votes
    >>> half_radius(certify_votes([[0] * 9, [0] * 7 + [1] * 2, [0] * 5 + [1] * 4], n_classes=2))
    2
    """
    radii = np.sort(certificates.radius)[::-1]
    return int(radii[(len(radii) + 1) // 2 - 1]) if len(radii) else 0


def closing_sentences(
    certificates: Certificates, *, n_rows: int | None = None, n_groups: int | None = None
) -> tuple[str, ...]:
    """Say what was proved.

    Parameters
    ----------
    certificates : Certificates
        Untargeted certificates of the test rows.
    n_rows, n_groups : int, optional
        Training rows and contributors, if they are known.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0] * 9, [1] * 9], n_classes=2)
    >>> print(*closing_sentences(certificates, n_rows=1200))
    Half of your test rows keep their label, right or wrong, even if an attacker inserts or deletes
    any 4 rows of your training data (1,200 rows).
    """
    size = half_radius(certificates)
    if size == 0:
        return (
            "Fewer than half of your test rows are proved to keep their label against "
            f"{_one(certificates)}. More members (-k), more rows or better features help.",
        )
    return (
        "Half of your test rows keep their label, right or wrong, even if an attacker "
        f"{_deed(certificates, size, n_rows, n_groups)}.",
    )


def seen_sentence(n_seen: int | None, n_rows: int) -> str:
    """Say how many of `n_rows` rows a model was trained on; None stands for unknown.

    Examples
    --------
    >>> print(seen_sentence(3, 100))
    The model was trained on 3 of the 100 rows. They are no test rows; the numbers are of the
    other 97.
    """
    if n_seen is None:
        return (
            "Whether the model was trained on some of these rows cannot be checked: it does not "
            "keep its training rows."
        )
    if n_seen == 0:
        return f"The model was trained on none of the {n_rows:,} rows."
    if n_seen == n_rows:
        return (
            f"The model was trained on all {n_rows:,} rows. They are no test rows: what is right "
            "about them says nothing about others."
        )
    return (
        f"The model was trained on {n_seen:,} of the {n_rows:,} rows. They are no test rows; the "
        f"numbers are of the other {n_rows - n_seen:,}."
    )


def _one(certificates: Certificates) -> str:
    unit = certificates.threat.unit
    return "even one dishonest contributor" if unit == "group" else "even one poisoned row"


def _deed(certificates: Certificates, size: int, n_rows: int | None, n_groups: int | None) -> str:
    name, unit = certificates.threat.name, certificates.threat.unit
    if unit == "group":
        if n_groups is None:
            return f"controls any {size:,} contributor{'s' * (size > 1)}"
        return f"controls any {size:,} of your {n_groups:,} contributors"
    rows = f"{size:,} {unit}{'s' * (size > 1)}"
    data = "your training data" if n_rows is None else f"your training data ({n_rows:,} rows)"
    if name == "insert_delete":
        return f"inserts or deletes any {rows} of {data}"
    if name == "label_flip":
        return f"changes the labels of any {rows} of {data}"
    return f"rewrites any {rows} of {data}"

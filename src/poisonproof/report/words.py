"""The threat model, its limits and how to check a certificate, in plain words."""

from __future__ import annotations

from poisonproof.certificates.threats import Threat, unit_noun
from poisonproof.evaluation.accuracy import median_sentence, summarize
from poisonproof.partition.grids import Grid
from poisonproof.report.evidence import Evidence, ShownRow

_ACTIONS = {
    ("insert_delete", "row"): (
        "Insert training rows with any content and any label, and delete training rows, in any "
        "mix. Each row inserted or deleted counts as one; changing a row counts as two."
    ),
    ("label_flip", "row"): "Change the labels of training rows. Each row counts as one.",
    ("label_flip", "sample"): (
        "Change the labels of training samples. Each counts as one, with all its copies."
    ),
    ("replace", "row"): (
        "Change training rows in any way: values, label or both. Each changed row counts as one."
    ),
}
_OF_GROUPS = {
    "insert_delete": "Add and remove {many}, each with any number of rows.",
    "label_flip": "Change the labels of all rows of {many}.",
    "replace": "Control {many}: change, add and withdraw any of their rows, or bring new ones.",
}


def headline(evidence: Evidence) -> str:
    """Return the one sentence that a reader should remember.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> print(headline(Evidence("tiny", certify_votes([[0, 0, 0, 0, 0]], n_classes=2))))
    At least half of the predictions stay as they are even if any 2 rows are inserted or deleted.
    """
    threat, median = evidence.certificates.threat, evidence.tally.kept.median()
    n_groups = evidence.n_groups if threat.by_group else None
    if evidence.y_true is not None:
        return median_sentence(threat, median, n_groups=n_groups)
    if not median:
        return f"Fewer than half of the predictions withstand {threat.count(1)}."
    return median_sentence(threat, median, "predictions stay as they are", n_groups)


def standing(evidence: Evidence) -> str:
    """Return how many predictions are right, and what that is to be held against."""
    if evidence.y_true is None:
        return ""
    summary = summarize(evidence.certificates, evidence.y_true)
    right = f"{100 * summary.clean_accuracy:.1f} % of the test rows are classified correctly."
    return " ".join((right, *summary.standing))


def attacker_may(threat: Threat) -> str:
    """Return what the attacker is granted."""
    granted = f"Have {threat.plural}. Each of them counts as one."
    if threat.by_group:
        granted = (
            f"{_OF_GROUPS[threat.name].format(many=threat.noun())} Each {threat.noun(1)} counts as "
            "one, however many rows it has."
        )
    return _ACTIONS.get((threat.name, threat.unit), granted)


def reason(evidence: Evidence) -> str:
    """Return why the certificate holds, in a few sentences."""
    method, threat = evidence.certificates.method, evidence.certificates.threat
    members = f"{evidence.certificates.n_members:,}"
    if (grid := evidence.grid) is not None:
        return _reason_of_grid(grid)
    if evidence.certificates.rows_vote:
        return (
            f"Each of the {members} training rows votes for its own label, and no other row "
            "influences that vote. So an attack moves a known number of votes at most, and as long "
            "as the lead of a label is larger than that, the label stays."
        )
    if method == "label_flips" and evidence.certificates.n_members == 1:
        return (
            "All training rows vote at once, each for its own label and by a weight that no label "
            "can change. So it is known how many labels must be flipped before another label is "
            "ahead. The certificate is one less than the cheapest of these numbers."
        )
    if method == "label_flips":
        return (
            f"{members} members were trained on their own rows, and for each of them it is known "
            "how many labels must be flipped before it changes its vote. The certificate adds up "
            "the cheapest of these numbers that would turn the label."
        )
    if method != "plurality":
        return (
            f"A fixed rule decides which of the {members} members a training row can reach: a "
            "known few. The certificate counts the worst that these members can do to the "
            "election, whatever they vote, and says up to which size the label still wins."
        )
    reach = "one member" if threat.touches == 1 else f"{threat.touches} members"
    return (
        f"A fixed rule spread the training rows over partitions, and {members} members "
        "were trained on their own partitions and on nothing else. "
        f"One {threat.singular} reaches at most {reach}, so it moves at most that many votes. "
        "As long as the lead of a label is larger than what an attack can move, the label stays."
    )


def _reason_of_grid(grid: Grid) -> str:
    k, B = f"{grid.k:,}", f"{grid.blocks.n_blocks:,}"
    one, many = grid.blocks.features(1), grid.blocks.features(2)
    start = (
        f"A fixed rule spread the training rows over {k} partitions, and another one their {many} "
        f"over {B} blocks. A member for each partition and block was trained on these rows and saw "
        "nothing of them but its block, and of the row to predict nothing else either."
    )
    if grid.outer == "rows":
        return (
            f"{start} The {B} members of each partition elect a label, and the {k} labels elect "
            f"the prediction. A {unit_noun(grid.unit, 1)} reaches the partitions its rows fall "
            f"into, a changed {one} one vote in every partition; the certificate counts the worst "
            "that both can do together."
        )
    return (
        f"{start} The {k} members of each block elect a label, and the {B} labels elect the "
        f"prediction. A {one}, wherever it is changed, reaches its block alone, a "
        f"{unit_noun(grid.unit, 1)} a few votes in every block; the certificate counts the worst "
        "that both can do together."
    )


def voters(evidence: Evidence) -> str:
    """Return in words whose votes the bars show."""
    if evidence.certificates.rows_vote:
        return "The number of training rows that vote for each label."
    if evidence.certificates.method == "label_flips" and evidence.certificates.n_members == 1:
        return "The only vote: that of all training rows together."
    if (grid := evidence.grid) is not None:
        k, B = f"{grid.k:,}", f"{grid.blocks.n_blocks:,}"
        if grid.outer == "rows":
            return f"The votes of the {k} partitions, each elected by its {B} members."
        return f"The votes of the {B} blocks of features, each elected by its {k} members."
    votes = "first choices" if evidence.certificates.method.startswith("runoff") else "votes"
    return f"The {votes} of the {evidence.certificates.n_members:,} members."


def check_by_hand(evidence: Evidence, shown: list[ShownRow]) -> str | None:
    """Return the arithmetic of one row that is on the page, for a plain vote."""
    threat = evidence.certificates.threat
    able = [
        row for row in shown if row.movable and len(row.bars) > 1 and row.bars[1].role != "other"
    ]
    if not able:
        return None
    row = next((row for row in able if row.radius > 0), able[0])
    winner, rival = row.bars[0], row.bars[1]
    held, lost = row.radius * row.movable, (row.radius + 1) * row.movable
    return (
        f"{row.place} got {winner.count:,} votes for {winner.label} and "
        f"{rival.count:,} for {rival.label}, the closest rival. At worst "
        f"{threat.count(row.radius)} leave {winner.count - held:,} to {rival.count + held:,}: "
        f"{winner.label} still wins. "
        f"{threat.count(row.radius + 1).capitalize()} could make it {winner.count - lost:,} to "
        f"{rival.count + lost:,}, and that may be enough. (Of equal counts, the label that comes "
        f"first in the label set wins.) So the radius is {row.radius:,}."
    )

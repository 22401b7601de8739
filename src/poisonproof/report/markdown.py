"""The report as Markdown: for pull requests, tickets and model cards."""

from __future__ import annotations

import re
from collections.abc import Sequence

from poisonproof.datasets.value_text import escaped
from poisonproof.evaluation import default_sizes
from poisonproof.report.evidence import Evidence
from poisonproof.report.identity import certificates_digest
from poisonproof.report.tally import percent
from poisonproof.report.words import attacker_may, headline, not_protected

__all__ = ["render_markdown"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


def render_markdown(models: Sequence[Evidence], *, title: str, data_name: str | None) -> str:
    """Return a summary: headline, certified accuracy, classes, threat model, fingerprint."""
    first = models[0]
    threat, with_truth = first.certificates.threat, first.y_true is not None
    where = "" if data_name is None else f" of {escape(data_name)}"
    lines = [f"# {escape(title)}", ""]
    for model in models:
        name = f"**{escape(model.name)}**: " if len(models) > 1 else ""
        lines += [f"{name}{headline(model)}", ""]
    lines += [
        f"{first.tally.kept.n_rows:,} test rows{where}. Proved, not estimated.",
        *([first.seen] if first.seen else []),
        "",
        f"## {'Certified accuracy' if with_truth else 'Predictions that cannot change'}",
        "",
        *_curve(models),
        "",
    ]
    for model in models:
        lines += [f"## {_heading('Class by class', model, models)}", "", *_classes(model), ""]
    lines += ["## What the attacker may do", "", *(f"- {text}" for text in attacker_may(threat))]
    if threat.assumptions:
        lines += ["", "Taken for granted:", ""]
        lines += [f"- {escape(sentence)}" for sentence in threat.assumptions]
    lines += ["", "## What is not protected", ""]
    if with_truth:
        lines.append("- That a label is right: a wrong prediction is certified like any other.")
    lines += [f"- {text}" for text in not_protected(threat, with_truth=with_truth)]
    for model in models:
        lines += ["", f"## {_heading('Which model this is', model, models)}", "", *_identity(model)]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    r"""Return a text that Markdown and the HTML in it show as it is.

    >>> escape("<b> | *x*")
    '\\<b\\> \\| \\*x\\*'
    """
    return _SPECIAL.sub(r"\\\1", escaped(" ".join(text.split())))


def _heading(words: str, model: Evidence, models: Sequence[Evidence]) -> str:
    return words if len(models) == 1 else f"{words}: {escape(model.name)}"


def _curve(models: Sequence[Evidence]) -> list[str]:
    threat = models[0].certificates.threat
    names = [escape(model.name) for model in models]
    sizes = sorted({int(size) for model in models for size in default_sizes(model.certificates)})
    lines = [
        f"| {threat.plural} | {' | '.join(names)} |",
        f"| ---: |{' ---: |' * len(names)}",
    ]
    for size in sizes:
        cells = (percent(m.tally.kept.at(size), m.tally.kept.n_rows) for m in models)
        lines.append(f"| {size:,} | {' | '.join(cells)} |")
    medians = (m.tally.kept.median() for m in models)
    words = ("-" if median is None else f"**{median:,}**" for median in medians)
    return [*lines, f"| median radius | {' | '.join(words)} |"]


def _classes(model: Evidence) -> list[str]:
    size = model.tally.kept.median() or 1
    now = "correct" if model.y_true is not None else "predictions"
    lines = [
        f"| class | test rows | {now} without attack | at {size:,} | median radius |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, radii in zip(model.tally.labels, model.tally.by_class, strict=True):
        median = radii.median()
        lines.append(
            f"| {escape(name)} | {radii.n_rows:,} | {percent(radii.at(0), radii.n_rows)} | "
            f"{percent(radii.at(size), radii.n_rows)} | "
            f"{'-' if median is None else f'{median:,}'} |"
        )
    return lines


def _identity(model: Evidence) -> list[str]:
    lines = ["| | |", "| --- | --- |"]
    if model.identity is not None:
        lines.append(f"| Fingerprint | `{model.identity.fingerprint}` |")
    lines.append(f"| Digest of the certificates | `{certificates_digest(model.certificates)}` |")
    if model.identity is not None:
        lines += [
            f"| {name} | {escape(value)} |"
            for name, value in (*model.identity.facts, *model.identity.environment)
        ]
    return lines

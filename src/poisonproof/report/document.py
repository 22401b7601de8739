"""A report on one model or several: as a page, as a summary in Markdown, and as pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poisonproof.attacks.study import AttackStudy
from poisonproof.data.value_text import escaped
from poisonproof.evaluation.accuracy import default_sizes
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.files import write_bytes
from poisonproof.report.charts import render_attack_figure, render_curves
from poisonproof.report.evidence import Evidence, certificates_digest, percent
from poisonproof.report.page import STEPS, Step, render_html
from poisonproof.report.words import attacker_may, headline, not_protected

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


# `Report`: what is known of one or several models, as a page, a summary and pictures.


@dataclass(frozen=True, eq=False)
class Report:
    """A report on one model, or a comparison of several.

    Parameters
    ----------
    models : sequence of Evidence
        Models that count attacks in the same unit, all with true labels or all without.
    title : str
        Heading.
    data_name : str, optional
        What the test rows are called.
    n_shown : int, default=6
        How many of the least and of the most robust rows to show.
    steps : sequence of Step
        Further ways to verify, with their commands.
    study : AttackStudy, optional
        What real attacks did to the first model.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from poisonproof import DPAClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = DPAClassifier(GaussianNB(), n_partitions=10, classes=range(10)).fit(X[99:], y[99:])
    >>> report = Report([Evidence.of(clf, X[:99], y[:99], image_shape=(1, 8, 8))], title="Digits")
    >>> report.html()[:15]
    '<!doctype html>'
    """

    models: Sequence[Evidence]
    title: str = "How much poison this model withstands"
    data_name: str | None = None
    n_shown: int = 6
    steps: Sequence[Step] = STEPS
    study: AttackStudy | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise InvalidInputError("A report needs at least one model.")
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise InvalidInputError(f"Models in one report need different names. Got {names}.")
        if len({model.y_true is None for model in self.models}) > 1:
            raise InvalidInputError(
                "Give the true labels of the test rows for all models of a report, or for none."
            )
        units = {model.certificates.threat.plural for model in self.models}
        if len(units) > 1:
            raise GuaranteeError(
                f"These models count attacks in different units ({'; '.join(sorted(units))}), so "
                "their radii cannot be compared. Certify all against the same threat."
            )

    def html(self) -> str:
        """Return the page: one self-contained file."""
        return render_html(
            self.models,
            title=self.title,
            data_name=self.data_name,
            n_shown=self.n_shown,
            steps=self.steps,
            study=self.study,
        )

    def markdown(self) -> str:
        """Return a summary in Markdown."""
        return render_markdown(self.models, title=self.title, data_name=self.data_name)

    def figures(self) -> dict[str, bytes]:
        """Return the pictures by file name, each as PNG and as SVG: the curve, and the attacks."""
        files = {}
        for form in ("png", "svg"):
            files[f"certified-accuracy.{form}"] = render_curves(self.models, self.title, form)
            if self.study is not None:
                files[f"attacks.{form}"] = render_attack_figure(self.study, form, self.title)
        return files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a ``.html`` file, or the summary to a ``.md`` file."""
        file = Path(path)
        renderers = {".html": self.html, ".md": self.markdown}
        if file.suffix.lower() not in renderers:
            raise InvalidInputError(f"A report is a .html or a .md file. Got {file}.")
        write_bytes(file, renderers[file.suffix.lower()]().encode())

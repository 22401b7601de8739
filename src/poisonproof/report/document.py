"""`Report`: what is known of one or several models, as a page, a summary and pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poisonproof.attacks import AttackStudy
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.replacing import write_bytes
from poisonproof.report.evidence import Evidence
from poisonproof.report.figures import render_figures
from poisonproof.report.markdown import render_markdown
from poisonproof.report.page import STEPS, Step, render_html

__all__ = ["Report"]


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
        """Return the pictures by file name, each as PNG and as SVG."""
        return dict(render_figures(self.models, self.title))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a ``.html`` file, or the summary to a ``.md`` file."""
        file = Path(path)
        renderers = {".html": self.html, ".md": self.markdown}
        if file.suffix.lower() not in renderers:
            raise InvalidInputError(f"A report is a .html or a .md file. Got {file}.")
        write_bytes(file, renderers[file.suffix.lower()]().encode())

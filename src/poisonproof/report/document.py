"""The report: one HTML page that works from a disk."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import poisonproof
from poisonproof.attacks.study import AttackStudy
from poisonproof.data.value_text import escaped
from poisonproof.evaluation.accuracy import default_sizes
from poisonproof.exceptions import GuaranteeError, InvalidInputError, needing
from poisonproof.files import write_bytes
from poisonproof.report.charts import (
    count_ticks,
    curve_path,
    heat_map,
    radius_bars,
    render_attack_figure,
)
from poisonproof.report.evidence import Evidence, certificates_digest, extreme_rows, percent
from poisonproof.report.words import (
    attacker_may,
    check_by_hand,
    headline,
    reason,
    standing,
    voters,
)

_COLOURS = 6


@dataclass(frozen=True)
class Step:
    """One way to verify the report: what to do, why, and the command if there is one."""

    title: str
    text: str
    command: str = ""


STEPS = (
    Step(
        "Certify again.",
        "The same model and test rows give certificates with the digest above.",
        "poisonproof.report.certificates_digest(classifier.certify(X_test))",
    ),
    Step(
        "Train again.",
        "On the same rows, in any order, with the same versions, the model has the fingerprint "
        "above.",
        "poisonproof.estimators.saving.model_fingerprint(classifier.fit(X_train, y_train))",
    ),
)
"""Ways to verify a report that was made in Python."""


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
        """Return the page: every text is escaped, and its script may not load or send anything."""
        shown = [extreme_rows(model, self.n_shown) for model in self.models]
        largest = max(model.largest for model in self.models)
        first, domain = self.models[0], largest + 1
        threat, with_truth = first.certificates.threat, first.y_true is not None
        sections = [
            _section(index, model, rows, domain)
            for index, (model, rows) in enumerate(zip(self.models, shown, strict=True))
        ]
        sizes = {int(size) for model in self.models for size in default_sizes(model.certificates)}
        median = first.tally.kept.median()
        kept_word = "stay correct" if with_truth else "cannot change"
        what = "Certified accuracy" if with_truth else "Predictions that cannot change"
        page: str = template("report.html").render(
            title=self.title,
            data_name=self.data_name,
            version=poisonproof.__version__,
            models=sections,
            first=sections[0],
            best=max(sections, key=lambda section: section["median"] or 0),
            size=median or min(1, largest),
            median=median,
            largest=largest,
            domain=domain,
            sizes=sorted({*sizes, domain}),
            x_ticks=count_ticks(domain),
            by_hand=check_by_hand(first, shown[0][0] + shown[0][1]),
            steps=self.steps,
            study=None if self.study is None else _attack_section(self.study),
            percent=percent,
            threat=threat,
            with_truth=with_truth,
            kept_word=kept_word,
            label=f"{what} against attack size, from 0 to {domain:,} {threat.plural}. "
            "The table below has the values.",
            attacker_may=attacker_may(threat),
            reason=reason(first),
            **assets(_numbers(self.models, domain, kept_word)),
        )
        return page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a ``.html`` file."""
        file = Path(path)
        if file.suffix.lower() != ".html":
            raise InvalidInputError(f"A report is a .html file. Got {file}.")
        write_bytes(file, self.html().encode())


# The page.


def _section(index: int, model: Evidence, rows: Any, domain: int) -> dict[str, Any]:
    radius, tally = model.certificates.radius, model.tally
    threat = model.certificates.threat
    return {
        "id": f"model-{index}",
        "name": model.name,
        "colour": index % _COLOURS,
        "headline": headline(model),
        "seen": model.seen,
        "kept": tally.kept,
        "fixed": tally.fixed,
        "classes": list(zip(tally.labels, tally.by_class, strict=True)),
        "standing": standing(model),
        "median": tally.kept.median(),
        "smallest": int(radius.min()),
        "middle": int(np.sort(radius)[(len(radius) - 1) // 2]),
        "largest": model.largest,
        "n_members": model.certificates.n_members,
        "n_training": model.n_training_units,
        "training_word": threat.noun() if threat.by_group else "training rows",
        "numbered": model.place_unit == "row",
        "path": curve_path(tally.kept, domain),
        "radii": radius_bars(tally, domain),
        "partition_words": _partition_words(model),
        "surface": _surface(model),
        "least": rows[0],
        "most": rows[1],
        "voters": voters(model),
        "movable": model.certificates.method == "plurality",
        "identity": model.identity,
        "certificates_digest": certificates_digest(model.certificates),
    }


def _numbers(models: Sequence[Evidence], domain: int, kept_word: str) -> str:
    """Return what the script counts with, safe to stand inside a script element."""
    threat = models[0].certificates.threat
    data = {
        "domain": domain,
        "kept": kept_word,
        "unit": {
            "singular": threat.singular,
            "plural": threat.plural,
            "one": threat.singular.removesuffix(f" {threat.action}"),
            "many": threat.plural.removesuffix(f" {threat.action}"),
            "deed": threat.action,
        },
        "models": [
            {
                "name": _shown(model.name),
                "training": model.n_training_units,
                **model.tally.to_json(),
            }
            for model in models
        ],
    }
    text = json.dumps(data, separators=(",", ":"))
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _partition_words(model: Evidence) -> str:
    sizes = model.partition_sizes
    if sizes is None:
        return ""
    empty = int((sizes == 0).sum())
    if (grid := model.grid) is not None:
        words = (
            f"{grid.k:,} partitions x {grid.blocks.n_blocks:,} blocks of features = "
            f"{len(sizes):,} cells with {int(sizes.min()):,} to {int(sizes.max()):,} rows, "
            f"{float(sizes.mean()):,.1f} on average. Blocks: {grid.blocks}."
        )
        words += f" Members of cells without rows ({empty:,}) abstain." if empty else ""
        return " ".join([words, *grid.thin_blocks(sizes)])
    words = (
        f"{len(sizes):,} partitions with {int(sizes.min()):,} to {int(sizes.max()):,} rows, "
        f"{float(sizes.mean()):,.1f} on average."
    )
    return f"{words} Members of partitions without rows ({empty:,}) abstain." if empty else words


def _surface(model: Evidence) -> dict[str, Any] | None:
    """Return what the template shows of rows and features at once."""
    surface = model.surface
    if surface is None:
        return None
    covered, not_covered = surface.coverage()
    n_groups = model.n_groups if surface.threat.by_group else None
    return {
        "sentence": surface.sentence(n_groups),
        "covered": covered,
        "not_covered": not_covered,
        "features": surface.blocks.features(2),
        "medians": [surface.medians[f] for f in surface.lines()],
        **heat_map(surface),
    }


def _attack_section(study: AttackStudy) -> dict[str, Any]:
    """Return what the template shows of real attacks."""
    picture = base64.b64encode(render_attack_figure(study, "svg")).decode()
    tried, changed = study.trials_within
    return {
        "n_members": study.n_members,
        "n_rows": study.n_rows,
        "tried": tried,
        "changed": changed,
        "kinds": [(kind, *kind.fell_at(study.limit), *kind.trials_within) for kind in study.kinds],
        "picture": f"data:image/svg+xml;base64,{picture}",
    }


def template(name: str) -> Any:
    """Return a template of a page, which escapes whatever it shows."""
    with needing("jinja2", "report"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
    environment = Environment(
        loader=PackageLoader("poisonproof.report"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["thousands"] = lambda number: f"{number:,}"
    return environment.get_template(name)


def assets(numbers: str = "") -> dict[str, Any]:
    """Return style, script and data, marked as safe, and the digests that allow them."""
    from markupsafe import Markup

    safe = {"numbers": Markup(numbers)}
    for name, file in (("style", "style.css"), ("script", "script.js")):
        path = resources.files("poisonproof.report") / "templates" / file
        text = path.read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        safe |= {name: Markup(text), f"{name}_hash": Markup(f"'sha256-{digest}'")}
    return safe


def _shown(value: Any) -> Any:
    """Return what is shown of a value; where a text has lines, a page may break it."""
    return "\n".join(map(escaped, value.split("\n"))) if type(value) is str else value

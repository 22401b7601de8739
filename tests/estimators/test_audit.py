"""An audit finds what is not what the data makes, and says what it could not check."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from poisonproof import DPAClassifier, SSDPAClassifier, load
from poisonproof.estimators.auditing import AuditReport, audit_model, detection_odds
from poisonproof.exceptions import InvalidInputError
from poisonproof.store.manifest import ModelReader

X, y = load_digits(return_X_y=True)
X, y = X[:300], y[:300]
SEARCH_TYPES = [
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.StratifiedKFold",
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    classifier = SSDPAClassifier(KNeighborsClassifier(1), PCA(6), 5, classes=range(10))
    classifier.fit(X, y).save(tmp_path / "model")
    return tmp_path / "model"


def results(report: AuditReport) -> dict[str, Any]:
    return {finding.check: finding.passed for finding in report.findings}


def test_an_honest_model_is_proved(model: Path) -> None:
    fingerprint = ModelReader.open(model).manifest.fingerprint
    report = audit_model(model, (X, y), sample="all", fingerprint=fingerprint)
    assert report.passed
    assert set(results(report).values()) == {True}
    assert report.retrained == (0, 1, 2, 3, 4)


def test_an_honest_text_model_is_proved_in_another_process(tmp_path: Path) -> None:
    """Vectorisers remember an address and searches the time they took; neither decides a vote."""
    words = np.random.default_rng(0).choice(["ant", "bee", "cat", "dog"], (60, 5))
    texts = [" ".join(row) for row in words]
    member = make_pipeline(TfidfVectorizer(stop_words=["cat"]), MultinomialNB())
    search = GridSearchCV(member, {"multinomialnb__alpha": [0.5, 1.0]}, cv=2)
    classifier = DPAClassifier(search, 3, classes=[0, 1])
    classifier.fit(texts, [text.count("ant") % 2 for text in texts])
    classifier.save(tmp_path / "model", keep_data=True)
    code = (
        "import sys; from poisonproof.estimators.auditing import audit_model;"
        "report = audit_model(sys.argv[1], sample='all', trusted=sys.argv[2:]);"
        "assert report.passed and len(report.retrained) == 3, report.sentences()"
    )
    subprocess.run(
        [sys.executable, "-c", code, tmp_path / "model", *SEARCH_TYPES],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )


def test_a_feature_map_that_was_fitted_on_something_else_is_found(model: Path) -> None:
    classifier = load(model)
    classifier.ensemble_ = classifier.ensemble_.loaded
    classifier.features_ = PCA(6, random_state=0).fit(X[:100])
    classifier.rows_, classifier.context_ = None, classifier.context_
    classifier.save(model)
    report = audit_model(model, (X, y), sample=1)
    assert results(report)["Features"] is False


def test_without_rows_nothing_is_said_to_be_verified_about_them(model: Path) -> None:
    report = audit_model(model)
    assert report.passed
    assert results(report)["Training rows"] is None
    assert results(report)["Members"] is None


def test_a_flipped_label_is_found(model: Path) -> None:
    flipped = y.copy()
    flipped[7] = (flipped[7] + 1) % 10
    report = audit_model(model, (X, flipped), sample="all")
    assert results(report)["Training rows"] is False
    assert results(report)["Members"] is False


def test_a_damaged_file_and_a_foreign_one_are_named(model: Path) -> None:
    (model / "objects" / "notes.txt").write_text("hello")
    report = audit_model(model)
    assert "notes.txt" in " ".join(report.sentences())
    assert not report.passed
    (model / "objects" / "notes.txt").unlink()
    block = model / "objects" / ModelReader.open(model).manifest.members[0].name
    block.write_bytes(block.read_bytes()[:-1] + b"\x00\x00")
    report = audit_model(model)
    assert results(report)["Files"] is False
    assert block.name in " ".join(report.sentences())


def test_something_that_is_no_model_fails_the_audit(tmp_path: Path) -> None:
    report = audit_model(tmp_path)
    assert not report.passed
    assert report.fingerprint is None


def test_the_odds_are_those_of_drawing_without_replacement() -> None:
    rng = np.random.default_rng(0)
    draws = np.array([rng.permutation(60)[:10].min() < 3 for _ in range(4000)])
    assert abs(draws.mean() - detection_odds(60, 3, 10)) < 0.03


@pytest.mark.parametrize("sample", [0, -1, 2.5, True, "some"])
def test_a_sample_must_be_a_number_or_all(model: Path, sample: Any) -> None:
    with pytest.raises(InvalidInputError, match="sample must be"):
        audit_model(model, (X, y), sample=sample)

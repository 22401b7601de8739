"""What a report refuses, and what its files contain."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from poisonproof import DPAClassifier, NeighborVoteClassifier, certify_votes
from poisonproof.attacks import AttackStudy
from poisonproof.evaluation import certified_accuracy
from poisonproof.exceptions import GuaranteeError, InvalidInputError, MissingExtraError
from poisonproof.report import Evidence, Report
from poisonproof.report.evidence import certificates_digest, percent
from poisonproof.report.samples import make_samples

from .conftest import random_evidence

VOTES = [[0, 0, 0, 1], [1, 1, 1, 1]]


def test_the_same_evidence_gives_the_same_bytes(digits: list[Evidence]) -> None:
    report, again = (Report(digits[:1], title="Digits") for _ in range(2))
    assert report.html() == again.html()


def test_ten_thousand_rows_make_less_than_three_megabytes() -> None:
    images = np.random.default_rng(0).integers(0, 256, (10_000, 3, 32, 32)).astype(np.uint8)
    evidence = random_evidence(10_000, 1000, 10, samples=make_samples(images))
    assert len(Report([evidence]).html().encode()) < 3_000_000


def test_models_that_count_in_different_units_are_not_compared() -> None:
    rows = Evidence("rows", certify_votes(VOTES, 2))
    flips = Evidence("flips", certify_votes(VOTES, 2, threat="label_flip"))
    with pytest.raises(GuaranteeError, match="different units"):
        Report([rows, flips])


def test_a_grid_shows_the_certified_accuracy_of_rows_and_features(grid: Evidence) -> None:
    page, certificates = Report([grid]).html(), grid.certificates
    table = page[page.index('class="heat"') :].split("</table>")[0]
    heads = list(map(int, re.findall(r'<th scope="col">(\d+)</th>', table)))
    lines = [re.findall(r'<td class="s\d+(?: half)?">(.*?)</td>', row) for row in _rows(table)]
    assert heads[0] == 0
    assert heads[-1] > grid.largest
    for f, line in enumerate(lines):
        shares = certified_accuracy(certificates.at(f), grid.y_true, heads)
        kept = np.rint(shares * len(certificates)).astype(int).tolist()
        assert line == [percent(count, len(certificates)) for count in kept]
    assert len(lines) == certificates.rows.shape[1]
    assert grid.surface is not None
    assert grid.surface.sentence() in page
    assert "<dd>1,300</dd>" in page  # training rows, each counted once
    assert "30 partitions x 4 blocks of features = 120 cells" in page
    assert "of the 1,300 training rows" in page
    assert "Only the training data is covered" not in page
    changed = certificates.rows.copy()
    changed[changed[:, -1].argmax(), -1] = -1
    assert certificates_digest(replace(certificates, rows=changed)) != certificates_digest(
        certificates
    )


def _rows(table: str) -> list[str]:
    return table.split("<tbody>")[1].split("</tr>")[:-1]


def test_targeted_certificates_make_no_report() -> None:
    with pytest.raises(GuaranteeError, match="without target"):
        Evidence("targeted", certify_votes(VOTES, 2, target=1))


def test_what_does_not_belong_together_is_an_error() -> None:
    one = Evidence("one", certify_votes(VOTES, 2))
    with pytest.raises(InvalidInputError, match="at least one model"):
        Report([])
    with pytest.raises(InvalidInputError, match="different names"):
        Report([one, one])
    with pytest.raises(InvalidInputError, match="for all models of a report, or for none"):
        Report([one, Evidence("two", certify_votes(VOTES, 2), np.array([0, 1]))])
    with pytest.raises(InvalidInputError, match="2 certificates but 1 samples"):
        Evidence("three", certify_votes(VOTES, 2), samples=make_samples(["a"]))
    with pytest.raises(InvalidInputError, match="no test rows"):
        Evidence("none", certify_votes(np.zeros((0, 4), int), 2))


def test_a_report_is_saved_as_html(digits: list[Evidence], tmp_path: Path) -> None:
    report = Report(digits[:1])
    report.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    with pytest.raises(InvalidInputError, match=r"a \.html file"):
        report.save(tmp_path / "page.pdf")


def test_no_name_of_anybody_reaches_a_report_as_it_is() -> None:
    evil = "a\x1b[2J\x9b\u202eb\u200b\x00\u2066"
    certificates = certify_votes(VOTES, 2).with_classes([evil, "b"])
    report = Report([Evidence(evil, certificates)], title=evil, data_name=evil)
    assert report.html().replace("\n", "").isprintable()
    assert "a\\x1b[2J" in report.html()
    start = report.html().index('"models":')
    assert "\\u202e" not in report.html()[start:].replace("\\\\u202e", "")


@pytest.mark.parametrize("threat", ["insert_delete", "label_flip", "replace", "replace/group"])
def test_a_report_needs_neither_labels_nor_a_model(threat: str) -> None:
    page = Report([Evidence("bare", certify_votes(VOTES, 2, threat=threat))]).html()
    assert "cannot change" in page
    assert "stay correct" not in page.replace(page[page.index("<script>") :], "")


def test_one_vote_of_all_rows_is_explained_as_such() -> None:
    certificates = replace(certify_votes([[0], [1]], 2), method="label_flips")
    page = Report([Evidence("model", certificates)]).html()
    assert "All training rows vote at once" in page
    assert "that of all training rows together" in page
    assert "1 members" not in page


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"poisonproof\[report\]"):
        Report([Evidence("one", certify_votes(VOTES, 2))]).html()


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("plurality", "trained on their own partitions"),
        ("finite_aggregation", "which of the 4 members a training row can reach"),
        ("runoff", "The first choices of the 4 members"),
        ("row_votes", "The number of training rows that vote for each label"),
        ("label_flips", "how many labels must be flipped before it changes its vote"),
    ],
)
def test_each_way_to_aggregate_is_explained_in_its_own_words(method: str, words: str) -> None:
    certificates = replace(certify_votes(VOTES, 2), method=method)
    page = Report([Evidence("model", certificates)]).html()
    assert words in page
    assert ("By hand." in page) == (method == "plurality")
    assert ("could take from the first label" in page) == (method == "plurality")


def test_contributors_are_counted_as_contributors() -> None:
    certificates = certify_votes([[0] * 9, [1] * 9], 2, threat="insert_delete/group")
    page = Report([Evidence("groups", certificates, np.array([0, 1]), n_groups=40)]).html()
    assert "even if an attacker controls any 4 of the 40 contributors" in page
    assert "of the 40 contributors is what the attack amounts to" in page
    assert "many identities" in page


def test_rows_are_found_by_their_place_in_the_file() -> None:
    evidence = Evidence(
        "lines", certify_votes(VOTES, 2), places=np.array([17, 99]), place_unit="line"
    )
    page = Report([evidence]).html()
    assert "Line 17" in page
    assert "Rows are numbered from 0" not in page


def test_attacks_are_told_with_their_numbers(digits: list[Evidence], study: AttackStudy) -> None:
    page = Report(digits[:1], study=study).html()
    section = page[page.index('id="attacks"') : page.index('id="threat"')]
    assert "10 attacks of at most the certified size" in section
    assert "first &lt;b&gt;" in section
    cells = ["3", "7", "1", "0 of 5"]  # proved, fell, unprotected fell, changed within the proof
    assert "".join(f'<td class="n">{cell}</td>' for cell in cells) in section


def test_the_arithmetic_by_hand_is_right() -> None:
    votes = np.repeat([[0, 1, 2, -1]], [12, 5, 2, 1], axis=1)
    certificates = certify_votes(np.vstack([votes, votes]), 3, threat="replace")
    page = Report([Evidence("vote", certificates)]).html()
    assert certificates.radius[0] == 1
    assert "got 12 votes for 0 and 5 for 1" in page
    assert "1 row changed in any way leave 10 to 7" in page
    assert "could make it 8 to 9" in page


def test_rows_that_were_trained_on_are_left_out_of_a_report() -> None:
    X, y = load_digits(return_X_y=True)
    model = DPAClassifier(GaussianNB(), 10, classes=range(10)).fit(X[:500], y[:500])
    alone = Evidence.of(model, X[500:600], y[500:600])
    both = Evidence.of(model, X[450:600].astype(np.float32), y[450:600])
    assert both.certificates.equals(alone.certificates)
    assert both.places is not None
    assert both.places.tolist() == list(range(50, 150))
    assert both.samples is not None
    assert alone.samples is not None
    assert both.samples.show(3) == alone.samples.show(3)
    assert "trained on 50 of the 150 rows" in Report([both]).html()
    assert "trained on none of the 100 rows" in Report([alone]).html()
    assert "trained on all 50 rows" in Evidence.of(model, X[:50], y[:50]).seen
    votes = NeighborVoteClassifier(classes=range(10)).fit(X[:500], y[:500])
    assert "trained on 50 of the 150 rows" in Evidence.of(votes, X[450:600], y[450:600]).seen

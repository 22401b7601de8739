"""Tables and sentences say the same as the numbers."""

from __future__ import annotations

import builtins
import json

import numpy as np
import pytest

from poisonproof.certificates import OBSERVED_LABELS, certify_votes, make_threat
from poisonproof.evaluation import certified_accuracy, default_sizes, per_class_table, summarize
from poisonproof.exceptions import InvalidInputError, MissingExtraError, UnknownLabelError

VOTES = np.array([[0] * 9, [0] * 6 + [1] * 3, [1] * 9, [1] * 5 + [0] * 4, [0] * 8 + [-1]])
Y = np.array([0, 0, 1, 1, 1])


def test_summary_holds_every_number():
    summary = summarize(certify_votes(VOTES, 3), Y, sizes=[1, 4])
    assert (summary.n_rows, summary.n_members, summary.n_classes) == (5, 9, 3)
    assert summary.clean_accuracy == 0.8
    assert summary.base_accuracy == (9 + 6 + 9 + 5 + 0) / 45
    assert (summary.median_radius, summary.published_median) == (1, 2)
    assert summary.certified == (0.6, 0.4)
    assert json.loads(json.dumps(summary.to_dict()))["certified_accuracy"] == [
        {"size": 1, "accuracy": 0.6},
        {"size": 4, "accuracy": 0.4},
    ]


@pytest.mark.parametrize(
    ("threat", "k", "sentence"),
    [
        ("insert_delete", 9, "even if any 4 rows are inserted or deleted."),
        ("insert_delete", 3, "even if any 1 row is inserted or deleted."),
        ("replace/group", 9, "even if any 4 contributors are changed in any way."),
        ("label_flip/sample", 4001, "even if any 2,000 samples are relabelled."),
        ("insert_delete", 1, "already 1 row inserted or deleted might not."),
    ],
)
def test_the_median_is_told_in_words_with_its_unit(threat, k, sentence):
    certificates = certify_votes(np.zeros((2, k), int), 2, threat)
    assert sentence in str(summarize(certificates, [0, 0]))


def test_a_model_that_is_mostly_wrong_has_no_median():
    summary = summarize(certify_votes(np.zeros((3, 9), int), 2), [0, 1, 1])
    assert summary.median_radius is None
    assert "Fewer than half" in str(summary)
    assert summary.to_dict()["median_radius"] is None


def test_assumptions_are_never_left_out():
    threat = make_threat("insert_delete", assumptions=(OBSERVED_LABELS,))
    assert f"Assumed: {OBSERVED_LABELS}." in str(summarize(certify_votes(VOTES, 2, threat), Y))


def test_default_sizes_end_at_the_largest_radius():
    assert default_sizes(certify_votes(np.zeros((1, 401), int), 2)).tolist() == [
        *(0, 1, 2, 5, 10, 20, 50, 100, 200)
    ]
    assert default_sizes(certify_votes([[0, 1]], 2)).tolist() == [0]


def test_each_class_is_measured_on_its_own_rows():
    certificates = certify_votes(VOTES, 3).with_classes(["ant", "bee", "cat"])
    y = np.array(["ant", "bee", "cat"])[Y]
    table = per_class_table(certificates, y, sizes=[0, 1, 4])
    ant, bee, cat = table.rows
    assert (ant.label, ant.n_rows, ant.accuracy, ant.median_radius) == ("ant", 2, 1.0, 4)
    assert (bee.n_rows, bee.accuracy, bee.median_radius) == (3, pytest.approx(2 / 3), 0)
    assert (cat.n_rows, cat.accuracy, cat.median_radius, cat.certified) == (0, None, None, ())
    weighted = np.array([2 * np.array(ant.certified), 3 * np.array(bee.certified)]).sum(axis=0) / 5
    np.testing.assert_allclose(weighted, certified_accuracy(certificates, y, [0, 1, 4]))


def test_the_printed_table_is_aligned_and_marks_what_is_missing():
    lines = str(per_class_table(certify_votes(VOTES, 3), Y, sizes=[1])).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split() == ["class", "rows", "accuracy", "median", "at", "1"]
    assert lines[3].split() == ["2", "0", "-", "-", "-"]


def test_the_frame_has_one_row_per_class():
    pytest.importorskip("pandas")
    frame = per_class_table(certify_votes(VOTES, 3), Y, sizes=[1]).to_frame()
    assert list(frame) == ["class", "rows", "accuracy", "median_radius", "certified_at_1"]
    assert frame["rows"].tolist() == [2, 3, 0]
    assert frame["accuracy"].isna().tolist() == [False, False, True]


def test_a_frame_without_pandas_names_the_extra(monkeypatch):
    real_import = builtins.__import__

    def without_pandas(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(MissingExtraError, match=r"poisonproof\[data\]"):
        per_class_table(certify_votes(VOTES, 3), Y).to_frame()


def test_labels_that_do_not_fit_are_refused():
    certificates = certify_votes(VOTES, 3)
    for evaluate in (summarize, per_class_table):
        with pytest.raises(UnknownLabelError):
            evaluate(certificates, [0, 0, 1, 1, 7])
        with pytest.raises(InvalidInputError, match="one label per certificate"):
            evaluate(certificates, [0])

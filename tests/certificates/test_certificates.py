"""`Certificates` is frozen, readable and can be cut, mapped and turned into a frame."""

from __future__ import annotations

import builtins
import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from poisonproof.certificates import Certificates, certify_votes, make_threat
from poisonproof.exceptions import InvalidInputError, MissingExtraError

VOTES = np.array([[0] * 5 + [1] * 2, [1] * 5 + [2] * 2, [0] * 3 + [1] * 3 + [-1]])


@pytest.fixture
def certificates():
    return certify_votes(VOTES, 3)


def test_labels_radius_runner_up_and_counts_are_those_of_theorem_1(certificates):
    assert certificates.labels.tolist() == [0, 1, 0]
    assert certificates.radius.tolist() == [1, 1, 0]
    assert certificates.runner_up.tolist() == [1, 2, 1]
    assert certificates.counts.tolist() == [[5, 2, 0], [0, 5, 2], [3, 3, 0]]
    assert (certificates.n_members, certificates.n_classes, len(certificates)) == (7, 3, 3)


def test_fields_cannot_be_replaced_and_arrays_cannot_be_written(certificates):
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificates.radius = np.array([9, 9, 9])
    for name in ("labels", "radius", "runner_up", "counts"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(certificates, name)[0] = 0


def test_later_changes_to_the_callers_arrays_do_not_reach_the_certificates(certificates):
    radius, classes = certificates.radius.copy(), np.array(["a", "b", "c"])
    made = dataclasses.replace(certificates, radius=radius).with_classes(classes)
    radius[:], classes[:] = 99, "z"
    assert made.radius.tolist() == [1, 1, 0]
    assert made.classes.tolist() == ["a", "b", "c"]


def test_text_form_tells_rows_members_radius_threat_and_assumptions():
    threat = make_threat("replace", assumptions=("the moon is full",))
    text = str(certify_votes(np.zeros((1200, 9), int), 3, threat))
    assert "1,200 predictions by a vote of 9 members over 3 classes" in text
    assert "rows changed in any way" in text
    assert "smallest 2, median 2, largest 2" in text
    assert "1,200 of 1,200 predictions (100.0 %)" in text
    assert "Assumed: the moon is full." in text


def test_repr_is_one_line_with_the_threat(certificates):
    assert "\n" not in repr(certificates)
    assert "'insert_delete'" in repr(certificates)
    assert "3 predictions, 7 members, 3 classes" in repr(certificates)


def test_class_values_replace_indices_everywhere():
    named = certify_votes(VOTES, 3, target=2).with_classes(["ant", "bee", "cat"])
    assert named.labels.tolist() == ["ant", "bee", "ant"]
    assert named.runner_up.tolist() == ["bee", "cat", "bee"]
    assert named.target.tolist() == ["cat"] * 3
    assert named.classes.tolist() == ["ant", "bee", "cat"]
    with pytest.raises(InvalidInputError, match="already"):
        named.with_classes([1, 2, 3])


@pytest.mark.parametrize("classes", [["a", "b"], ["a", "b", "b"], [["a", "b", "c"]]])
def test_classes_must_be_distinct_and_as_many_as_the_counts(certificates, classes):
    with pytest.raises(InvalidInputError, match="classes must"):
        certificates.with_classes(classes)


@pytest.mark.parametrize(
    "rows", [slice(1, None), np.array([False, True, True]), [1, 2], np.array([-2, -1])]
)
def test_cutting_equals_certifying_the_same_rows(rows):
    whole = certify_votes(VOTES, 3, target=[2, 0, 1])
    assert whole[rows].equals(certify_votes(VOTES[1:], 3, target=[0, 1]))


def test_an_integer_gives_one_row_and_iteration_visits_every_row(certificates):
    assert certificates[1].labels.tolist() == [1]
    assert certificates[-1].labels.tolist() == [0]
    assert [int(row.labels[0]) for row in certificates] == [0, 1, 0]
    with pytest.raises(IndexError):
        certificates[3]


def test_equality_looks_at_every_field(certificates):
    assert certificates.equals(certify_votes(VOTES, 3))
    assert not certificates.equals(certificates.labels)
    for other in (
        certificates[:2],
        certify_votes(VOTES, 3, threat="label_flip"),
        certify_votes(VOTES, 3, target=1),
        certificates.with_classes([0, 1, 2]),
        dataclasses.replace(certificates, n_members=8),
        dataclasses.replace(certificates, counts=certificates.counts.astype(np.int64)),
    ):
        assert not certificates.equals(other)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": np.zeros(2, int)},
        {"runner_up": np.zeros((3, 1), int)},
        {"target": np.zeros(4, int)},
        {"counts": np.zeros((2, 3), int)},
        {"counts": np.zeros(3, int)},
        {"radius": np.zeros(3)},
        {"radius": np.zeros((3, 1), int)},
        {"classes": np.array(["a"])},
    ],
)
def test_fields_that_do_not_fit_together_are_refused(certificates, change):
    with pytest.raises(InvalidInputError):
        dataclasses.replace(certificates, **change)


def test_frame_has_one_row_per_prediction_and_the_threat():
    pytest.importorskip("pandas")
    frame = certify_votes(VOTES, 3).with_classes(["ant", "bee", "cat"]).to_frame()
    assert list(frame) == ["label", "radius", "runner_up", "votes_ant", "votes_bee", "votes_cat"]
    assert frame["label"].tolist() == ["ant", "bee", "ant"]
    assert frame["votes_bee"].tolist() == [2, 5, 3]
    assert frame.attrs["threat"]["name"] == "insert_delete"
    assert "target" in certify_votes(VOTES, 3, target=1).to_frame()


def test_a_frame_without_pandas_names_the_extra(certificates, monkeypatch):
    real_import = builtins.__import__

    def without_pandas(name, *args, **kwargs):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(MissingExtraError, match=r"poisonproof\[data\]"):
        certificates.to_frame()


def test_certificates_import_numpy_alone():
    code = (
        "import sys, poisonproof.certificates as c; c.certify_votes([[0, 1]], 2);"
        "heavy = {'torch', 'sklearn', 'scipy', 'pandas', 'pyarrow', 'joblib', 'matplotlib'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_single_class_cannot_be_attacked():
    certificates = certify_votes([[0, 0, -1]], 1)
    assert isinstance(certificates, Certificates)
    assert certificates.radius.tolist() == [3]
    assert certificates.runner_up.tolist() == [0]
    assert certificates.with_classes(["only"]).runner_up.tolist() == ["only"]

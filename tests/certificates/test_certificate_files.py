"""Files give back what was saved, or an error and nothing else."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poisonproof.certificates import Certificates, Threat, certify_votes
from poisonproof.exceptions import InvalidInputError, StoreError

VOTES = np.random.default_rng(0).integers(-1, 4, (50, 21))
THREAT = Threat("replace", "group", 2, ("a, b\nand c", "ünder 50 % “quoted”"))
CLASSES = {
    "indices": None,
    "text": np.array(["ant", "bee", "a,b", 'quote "x"\nnew line']),
    "text objects": np.array(["ant", "", " bee ", "1"], dtype=object),
    "integers": np.array([7, -3, 2**62, 0]),
    "small integers": np.array([7, 3, 250, 0], dtype=np.uint8),
    "big-endian integers": np.array([7, -3, 2, 0], dtype=">i4"),
    "integer objects": np.array([7, -3, 2, 0], dtype=object),
    "floats": np.array([0.1, -1e300, 3.0, 0.0]),
    "short floats": np.array([0.1, 2.5, 3.0, 0.0], dtype=np.float32),
}


def saved_and_loaded(certificates, path):
    certificates.save(path)
    loaded = Certificates.load(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    return loaded


@pytest.mark.parametrize("target", [None, 2])
@pytest.mark.parametrize("classes", CLASSES.values(), ids=CLASSES.keys())
def test_nothing_is_lost(tmp_path, target, classes):
    certificates = certify_votes(VOTES, 4, THREAT, target=target)
    if classes is not None:
        certificates = certificates.with_classes(classes)
    assert saved_and_loaded(certificates, tmp_path / "c.csv").equals(certificates)


def test_boolean_classes_a_single_class_and_no_rows_survive(tmp_path):
    path = tmp_path / "c.csv"
    two = certify_votes(VOTES.clip(max=1), 2).with_classes([False, True])
    assert saved_and_loaded(two, path).equals(two)
    one = certify_votes(VOTES.clip(max=0), 1)
    assert saved_and_loaded(one, path).equals(one)
    for classes in (["a", "b", "c", "d"], np.array(["a", "b", "c", "d"], dtype=object)):
        empty = certify_votes(VOTES[:0], 4).with_classes(classes)
        assert saved_and_loaded(empty, path).equals(empty)


text_classes = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    min_size=4,
    max_size=4,
    unique=True,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(classes=text_classes)
def test_any_text_can_be_a_class(tmp_path, classes):
    certificates = certify_votes(VOTES, 4).with_classes(np.array(classes, dtype=object))
    assert saved_and_loaded(certificates, tmp_path / "c.csv").equals(certificates)


def test_csv_is_a_plain_table_for_others(tmp_path):
    pd = pytest.importorskip("pandas")
    certificates = certify_votes(VOTES, 4).with_classes(["ant", "bee", "cat", "dog"])
    certificates.save(tmp_path / "c.csv")
    frame = pd.read_csv(tmp_path / "c.csv", skiprows=1)
    assert list(frame) == list(certificates.columns())
    assert frame["label"].tolist() == certificates.labels.tolist()
    assert frame["radius"].tolist() == certificates.radius.tolist()


@pytest.mark.parametrize("name", ["c", "c.txt", "c.npz", "c.csv.gz", "c.parquet"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path, name):
    certificates = certify_votes(VOTES, 4)
    for action in (certificates.save, Certificates.load):
        with pytest.raises(InvalidInputError, match=r"end in \.csv\. "):
            action(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["a", 1, "b", 2], dtype=object),
        np.array([b"a", b"b", b"c", b"d"]),
        np.array(["a", "b", "c", "d\0d"]),
        np.array([0.0, 1.0, 2.0, np.inf]),
        np.array([0.0, 1.0, 2.0, np.nan]),
        np.array([0.0, 1.0, 2.0, np.nan], dtype=object),
        np.array(["a", "b", "c", "d\ud800"]),
        np.array(["2020", "2021", "2022", "2023"], dtype="M8[Y]"),
    ],
    ids=["mixed", "bytes", "NUL", "infinite", "NaN", "NaN object", "half a pair", "dates"],
)
def test_classes_that_no_file_can_hold_are_refused_and_the_old_file_stays(tmp_path, classes):
    path = tmp_path / "c.csv"
    path.write_bytes(b"old")
    with pytest.raises(InvalidInputError, match="saved"):
        certify_votes(VOTES, 4).with_classes(classes).save(path)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "c.csv"
    certify_votes(VOTES, 4).save(path)
    before = path.read_bytes()

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(StoreError, match=r"Cannot write .*No space left on device"):
        certify_votes(VOTES[:3], 4).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_missing_folder_is_said_in_one_line(tmp_path):
    with pytest.raises(StoreError, match="No such file or directory"):
        certify_votes(VOTES, 4).save(tmp_path / "nowhere" / "c.csv")
    with pytest.raises(StoreError, match="There is no file"):
        Certificates.load(tmp_path / "c.csv")


def test_truncated_or_foreign_files_are_refused(tmp_path):
    path = tmp_path / "c.csv"
    certify_votes(VOTES, 4).with_classes(["a", "b", "c", "d"]).save(path)
    content = path.read_bytes()
    foreign = b"label,radius\n1,2\n"
    for damaged in (
        b"",
        content[:10],
        content[: len(content) // 2],
        content[:-9],
        foreign,
        b"\xff",
    ):
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match="holds no readable certificates"):
            Certificates.load(path)


def test_a_csv_that_lost_rows_is_refused(tmp_path):
    path = tmp_path / "c.csv"
    certify_votes(VOTES, 4).save(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]))
    with pytest.raises(StoreError, match=r"47 rows.*50"):
        Certificates.load(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version": 1', b'"version": 2'),
        (b'"name": "replace"', b'"name": "steal"'),
        (b"votes_ant", b"votes_fly"),
        (b"label,", b"lebal,"),
        (b"\r\nant,", b"\r\nfly,"),
    ],
)
def test_a_csv_with_foreign_parts_is_refused(tmp_path, old, new):
    path = tmp_path / "c.csv"
    certify_votes(VOTES, 4, THREAT).with_classes(["ant", "bee", "cat", "dog"]).save(path)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(StoreError, match="holds no readable certificates"):
        Certificates.load(path)


def test_files_need_neither_pandas_nor_pyarrow(tmp_path, monkeypatch):
    real_import = builtins.__import__

    def bare(name, *args, **kwargs):
        if name.partition(".")[0] in {"pandas", "pyarrow"}:
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", bare)
    certificates = certify_votes(VOTES, 4)
    assert saved_and_loaded(certificates, tmp_path / "c.csv").equals(certificates)

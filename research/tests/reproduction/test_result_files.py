"""Results on disk: complete, checked, small enough to commit."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.reproduction import (
    RowResult,
    merge_results,
    read_result,
    write_result,
)
from poisonproof_research.reproduction import (
    outcome as result_files,
)
from poisonproof_research.reproduction.result import CommandRun, MemberBlock

N, K = 300, 40


def make_result(members=range(K), run="r", number=0) -> RowResult:
    rng = np.random.default_rng(0)
    which = np.array(list(members), dtype=np.int64)
    votes = rng.choice(np.array([0, 1, 2, 255], np.uint8), (N, K))
    digests = rng.integers(0, 256, (K, 32), dtype=np.uint8)
    block = MemberBlock(number, len(which), 2.0, 1.0)
    return RowResult(
        origin={"row": "a-row", "seed": 0},
        n_partitions=K,
        n_classes=3,
        labels=rng.integers(0, 3, N),
        members=which,
        votes=votes[:, which],
        digests=digests[which],
        sizes=np.full(len(which), 7),
        failures={int(which[0]): "it raised"},
        runs=(CommandRun(run, "a command", {"numpy": "2"}, {"cpu": "x"}, (block,)),),
    )


def equal(first, second):
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("labels", "members", "votes", "digests", "sizes")
    ) and (first.origin, first.failures, first.runs) == (
        second.origin,
        second.failures,
        second.runs,
    )


def test_a_result_comes_back_as_it_was_written(tmp_path):
    write_result(tmp_path, make_result())
    assert equal(read_result(tmp_path), make_result())


def test_votes_are_split_and_every_file_stays_below_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(result_files, "VOTES_PER_FILE", 5000)
    write_result(tmp_path, make_result())
    files = sorted(tmp_path.glob("votes-*.npz"))
    assert len(files) == 3
    assert equal(read_result(tmp_path), make_result())
    write_result(tmp_path, make_result(range(10)))
    assert len(list(tmp_path.glob("votes-*.npz"))) == 1, "files of the earlier state are gone"


def test_parts_and_a_finished_state_are_read_together(tmp_path):
    write_result(tmp_path, make_result(range(10)))
    result_files.write_part(tmp_path, make_result(range(10, K), number=1))
    found = read_result(tmp_path)
    assert np.array_equal(found.votes, make_result().votes)
    assert [block.number for block in found.runs[0].blocks] == [0, 1]
    assert result_files.members_finished(tmp_path) == K


def test_a_file_that_was_changed_is_refused(tmp_path):
    write_result(tmp_path, make_result())
    path = next(tmp_path.glob("votes-*.npz"))
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="is damaged"):
        read_result(tmp_path)


def test_a_missing_file_of_votes_is_named(tmp_path):
    write_result(tmp_path, make_result())
    path = next(tmp_path.glob("votes-*.npz"))
    path.unlink()
    with pytest.raises(InvalidInputError, match=path.name):
        read_result(tmp_path)


def test_votes_that_are_not_those_of_the_summary_are_refused(tmp_path):
    write_result(tmp_path, make_result())
    summary = json.loads((tmp_path / "result.json").read_text())
    summary["votes_sha256"] = "0" * 64
    (tmp_path / "result.json").write_text(json.dumps(summary))
    with pytest.raises(InvalidInputError, match=r"not those of result\.json"):
        read_result(tmp_path)


@pytest.mark.parametrize("name", ["digests", "votes"])
def test_a_member_with_two_faces_is_refused(name):
    first, second = make_result(range(20)), make_result(range(10, K))
    changed = getattr(second, name).copy()
    changed.flat[0] ^= 1
    with pytest.raises(InvalidInputError, match="Member 10 of a-row is not the same"):
        merge_results([first, dataclasses.replace(second, **{name: changed})])


@pytest.mark.parametrize("name", ["members", "sizes", "digests"])
def test_arrays_that_do_not_fit_are_refused(name):
    result = make_result()
    with pytest.raises(InvalidInputError, match="do not fit"):
        dataclasses.replace(result, **{name: getattr(result, name)[:-1]})

"""A row is the same row however it was run: at once, in pieces, resumed or merged."""

from __future__ import annotations

import dataclasses
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from shapes import K, make_data, write_recipes

from poisonproof.certificates import certify_votes
from poisonproof.exceptions import InvalidInputError
from poisonproof_research.methods.shared_buckets import certify_finite_aggregation, make_spread
from poisonproof_research.reproduction import (
    Options,
    certify_result,
    evaluate,
    gather_results,
    load_recipes,
    read_result,
    run_row,
)
from poisonproof_research.reproduction.row_data import make_partitions
from poisonproof_research.reproduction.running import read_scores

CPU = Options(device="cpu")


def same_members(first, second):
    return (
        np.array_equal(first.members, second.members)
        and np.array_equal(first.digests, second.digests)
        and np.array_equal(first.votes, second.votes)
    )


def test_a_row_is_trained_voted_certified_and_read_back(recipe, data, tmp_path):
    result = run_row(recipe, data, tmp_path / "out", CPU)
    assert result.is_complete
    assert result.votes.shape == (len(data.y_test), K)
    assert result.sizes.sum() == len(data.y_train)
    outcome = evaluate(result)
    assert outcome.clean > 60 > 100 / 3
    assert outcome.at_median >= 50 > outcome.after_median
    back = read_result(tmp_path / "out" / recipe.id)
    assert same_members(back, result)
    assert back.origin == result.origin
    assert np.array_equal(back.labels, data.y_test)
    assert sum(block.members for run in back.runs for block in run.blocks) == K


def test_the_members_are_those_of_the_estimator(recipe, data, tmp_path):
    from poisonproof import DPAClassifier
    from poisonproof_research.reproduction.learner import make_learner

    result = run_row(recipe, data, tmp_path, CPU)
    classifier = DPAClassifier(
        make_learner(recipe, "cpu"), n_partitions=K, partitioner="pixel_sum", classes=range(3)
    )
    classifier.fit(data.x_train.reshape(len(data.y_train), -1), data.y_train)
    votes = classifier.votes(data.x_test.reshape(len(data.y_test), -1))
    assert np.array_equal(result.signed_votes, votes)


def test_ranges_of_members_merge_to_the_same_row(recipe, data, tmp_path):
    whole = run_row(recipe, data, tmp_path / "whole", CPU)
    for name, members in (("a", range(5)), ("b", range(3, K))):
        part = run_row(recipe, data, tmp_path / name, dataclasses.replace(CPU, members=members))
        assert part.members.tolist() == list(members)
    merged = gather_results(recipe.id, [tmp_path / "a", tmp_path / "b"])
    assert same_members(merged, whole)
    assert len(merged.runs) == 2


def test_a_partial_result_goes_on_in_another_folder(recipe, data, tmp_path):
    whole = run_row(recipe, data, tmp_path / "whole", CPU)
    run_row(recipe, data, tmp_path / "first", dataclasses.replace(CPU, members=range(4)))
    words = []
    resumed = run_row(
        recipe,
        data,
        tmp_path / "second",
        dataclasses.replace(CPU, resume_from=(tmp_path / "first",), say=words.append),
    )
    assert same_members(resumed, whole)
    assert words[0].startswith("shapes-dpa-12: 8 of 12 members; the last 5 ")
    trained = [sum(block.members for block in run.blocks) for run in resumed.runs]
    assert trained == [4, 8 + 1], "eight were missing and one was trained again as a check"


def test_a_time_limit_stops_between_blocks_and_keeps_what_is_finished(
    recipe, data, tmp_path, monkeypatch
):
    whole = run_row(recipe, data, tmp_path / "whole", CPU)
    clock = SimpleNamespace(monotonic=count().__next__, perf_counter=lambda: 0.0)
    monkeypatch.setattr("poisonproof_research.reproduction.running.time", clock)
    assert run_row(recipe, data, tmp_path, dataclasses.replace(CPU, deadline=-1.0)) is None
    assert not (tmp_path / recipe.id).exists()
    # The clock ticks at each look: one block takes a tick, and two more looks lie between blocks.
    some = run_row(recipe, data, tmp_path, dataclasses.replace(CPU, deadline=5.0))
    assert len(some.members) == 5
    assert not read_result(tmp_path / recipe.id).is_complete
    assert same_members(run_row(recipe, data, tmp_path, CPU), whole)


def test_a_member_that_comes_out_different_is_refused(recipe, data, tmp_path):
    part = dataclasses.replace(CPU, members=range(4))
    result = run_row(recipe, data, tmp_path / "a", part)
    from poisonproof_research.reproduction import write_result

    digests = result.digests.copy()
    digests[0, 0] ^= 1
    write_result(tmp_path / "b" / recipe.id, dataclasses.replace(result, digests=digests))
    with pytest.raises(InvalidInputError, match="Member 0 of shapes-dpa-12 is not the same"):
        run_row(
            recipe,
            data,
            tmp_path / "c",
            dataclasses.replace(CPU, resume_from=(tmp_path / "b",)),
        )


def test_members_of_another_specification_are_refused(recipe, data, tmp_path):
    run_row(recipe, data, tmp_path / "out", dataclasses.replace(CPU, members=range(4)))
    folder = write_recipes(tmp_path / "other", data, epochs=7)
    other = load_recipes(folder)[recipe.id]
    with pytest.raises(InvalidInputError, match=r"specification: specification\.epochs is 6 .* 7"):
        run_row(other, data, tmp_path / "out", CPU)


def test_other_data_than_the_recipes_is_refused(recipe, tmp_path):
    with pytest.raises(InvalidInputError, match="not the shapes of the recipe"):
        run_row(recipe, make_data(n_train=241), tmp_path, CPU)


def test_scores_are_written_for_every_vote(recipe, data, tmp_path):
    result = run_row(recipe, data, tmp_path, dataclasses.replace(CPU, scores=True))
    scores = read_scores(tmp_path / recipe.id, len(data.y_test), K)
    assert scores.shape == (len(data.y_test), K, 3)
    agree = scores.argmax(axis=2) == result.votes
    assert agree.mean() > 0.99, "float16 may tie where float32 does not, rarely"
    (next((tmp_path / recipe.id).glob("scores-*"))).unlink()
    with pytest.raises(InvalidInputError, match="lacks scores"):
        read_scores(tmp_path / recipe.id, len(data.y_test), K)


def test_members_that_share_buckets_are_certified_as_finite_aggregation(recipe, data, tmp_path):
    spread = make_spread(6, 2)
    shared = dataclasses.replace(recipe, id="shapes-fa-6-2", degree=2, partition_sizes=(0, 0))
    with pytest.raises(InvalidInputError, match="partitions have") as refused:
        make_partitions(shared, data)
    sizes = tuple(int(word) for word in str(refused.value).split() if word.isdecimal())[:2]
    shared = dataclasses.replace(shared, partition_sizes=sizes)
    result = run_row(shared, data, tmp_path, CPU)
    buckets = data.sums % 12
    for member, size in enumerate(result.sizes):
        assert size == np.isin(buckets, spread.buckets_of_member[member]).sum()
    found = certify_result(read_result(tmp_path / shared.id))
    expected = certify_finite_aggregation(result.signed_votes, data.n_classes, spread)
    assert np.array_equal(found.radius, expected.radius)
    assert not np.array_equal(found.radius, certify_votes(result.signed_votes, 3).radius)

"""`train --keep-data`, `update` and `audit`, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poisonproof

from ..store.tampering import edit_manifest

RNG = np.random.default_rng(5)
TRAIN = ("--label", "kind", "--classes", "ham,spam", "-k", "6", "--model", "naive-bayes")


def lines(n: int) -> list[str]:
    kinds = RNG.integers(0, 2, n)
    cells = RNG.normal(size=(n, 2)) + 2 * kinds[:, None]
    return [
        f"{a!r},{b!r},{('ham', 'spam')[k]}" for (a, b), k in zip(cells.tolist(), kinds, strict=True)
    ]


ROWS = lines(150)


def write(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(["length,links,kind", *rows]) + "\n")
    return path


@pytest.fixture
def model(cli: Callable[..., Any], tmp_path: Path) -> Path:
    data = write(tmp_path / "rows.csv", ROWS[:140])
    result = cli("train", data, *TRAIN, "--keep-data", "--out", tmp_path / "model")
    assert result.code == 0, result.err
    return tmp_path / "model"


def fingerprint(path: Path) -> str:
    return str(json.loads((path / "manifest.json").read_text())["fingerprint"])


def test_an_update_equals_training_from_scratch(
    cli: Callable[..., Any], model: Path, tmp_path: Path
) -> None:
    before = fingerprint(model)
    result = cli(
        "update", model,
        "--add", write(tmp_path / "new.csv", ROWS[140:]),
        "--remove", write(tmp_path / "gone.csv", ROWS[:2]),
        "--label", "kind", "--expect", before, "--out", tmp_path / "receipt.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "10 rows added, 2 rows removed" in result.out
    cli("train", write(tmp_path / "all.csv", ROWS[2:]), *TRAIN, "--out", tmp_path / "scratch")
    assert fingerprint(model) == fingerprint(tmp_path / "scratch")
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert receipt["fingerprint_before"] == before
    assert receipt["fingerprint_after"] == fingerprint(model)
    assert len(receipt["removed"]) == 2


def test_an_update_without_kept_rows_asks_for_them(cli: Callable[..., Any], tmp_path: Path) -> None:
    data = write(tmp_path / "rows.csv", ROWS)
    cli("train", data, *TRAIN, "--out", tmp_path / "model")
    gone = write(tmp_path / "gone.csv", ROWS[:1])
    result = cli("update", tmp_path / "model", "--remove", gone, "--label", "kind")
    assert result.code == 2
    assert "trained without --keep-data" in result.err
    assert "--data FILE" in result.err
    result = cli("update", tmp_path / "model", "--remove", gone, "--data", data, "--label", "kind")
    assert result.code == 0, result.err


def test_a_refused_update_writes_nothing(
    cli: Callable[..., Any], model: Path, tmp_path: Path
) -> None:
    before = fingerprint(model)
    strange = write(tmp_path / "gone.csv", ["7.5,7.5,ham"])
    receipt = tmp_path / "receipt.json"
    result = cli("update", model, "--remove", strange, "--label", "kind", "--out", receipt)
    assert result.code == 2
    assert "row 0 of `remove` is not in the training set" in result.err
    assert not receipt.exists()
    assert fingerprint(model) == before
    assert cli("update", model).code == 2


def test_an_honest_model_passes(cli: Callable[..., Any], model: Path, tmp_path: Path) -> None:
    result = cli(
        "audit", model, "--data", tmp_path / "rows.csv", "--label", "kind",
        "--sample", "all", "--fingerprint", fingerprint(model), "--out", tmp_path / "audit.json",
    )  # fmt: skip
    assert result.code == 0, result.out + result.err
    assert "All 6 were trained again" in result.out
    report = json.loads((tmp_path / "audit.json").read_text())
    assert report["passed"]
    assert [f["passed"] for f in report["findings"]] == [True] * 6


def test_a_sample_tells_the_odds(cli: Callable[..., Any], model: Path) -> None:
    result = cli("audit", model, "--sample", "3")
    assert result.code == 0, result.err
    assert "3 of 6, chosen at random" in " ".join(result.out.split())
    assert "probability 50%" in " ".join(result.out.split())
    assert "not verified" in result.out
    assert "found nothing wrong. Not verified: fingerprint." in " ".join(result.out.split())


def test_other_rows_are_found(cli: Callable[..., Any], model: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.csv", [*ROWS[:139], ROWS[149]])
    result = cli("audit", model, "--data", other, "--label", "kind", "--sample", "all")
    assert result.code == 3
    assert "Training rows: FAILED" in result.out


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_member_that_was_trained_on_something_else_is_found(
    cli: Callable[..., Any], model: Path, tmp_path: Path
) -> None:
    """The publisher swaps a member and writes down its digest and a new fingerprint."""
    dishonest = poisonproof.load(model)
    donor = poisonproof.load(model).update(remove=_first_rows(model)).ensemble_
    dishonest.ensemble_ = dishonest.ensemble_.replaced([2], _Member(donor, 2))
    dishonest.save(model)
    result = cli(
        "audit", model, "--data", tmp_path / "rows.csv", "--label", "kind", "--sample", "all"
    )
    assert result.code == 3
    assert "are not the stored ones: 2." in " ".join(result.out.split())


def _first_rows(model: Path) -> tuple[Any, Any]:
    shard = poisonproof.load(model).rows_.shard(2)
    return shard.X[:3], np.array(["ham", "spam"])[shard.y[:3]]


def _Member(ensemble: Any, index: int) -> Any:  # noqa: N802
    from poisonproof.members.member import MemberList

    return MemberList([ensemble.loaded.members[index]])


def test_an_edited_manifest_is_found_against_a_fingerprint_from_elsewhere(
    cli: Callable[..., Any], model: Path
) -> None:
    noted = fingerprint(model)
    edit_manifest(model, ["model", "parameters", "invalid_rows"], "drop", careful=True)
    assert cli("audit", model, "--sample", "1").code == 0
    result = cli("audit", model, "--sample", "1", "--fingerprint", noted)
    assert result.code == 3
    assert "Fingerprint: FAILED" in result.out


def test_another_environment_is_named(cli: Callable[..., Any], model: Path) -> None:
    environment = json.loads((model / "manifest.json").read_text())["environment"]
    edit_manifest(model, ["environment"], environment | {"machine": "pdp11"}, careful=True)
    result = cli("audit", model, "--sample", "1")
    assert "machine pdp11 (here" in " ".join(result.out.split())


@pytest.mark.parametrize("sample", ["0", "-3", "some"])
def test_a_sample_that_is_none_is_refused(
    cli: Callable[..., Any], model: Path, sample: str
) -> None:
    assert cli("audit", model, f"--sample={sample}").code == 2

"""Command ``reproduce`` as a user runs it: whole, killed, split, and on bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapes import write_recipes

from poisonproof_research.reproduction import certify_result, outcome, read_result

ROW = "shapes-dpa-12"
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def arguments(recipes_folder, pack):
    return [
        *("reproduce", "table1", "--rows", ROW, "--device", "cpu"),
        *("--recipes", str(recipes_folder), "--data", str(pack)),
    ]


def test_a_row_is_made_and_reported(cli, arguments, recipes_folder, tmp_path):
    out = tmp_path / "out"
    result = cli(*arguments, "--out", out)
    assert (result.code, result.err) == (0, "")
    assert "shapes-dpa-12: clean " in result.out
    summary = json.loads((out / ROW / "result.json").read_text())
    assert summary["complete"]
    assert summary["runs"][0]["command"] == (
        "python -m poisonproof_research reproduce table1 --rows shapes-dpa-12 --device cpu"
    )
    assert str(tmp_path) not in (out / ROW / "result.json").read_text()
    shared = ("--recipes", recipes_folder, "--out", out)
    reported = cli("reproduce", "--report", *shared)
    assert (reported.code, reported.err) == (0, "")
    assert (out / "reproduction.md").is_file()
    listed = cli("reproduce", *shared)
    assert listed.out.count(" 12 ") >= 2


def test_finished_parts_join_without_data_or_device(cli, arguments, recipes_folder, tmp_path):
    assert cli(*arguments, "--members", "0:7", "--out", tmp_path / "a").code == 0
    assert cli(*arguments, "--members", "7:12", "--out", tmp_path / "b").code == 0
    joined = cli(
        *("reproduce", "table1", "--rows", ROW, "--recipes", recipes_folder),
        *("--resume-from", tmp_path / "a", "--resume-from", tmp_path / "b"),
        *("--out", tmp_path / "c"),
    )
    assert (joined.code, joined.err) == (0, "")
    assert cli(*arguments, "--out", tmp_path / "whole").code == 0
    parts, whole = read_result(tmp_path / "c" / ROW), read_result(tmp_path / "whole" / ROW)
    assert np.array_equal(parts.votes, whole.votes)
    assert np.array_equal(parts.digests, whole.digests)


def make(cli, recipes_folder, pack, table, row, *more):
    return cli(
        *("reproduce", table, "--rows", row, "--device", "cpu"),
        *("--recipes", recipes_folder, "--data", pack, *more),
    )


@pytest.mark.parametrize(
    ("table", "row", "largest"), [("table3", f"{ROW}-oneseed", 10**9), ("table1", ROW, 10)]
)
def test_a_row_with_large_votes_or_one_seed_keeps_counts_and_the_same_certificates(
    cli, recipes_folder, pack, tmp_path, monkeypatch, table, row, largest
):
    monkeypatch.setattr(outcome, "LARGEST_VOTES", largest)
    for folder, more in (("counts", ()), ("votes", ("--scores",))):
        made = make(cli, recipes_folder, pack, table, row, "--out", tmp_path / folder, *more)
        assert (made.code, made.err) == (0, "")
    short, whole = (read_result(tmp_path / folder / row) for folder in ("counts", "votes"))
    assert short.votes is None
    assert whole.votes is not None
    assert certify_result(short).radius.tolist() == certify_result(whole).radius.tolist()
    summaries = [read_summary(tmp_path / folder / row) for folder in ("counts", "votes")]
    assert summaries[0]["votes_sha256"] == summaries[1]["votes_sha256"]
    assert len(list((tmp_path / "counts" / row).iterdir())) == 2, "the votes are gone"
    again = make(cli, recipes_folder, pack, table, row, "--out", tmp_path / "counts")
    assert (again.code, again.err) == (0, "")
    refused = make(cli, recipes_folder, pack, table, row, "--out", tmp_path / "counts", "--scores")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "with --scores and another --out" in refused.err


def test_committed_rows_are_kept_as_the_command_keeps_them():
    for summary in RESULTS.glob("*/result.json"):
        kept = {path.name.partition("-")[0] for path in summary.parent.glob("*.npz")}
        wanted = outcome.counts_are_enough(summary.parent)
        assert kept == {"counts"} or not wanted, summary
        if kept == {"counts"}:
            result = read_result(summary.parent)
            shared = result.origin["specification"]["seed_rule"] == "shared"
            assert shared or result.n_partitions >= 1000, summary


def read_summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())


def process(*command: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "80"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_killed_run_goes_on_to_the_same_members(cli, data, pack, tmp_path):
    recipes = write_recipes(tmp_path / "slow", data, epochs=60)
    command = [
        *("reproduce", "table1", "--rows", ROW, "--device", "cpu"),
        *("--recipes", str(recipes), "--data", str(pack), "--out"),
    ]
    out = tmp_path / "killed"
    running = process("-m", "poisonproof_research", *command, str(out))
    deadline = time.monotonic() + 120
    while not list(out.glob(f"{ROW}/part-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert not (out / ROW / "result.json").exists(), "the run ended before it could be killed"
    finished = len(read_result(out / ROW).members)
    assert 0 < finished < 12
    for folder in (out, tmp_path / "whole"):
        again = cli(*command, folder)
        assert (again.code, again.err) == (0, "")
    resumed, whole = read_result(out / ROW), read_result(tmp_path / "whole" / ROW)
    assert np.array_equal(resumed.digests, whole.digests)
    assert np.array_equal(resumed.votes, whole.votes)
    assert len(resumed.runs) == 2


def test_training_needs_no_data_or_plotting_library(arguments, tmp_path):
    blocked = ["pandas", "polars", "pyarrow", "skops", "PIL", "matplotlib"]
    code = (
        f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n"
        "from poisonproof_research.cli import run\n"
        f"sys.exit(run({[*arguments, '--out', str(tmp_path / 'out')]!r}))"
    )
    running = process("-c", code)
    _, errors = running.communicate()
    assert (running.returncode, errors) == (0, "")
    assert read_result(tmp_path / "out" / ROW).is_complete


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--members", "5"), "--members is A:B"),
        (("--members", "7:5"), "--members is A:B"),
        (("--members", "0:13"), "has the members 0 to 11"),
        (("--limit-seconds", "0"), "--limit-seconds must be positive"),
        (("--resume-from", "nowhere"), "nowhere is not a folder"),
        (("--device", "tpu"), "--device is one of cuda, cpu"),
        (("--data", "nowhere"), "nowhere/manifest.json cannot be read"),
        (("--rows", "shapes"), "no row 'shapes' in table1"),
        (("--report",), "--report takes all rows"),
    ],
)
def test_bad_input_is_one_line(cli, arguments, tmp_path, monkeypatch, more, words):
    monkeypatch.chdir(tmp_path)
    result = cli(*arguments, "--out", "out", *more)
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_without_cuda_the_device_must_be_named(cli, arguments, recipes_folder, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    path = recipes_folder / "shapes.toml"
    nin = path.read_text().replace('network = "mlp"', 'network = "nin"')
    path.write_text(nin.replace("batch_size = 8", "batch_size = 16"))
    result = cli(*arguments, "--out", tmp_path / "out", "--device", "cuda")
    assert result.code == 2
    assert "finds no CUDA device" in result.err

"""``train --stream`` and ``train --cluster``: the model of ``train``, from pieces and elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from poisonproof.store.manifest import ModelReader
from tests.cli.conftest import Cli

DECLARED = ("--label", "kind", "--classes", "ham,spam")


def fingerprint(path: Path) -> str:
    return ModelReader.open(path).manifest.fingerprint


@pytest.fixture
def parts(train_csv: Path, tmp_path: Path) -> Path:
    """The rows of `train_csv` in three files."""
    frame = pd.read_csv(train_csv)
    folder = tmp_path / "parts"
    folder.mkdir()
    for index, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[rows].to_csv(folder / f"{index}.csv", index=False)
    return folder


def test_a_streamed_folder_gives_the_model_of_the_whole_file(
    cli: Cli, train_csv: Path, parts: Path, tmp_path: Path
) -> None:
    common = (*DECLARED, "-k", 20, "--model", "naive-bayes", "--keep-data")
    assert cli("train", train_csv, *common, "--out", tmp_path / "whole").code == 0
    streamed = cli(
        "train", parts, *common, "--stream", "--memory", "512MiB", "--out", tmp_path / "m"
    )
    assert streamed.code == 0, streamed.err
    assert "Trained 20 members (naive-bayes) on 400 rows" in " ".join(streamed.out.split())
    assert fingerprint(tmp_path / "m") == fingerprint(tmp_path / "whole")
    update = ("update", tmp_path / "m", "--remove", parts / "0.csv", "--label", "kind")
    assert cli(*update).code == 0
    assert cli("audit", tmp_path / "m", "--sample", "all").code == 0


def test_a_streamed_folder_of_images_with_a_schema(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for index in range(120):
        folder = tmp_path / "photos" / ("cat" if index % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(
            folder / f"{index}.png"
        )
    schema = tmp_path / "photos.schema.json"
    assert cli("schema", tmp_path / "photos", "--out", schema).code == 0
    assert cli("schema", schema, "--freeze").code == 0
    common = ("--schema", schema, "-k", 5, "--model", "tree")
    whole = cli("train", tmp_path / "photos", *common, "--out", tmp_path / "whole")
    assert whole.code == 0, whole.err
    streamed = cli("train", tmp_path / "photos", *common, "--stream", "--out", tmp_path / "m")
    assert streamed.code == 0, streamed.err
    assert fingerprint(tmp_path / "m") == fingerprint(tmp_path / "whole")


def test_a_cluster_gives_the_model_of_one_process(
    cli: Cli, train_csv: Path, tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    common = (*DECLARED, "-k", 20, "--model", "naive-bayes")
    assert cli("train", train_csv, *common, "--out", tmp_path / "whole").code == 0
    there = ("--cluster", "dask", "--jobs", 1, "--out", tmp_path / "m")  # more: tests/clusters
    result = cli("train", train_csv, *common, *there)
    assert result.code == 0, result.err
    assert fingerprint(tmp_path / "m") == fingerprint(tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--memory", "1GiB"), "--memory is for --stream only"),
        (("--stream", "--memory", "much"), "--memory is a size"),
        (("--stream", "--memory", "1MiB"), "memory must be at least"),
        (("--stream", "--method", "ss-dpa"), "--stream is for --method dpa"),
        (("--cluster", "spark"), "A cluster is dask, dask://HOST:PORT, ray, ray://HOST:PORT"),
    ],
)
def test_options_that_do_not_fit_are_one_line_and_write_nothing(
    options: tuple[str, ...], words: str, cli: Cli, train_csv: Path, tmp_path: Path
) -> None:
    result = cli("train", train_csv, *DECLARED, *options, "--out", tmp_path / "m")
    assert result.code == 2
    assert words in " ".join(result.err.split())
    assert not (tmp_path / "m").exists()
    assert not (tmp_path / "m.shards").exists()


def test_a_scheduler_that_is_not_there_is_named(
    cli: Cli, train_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("poisonproof.distributed.dask_and_ray.CONNECT_SECONDS", 0.3)
    options = ("--cluster", "dask://127.0.0.1:9", "--out", tmp_path / "m")
    result = cli("train", train_csv, *DECLARED, *options)
    assert result.code != 0
    assert "No Dask scheduler can be reached at tcp://127.0.0.1:9" in " ".join(result.err.split())

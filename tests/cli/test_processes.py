"""The command line as a process of its own: exit codes, streams, missing extras."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import poisonproof
from tests.cli.conftest import Cli

SOURCE = Path(poisonproof.__file__).parents[1]


def process(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_train_and_certify_as_a_user_does(train_csv: Path, test_csv: Path, tmp_path: Path) -> None:
    run = ("-m", "poisonproof")
    trained = process(
        *(*run, "train", "train.csv", "--label", "kind", "--classes", "ham,spam"),
        *("-k", "20", "--jobs", "2", "--out", "model"),
        folder=tmp_path,
    )
    assert (trained.returncode, trained.stderr) == (0, "")
    certified = process(
        *(*run, "certify", "model", "test.csv", "--label", "kind", "--out", "c.csv"),
        folder=tmp_path,
    )
    assert (certified.returncode, certified.stderr) == (0, "")
    assert "keep their correct label even if any" in " ".join(certified.stdout.split())
    assert len(poisonproof.Certificates.load(tmp_path / "c.csv")) == 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("train", "none.csv", "--label", "y", "--classes", "a,b", "--out", "m"),
            "no file none.csv",
        ),
        (("certify", "--votes", "train.csv", "--n-classes", "2"), "line 1: "),
        (("predict", "train.csv", "train.csv"), "is not a poisonproof model"),
        (("train",), "Missing"),
    ],
)
def test_bad_input_is_one_line_on_standard_error_and_exit_code_2(
    train_csv: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    before = sorted(tmp_path.iterdir())
    result = process("-m", "poisonproof", *arguments, folder=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path, package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from poisonproof.cli import main\n"
        "sys.argv = ['poisonproof', 'demo']\n"
        "main()"
    )
    result = process("-c", code, folder=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "pip install 'poisonproof[cli]'" in result.stderr


def test_the_help_is_quick(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from poisonproof.cli._app import run\n"
        "run(['--help'])\n"
        "heavy = {'sklearn', 'torch', 'pyarrow', 'matplotlib', 'scipy', 'pandas', 'numpy'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
        "print('OWN', len([name for name in sys.modules if name.startswith('poisonproof')]))"
    )
    shown = process("-c", code, folder=tmp_path).stdout
    assert "HEAVY []" in shown
    assert int(shown.rpartition("OWN ")[2]) <= 30


def test_without_pyarrow_csv_works_and_parquet_names_the_extra(
    cli: Cli, train_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    shared = ("--label", "kind", "--classes", "ham,spam", "--out", tmp_path / "m")
    assert cli("train", train_csv, *shared).code == 0
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    result = cli("train", tmp_path / "t.parquet", *shared)
    assert result.code == 2
    assert "pip install 'poisonproof[data]'" in result.err

"""Every command and path that a page of the laboratory names exists."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from poisonproof.cli._app import COMMANDS as PRODUCT
from poisonproof_research.cli import COMMANDS as LABORATORY
from poisonproof_research.reproduction.recipe import load_recipes, select_rows

ROOT = Path(__file__).parents[2]
RESEARCH = ROOT / "research"
PAGES = sorted(
    path
    for path in (*RESEARCH.rglob("*.md"), *(ROOT / "docs" / "results").glob("*.md"))
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
SCRIPTS = sorted((RESEARCH / "experiments").rglob("*.py"))
WRITTEN = ("research/features",)
"""Folders that commands write and nobody commits."""

COMMAND = re.compile(
    r"(?<![\w./-])(?:python -m poisonproof_research|python [\w./-]+\.py|(?<=[`\n])poisonproof)"
    r"(?= )[^\n`;|#]*"
)
FOLDERS = r"(?:research|docs|benchmarks|src|tests|examples|experiments)/[\w./*-]+"
REPOSITORY_PATH = re.compile(rf"(?<![\w./<$-]){FOLDERS}")
FILE_NAME = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|json|toml|md|csv))`")


def text_of(path: Path) -> str:
    """Return a page, or the docstring of a script, with continued lines joined."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    text = re.sub(r"\s*\\\n\s*", " ", text)
    # A name that a block gives to a command or folder stands for it: RUN="python ...", then $RUN.
    for name, quoted, plain in re.findall(r'^([A-Z]+)=(?:"([^"]*)"|(\S+))$', text, re.MULTILINE):
        text = text.replace(f"${name}", quoted or plain)
    return text


def commands(path: Path) -> Iterator[list[str]]:
    # In running text a command of two lines is one inline code.
    text = re.sub(r"(?<!`)`[^`]+`(?!`)", lambda code: code[0].replace("\n", " "), text_of(path))
    for found in COMMAND.finditer(text):
        yield shlex.split(found[0].rstrip('" )').replace("...", ""))


@cache
def parameters(package: str, name: str) -> set[str]:
    app = typer.Typer(add_completion=False)
    app.command(name)(getattr(import_module(f"{package}.cli.{name}"), name))
    command: Any = get_command(app)
    return {word for parameter in command.params for word in parameter.opts} | {"--help"}


@cache
def script_options(path: Path) -> set[str]:
    source = path.read_text(encoding="utf-8")
    return set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', source)) | {"--help"}


def problems_of(words: list[str]) -> Iterator[str]:
    if words[0] == "poisonproof" or words[1] == "-m":
        package = "poisonproof" if words[0] == "poisonproof" else "poisonproof_research"
        name, *rest = words[1:] if package == "poisonproof" else words[3:]
        if name.startswith("--"):
            return
        if name not in (PRODUCT if package == "poisonproof" else LABORATORY):
            yield f"{package} has no command {name}"
            return
        known = parameters(package, name.replace("-", "_"))
        if name == "reproduce" and package == "poisonproof_research":
            yield from row_problems(rest)
    else:
        script, rest = ROOT / words[1], words[2:]
        if not script.is_file():
            yield f"{words[1]} does not exist"
            return
        known = script_options(script)
    given = {word.partition("=")[0] for word in rest if word.startswith("--")}
    yield from (f"{shlex.join(words[:4])} has no {option}" for option in sorted(given - known))


def row_problems(words: list[str]) -> Iterator[str]:
    """Find tables and rows that no recipe makes."""
    values = dict(pairwise(words))
    folder = values.get("--recipes")
    if folder and not (ROOT / folder).is_dir():
        return  # recipes that the reader writes
    table = words[0] if words and not words[0].startswith("--") else None
    rows = values["--rows"].split(",") if "--rows" in values else None
    if table or rows:
        try:
            select_rows(load_recipes(ROOT / folder if folder else None), table, rows)
        except ValueError as error:
            yield str(error)


def missing_paths(path: Path) -> Iterator[str]:
    text = text_of(path)
    homes = (path.parent, ROOT, RESEARCH, RESEARCH / "poisonproof_research")
    for found in REPOSITORY_PATH.findall(text):
        name = found.rstrip(".,-/")
        if not name.startswith(WRITTEN) and not any(any(home.glob(name)) for home in homes):
            yield found
    if path.suffix == ".md" and path.parent != RESEARCH / "results":
        everywhere = {file.name for file in RESEARCH.rglob("*.*")}
        for found in FILE_NAME.findall(text):
            if "/" in found:
                found_there = any((home / found).exists() for home in homes)
            else:
                found_there = found in everywhere or (ROOT / "benchmarks" / found).exists()
            if not found_there and not found.isupper() and "ROW/" not in found:
                yield found


@pytest.mark.parametrize("path", [*PAGES, *SCRIPTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_options_rows_and_paths_exist(path: Path) -> None:
    wrong = [problem for words in commands(path) for problem in problems_of(words)]
    assert [*wrong, *missing_paths(path)] == []


def test_the_scan_finds_what_does_not_exist(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nHERE=research/experiments/signs\n"
        "python $HERE/run.py --data PACK \\\n  --no-such 1\n"
        "python -m poisonproof_research nothing DIR\npoisonproof compare a.csv --results DIR\n"
        "python -m poisonproof_research reproduce table1 --rows mnist-dpa-7\n```\n"
        "`src/poisonproof/nowhere.py` and `no-such-file.json`\n"
    )
    wrong = [problem for words in commands(page) for problem in problems_of(words)]
    assert [problem.split(" has no ")[-1] for problem in wrong[:3]] == [
        "--no-such",
        "command nothing",
        "--results",
    ]
    assert "mnist-dpa-7" in wrong[3]
    assert [*missing_paths(page)] == [
        "src/poisonproof/nowhere.py",
        "src/poisonproof/nowhere.py",
        "no-such-file.json",
    ]


def test_the_results_table_of_the_project_has_a_command_for_every_row() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Results")[2]
    table = [line for line in readme.splitlines() if line.startswith("|")]
    rows = table[2 : 2 + next(i for i, line in enumerate([*table[2:], "| |"]) if "%" not in line)]
    named = (RESEARCH / "README.md").read_text(encoding="utf-8")
    section = named.partition("results table of the project's README")[2].partition("\n## ")[0]
    commands_listed = re.findall(r"^\| [^|]+ \| `python [^`]+` \|$", section, re.MULTILINE)
    assert len(commands_listed) == len(rows)

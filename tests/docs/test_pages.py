"""Pages that tell a reader what to type show what the reader will see."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from tests.docs.pages import Step, agrees, parse, run_step

DOCS = Path(__file__).parents[2] / "docs"
OUTSIDE = {"real-data.md"}  # data that no test can have
TUTORIALS = sorted(page.name for page in DOCS.glob("tutorials/*.md") if page.name not in OUTSIDE)
PAGES = ("start.md", *(f"tutorials/{name}" for name in TUTORIALS))
METHODS = dict(
    re.findall(
        r"^##? ([^\n]+)\n(.*?)(?=^## |\Z)", (DOCS / "which-method.md").read_text(), re.M | re.S
    )
)
CODE_PAGES = {
    "images.md": 3,
    "index.md": 1,
    "learned-features.md": 2,
    "networks.md": 5,
    "report.md": 1,
    "scikit-learn.md": 4,
    "texts.md": 2,
}
REAL_DATA = (DOCS / "tutorials/real-data.md").read_text()
REAL_JOBS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", REAL_DATA, re.M | re.S))
NEED_TORCH = ("networks.md", "learned-features.md")


@pytest.mark.usefixtures("self_check")
@pytest.mark.parametrize("page", PAGES)
def test_the_page_can_be_followed_literally_from_an_empty_folder(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    steps = parse((DOCS / page).read_text(), shell=True)
    assert sum(step.kind == "command" for step in steps) >= 4
    started = time.perf_counter()
    for step in steps:
        if "--network" in step.text:
            _write_network()
        printed = run_step(step)
        if step.shown.strip():
            message = f"{page}, {step.text}\n--- shown\n{step.shown}\n--- printed\n{printed}"
            assert agrees(step.shown, printed), message
    assert time.perf_counter() - started < 120


@pytest.mark.parametrize("title", [name for name, text in METHODS.items() if "```sh" in text])
def test_the_commands_and_lines_of_a_section_on_methods_run(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each section is complete: it is run alone, in a folder with the files that it names."""
    pytest.importorskip("pandas")
    text = METHODS[title]
    monkeypatch.chdir(tmp_path)
    learns = "features train" in text
    if learns:
        pytest.importorskip("torch")
    if "lightgbm" in text:
        pytest.importorskip("lightgbm")
    if "photos" in text:
        pytest.importorskip("PIL")
        _write_photos(24 if learns else 200)
    if "--network" in text:
        _write_network()
    _write_tables([name for name in COLUMNS if name in text])
    steps = parse(text, shell=True)
    assert steps
    for step in steps:
        if step.kind == "code":
            exec(step.text, {})
        else:
            run_step(Step("command", _quick(step.text) if learns else step.text))


def test_every_command_for_a_method_stands_in_a_section() -> None:
    page = (DOCS / "which-method.md").read_text()
    run = [step for text in METHODS.values() for step in parse(text, shell=True)]
    assert run == parse(page, shell=True)
    commands = [step for step in run if step.kind == "command"]
    assert len(commands) == len(re.findall("^poisonproof ", page, re.M)) >= 40
    assert not re.search(r"^\|.*`poisonproof ", page, re.M)  # in a table commands break anywhere


COLUMNS = {
    "job": ("baker", "cook", "smith"),
    "user_id": tuple(f"user{number}" for number in range(80)),
    "vendor": ("east", "north", "south", "west"),
    "received": tuple(f"2024-{day % 12 + 1:02}-{day % 28 + 1:02}" for day in range(84)),
}


def _quick(command: str) -> str:
    """Return a command with which a CPU learns features in seconds."""
    return command.replace("--device cuda", "--epochs 1").replace("32x32", "8x8")


def _write_tables(columns: list[str]) -> None:
    """Write rows.csv and trusted.csv: numbers, these columns and the label; mails, and owners."""
    cancer = load_breast_cancer(as_frame=True)
    table = cancer.data.iloc[:, 20:26].rename(columns=lambda name: name.removeprefix("worst "))
    for name in columns:
        values = COLUMNS[name]
        table[name] = [values[row % len(values)] for row in range(len(table))]
    table["kind"] = cancer.target.map({0: "bad", 1: "good"})
    table[:400].to_csv("rows.csv", index=False)
    table[400:].to_csv("trusted.csv", index=False)
    Path("owners.csv").write_text("account,entity\nuser1,bo\nuser2,bo\n")
    words = {"ham": "lunch report meeting train slides", "spam": "free prize money win claim"}
    rng = np.random.default_rng(0)
    mails = [
        f"{' '.join(rng.choice(words[kind].split(), 4))} {number},{kind}"
        for number in range(300)
        for kind in words
    ]
    Path("mails.csv").write_text("\n".join(["body,kind", *mails]))


def _write_photos(count: int) -> None:
    """Write the folder photos: digits in colour, one folder per class."""
    from PIL import Image

    digits = load_digits()
    for number in range(count):
        folder = Path("photos", str(digits.target[number]))
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((digits.images[number] * 15).astype("uint8")).resize((32, 32))
        image.convert("RGB").save(folder / f"{number}.png")


def _write_network() -> None:
    pytest.importorskip("torch")
    from tests.features.small_network import network_file

    shutil.copy(network_file(), "resnet18.safetensors")


@pytest.mark.slow
@pytest.mark.skipif(
    "POISONPROOF_OUTSIDE" not in os.environ,
    reason="set POISONPROOF_OUTSIDE to a folder with the data of tutorials/real-data.md",
)
@pytest.mark.usefixtures("self_check")
@pytest.mark.parametrize("job", REAL_JOBS)
def test_a_job_on_real_data_can_be_followed_from_an_empty_folder(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for step in parse(REAL_JOBS[job]):
        printed = run_step(step)
        if step.shown.strip():
            assert agrees(step.shown, printed), f"{step.text}\n{step.shown}\n---\n{printed}"


@pytest.mark.parametrize("page", CODE_PAGES)
def test_the_code_of_the_page_runs_and_prints_what_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page in NEED_TORCH:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    steps = parse((DOCS / page).read_text())
    assert len(steps) >= CODE_PAGES[page]
    for step in steps:
        printed = run_step(step)
        assert not step.shown or agrees(step.shown, printed), f"{step.text}: {printed}"


@pytest.mark.slow
def test_the_first_page_gives_what_it_shows_in_a_fresh_environment(tmp_path: Path) -> None:
    """Installs the library from this clone as the page says, with pip, and types its commands."""
    root, folder = DOCS.parent, tmp_path / "empty"
    folder.mkdir()
    fresh = Path(os.environ.get("POISONPROOF_FRESH", tmp_path / "env"))  # or one that is there
    if not fresh.exists():
        subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
        pip = [fresh / "bin" / "pip", "install", "--quiet", "-c", root / "constraints.txt"]
        subprocess.run([*pip, f"{root}[all]"], check=True)
    surroundings = {"PATH": f"{fresh / 'bin'}:{os.environ['PATH']}", "COLUMNS": "80"}
    for step in parse((DOCS / "start.md").read_text()):
        if step.kind == "file":
            (folder / step.name).write_text(step.text)
            continue
        shell = "bash" if step.kind == "command" else "python"
        done = subprocess.run(
            [shell, "-c", step.text],
            cwd=folder,
            env={**surroundings, "PYTHONUTF8": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        assert not step.shown or agrees(step.shown, done.stdout), done.stdout


def test_what_a_page_shows_is_really_compared() -> None:
    shown = "Trained 20 members on 400 rows.\nHalf of them keep 7 of 90.\n"
    assert agrees(shown, "Trained 20 members on\n400 rows. Half of them keep 8 of 90.")
    assert not agrees(shown, "Trained 20 members on 400 rows. Half of them keep 70 of 90.")
    assert not agrees(shown, "Trained 20 members on 400 rows.")
    assert not agrees("even if any 21 rows are changed", "even if any 22 rows are changed")
    assert not agrees(shown, shown + "Error: no")
    assert agrees("...\nHalf of them keep 7 of 90.\n...\n", shown + "More.")
    assert not agrees("...\nHalf of us keep 7 of 90.\n...\n", shown)
    assert agrees("It took 1.0 s.\n", "It took 12.5 s.\n")


def test_a_command_is_refused_where_the_page_shows_an_error_and_only_there() -> None:
    command = "poisonproof certify nothing-here rows.csv"
    assert run_step(Step("command", command, "Error: ...\n")).startswith("Error: ")
    for step in (
        Step("command", command, "...\n"),
        Step("command", "poisonproof --help", "Error:"),
    ):
        with pytest.raises(RuntimeError):
            run_step(step)


def test_files_commands_and_code_are_found_in_a_page() -> None:
    page = (
        '```python title="a.py"\nx = 1\n```\ntext\n```console\n$ python a.py\n$ head -1 b\nc\n```\n'
    )
    assert parse(page) == [
        Step("file", "x = 1\n", name="a.py"),
        Step("command", "python a.py"),
        Step("command", "head -1 b", "c\n"),
    ]


def test_no_page_names_a_place_on_the_author_s_machine() -> None:
    for page in DOCS.rglob("*.md"):
        assert not re.search(r"/(home|Users|root|work)/", page.read_text()), page


def test_the_map_of_the_code_is_the_same_everywhere() -> None:
    rooms = re.findall(r"^\| `\w+` \|.*$", (DOCS.parent / "CONTRIBUTING.md").read_text(), re.M)
    readme = (DOCS.parent / "README.md").read_text()
    folders = {path.parent.name for path in (DOCS.parent / "src/poisonproof").glob("*/__init__.py")}
    assert {room.split("`")[1] for room in rooms} == folders
    assert all(f"{room}\n" in readme for room in rooms)


def test_the_readme_of_a_room_names_its_files() -> None:
    for room in (DOCS.parent / "src/poisonproof").glob("*/README.md"):
        named = set(re.findall(r"^\| `(\S+)` \|", room.read_text(), re.M))
        paths = [*room.parent.rglob("*.py"), *room.parent.rglob("*.json")]
        files = {path.relative_to(room.parent).as_posix() for path in paths}
        assert named <= files, room
        if room.parent.name != "cli":  # one file per command
            hidden = {name for name in files if name.endswith(("__init__.py", "conftest.py"))}
            assert named == files - hidden, room


def test_the_files_on_the_way_of_a_row_exist() -> None:
    source = DOCS.parent / "src/poisonproof"
    for page in (DOCS / "architecture.md", DOCS.parent / "CONTRIBUTING.md"):
        for name in re.findall(r"`(\w+(?:/\w+)+\.py)`", page.read_text()):
            assert (source / name).is_file() or (DOCS.parent / name).is_file(), (page.name, name)


def test_the_documentation_stays_short() -> None:
    words = {page: len(page.read_text().split()) for page in DOCS.rglob("*.md")}
    assert len(words) <= 40
    assert sum(words.values()) <= 40_000
    assert max(words.values()) <= 3_000


EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*/*.py"))
SLOW = {"reports.py"}
CASES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.name in SLOW))
    for path in SCRIPTS
]


@pytest.mark.parametrize("script", CASES)
def test_the_example_runs(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 1


def test_the_gallery_lists_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert len(SCRIPTS) >= 8
    assert len({script.parent for script in SCRIPTS}) == 3
    for script in SCRIPTS:
        assert f"`{script.name}`" in page
        assert f"`{script.parent.name}`" in page

"""Pages that can be run: files they show are written, commands typed, output compared.

In a page a block ```` ```python title="NAME" ```` is a file, ```` ```python ```` is run, and
in ```` ```console ```` every line that begins with ``$`` is a command, followed by what it prints.
Where a test asks for them, lines of ```` ```sh ```` that begin with ``poisonproof`` are run, too.
A line ``...`` stands for anything, and a command that prints ``Error:`` must be refused.
``python -m tests.docs.pages PAGE`` fills in what the commands of a page print now, except where the
page shows ``...`` or nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from poisonproof.cli._app import run

__all__ = ["Step", "agrees", "fill_in", "parse", "run_step"]

_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)
_NUMBER = re.compile(r"^(\d[\d,]*(?:\.\d+)?)([%.:;,)]*)$")
_TIME = re.compile(r"[\d,]+\.\d s\b")


@dataclass(frozen=True)
class Step:
    """One thing that a reader of the page does."""

    kind: str
    """"file", "code" or "command"."""
    text: str
    """The file's or code's contents, or the command."""
    shown: str = ""
    """What the page says a command prints."""
    name: str = ""
    """The file's name."""


def parse(markdown: str, *, shell: bool = False) -> list[Step]:
    """Return the steps of a page, with `shell` those that it shows without their output."""
    steps = []
    for language, title, body in _FENCE.findall(markdown):
        if language == "python":
            steps.append(Step("file" if title else "code", body, name=title))
        elif language == "console":
            parts = re.split(r"^\$ ", body, flags=re.M)
            for part in parts[1:]:
                command, _, shown = part.partition("\n")
                while command.endswith("\\"):
                    more, _, shown = shown.partition("\n")
                    command = command[:-1] + more.removeprefix("> ")
                steps.append(Step("command", command.strip(), shown))
        elif language == "sh" and shell:
            lines = re.sub(r"\\\n\s*", "", body).splitlines()
            steps += [Step("command", line) for line in lines if line.startswith("poisonproof ")]
    return steps


def run_step(step: Step) -> str:
    """Do one step in the current folder and return what it prints."""
    if step.kind == "file":
        Path(step.name).write_text(step.text)
        return ""
    if step.kind == "code":
        return _python(["-c", step.text])
    program, *arguments = shlex.split(step.text, comments=True)
    if program == "python":
        return _python(arguments)
    if program == "head":
        lines = Path(arguments[-1]).read_text().splitlines(keepends=True)
        return "".join(lines[: -int(arguments[0])])
    if program != "poisonproof":
        raise ValueError(f"a page runs python, poisonproof and head, not {program!r}")
    return _poisonproof(arguments, refused="Error:" in step.shown)


def agrees(shown: str, printed: str) -> bool:
    """Say whether a page shows what was printed, up to line breaks, times and small differences.

    Members may differ in a bit from processor to processor, so counts may differ by a few. A proved
    attack size, the number after "any", may not: it is a median, and many rows have that radius.
    """
    words = _words(printed)
    position = 0
    parts = re.split(r"^\.\.\.$", shown, flags=re.M)
    for index, part in enumerate(parts):
        wanted = _words(part)
        starts = [position] if index == 0 else range(position, len(words) - len(wanted) + 1)
        found = next((at for at in starts if _alike(wanted, words[at : at + len(wanted)])), None)
        if found is None:
            return False
        position = found + len(wanted)
    return bool(parts[-1].strip() == "" and len(parts) > 1) or position == len(words)


def fill_in(page: Path) -> None:
    """Write into a page what its commands print."""
    text = page.read_text()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for step in parse(text):
            printed = run_step(step)
            if step.kind != "command" or not step.shown.strip() or "\n..." in f"\n{step.shown}":
                continue
            shown = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
            text = text.replace(f"$ {step.text}\n{step.shown}", f"$ {step.text}\n{shown}", 1)
    page.write_text(text)


def _words(text: str) -> list[str]:
    return _TIME.sub("SECONDS", re.sub(r"[^\S\n]*[│┃┏┓┡┩└┘━─┳╇┴]+", " ", text)).split()


def _alike(wanted: list[str], found: list[str]) -> bool:
    before = ["", *wanted]
    return len(wanted) == len(found) and all(
        one == other or (word != "any" and _close(one, other))
        for word, one, other in zip(before, wanted, found, strict=False)
    )


def _close(wanted: str, found: str) -> bool:
    first, second = _NUMBER.match(wanted), _NUMBER.match(found)
    if first is None or second is None or first[2] != second[2]:
        return wanted == found
    one, two = (float(match[1].replace(",", "")) for match in (first, second))
    return abs(one - two) <= max(2.0, 0.03 * one)


def _python(arguments: list[str]) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def _poisonproof(arguments: list[str], refused: bool) -> str:
    before, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "80"
    both = io.StringIO()
    try:
        with contextlib.redirect_stdout(both), contextlib.redirect_stderr(both):
            code = run(arguments)
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    if bool(code) != refused:
        raise RuntimeError(both.getvalue())
    return both.getvalue()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        fill_in(Path(name).absolute())

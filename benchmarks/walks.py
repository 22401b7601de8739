"""Jobs on real data as a newcomer does them: commands, seconds, edits by hand.

    POISONPROOF_OUTSIDE=FOLDER PYTHONPATH=. python benchmarks/walks.py --out FILE

Follows `docs/tutorials/real-data.md` section by section, each in an empty folder, as
``tests.docs.pages`` does, and fails where a command prints something else than the page shows. The
page says where the files of FOLDER can be had. ``--only 2,3`` walks through these sections alone
and keeps what FILE holds of the others; ``--fill`` writes the numbers into the table of the page.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.docs.pages import agrees, parse, run_step

PAGE = Path(__file__).parents[1] / "docs" / "tutorials" / "real-data.md"


def sections() -> dict[str, str]:
    """Return the jobs of the page by their titles."""
    return dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S))


def walk(title: str, text: str) -> dict[str, Any]:
    """Follow one section in an empty folder. Return what it took."""
    steps = parse(text)
    before = os.times()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for step in steps:
            printed = run_step(step)
            if step.shown.strip() and not agrees(step.shown, printed):
                sys.exit(f"{title}: {step.text}\n--- shown\n{step.shown}\n--- printed\n{printed}")
    seconds, after = time.perf_counter() - started, os.times()
    return {
        "job": title,
        "commands": sum(step.kind == "command" for step in steps),
        "scripts": sum(step.kind == "file" for step in steps),
        "edits_by_hand": 0,  # nothing but the steps of the page touches the folder
        "seconds": round(seconds, 1),
        "user_seconds": round(
            after.user + after.children_user - before.user - before.children_user, 1
        ),
        "load": round(os.getloadavg()[0], 1),
    }


def fill(walks: list[dict[str, Any]]) -> None:
    """Write what the walks took into the table of the page."""
    text = PAGE.read_text()
    for entry in walks:
        numbers = [entry[key] for key in ("commands", "scripts", "seconds", "edits_by_hand")]
        cells = " | ".join(str(round(number)) for number in numbers)
        row = rf"^(\| \[{re.escape(entry['job'])}\]\(#\S+\) \| [^|]+) \|.*$"
        text = re.sub(row, rf"\1 | {cells} |", text, flags=re.M)
    PAGE.write_text(text)


def main() -> None:
    """Walk through the sections and write what they took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="numbers of sections, as 1,2")
    parser.add_argument("--fill", action="store_true", help="correct the table of the page, too")
    options = parser.parse_args()
    if "POISONPROOF_OUTSIDE" not in os.environ:
        sys.exit("Set POISONPROOF_OUTSIDE to the folder with the data; the page says which.")
    jobs = sections()
    only = [int(number) for number in options.only.split(",") if number]
    known = json.loads(options.out.read_text())["walks"] if only and options.out.exists() else []
    found = {entry["job"]: entry for entry in known}
    for number, (title, text) in enumerate(jobs.items(), start=1):
        if not only or number in only:
            found[title] = walk(title, text)
            print(found[title], flush=True)
    result = {
        "command": "POISONPROOF_OUTSIDE=FOLDER PYTHONPATH=. python benchmarks/walks.py --out FILE",
        "cores": os.cpu_count(),
        "walks": [found[title] for title in jobs if title in found],
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    if options.fill:
        fill(result["walks"])


if __name__ == "__main__":
    main()

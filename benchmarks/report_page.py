"""Size of a report on 10,000 test images, and how fast a browser opens it.

    python benchmarks/report_page.py --out benchmarks/results/report_page.json

1,200 members vote on 10,000 colour images of 32 x 32 pixels. The page is opened from the disk in a
headless Chromium, ten times in fresh tabs; a blank page of the same browser is the reference. The
promises checked are less than 3 MB and less than 1 s. The exit code is 1 where one is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from poisonproof import certify_votes
from poisonproof.report import Evidence, Report, make_samples

N_ROWS, N_MEMBERS, N_CLASSES = 10_000, 1200, 10
BYTES_ALLOWED, SECONDS_ALLOWED = 3_000_000, 1.0
OPENINGS = 10
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def evidence() -> Evidence:
    """Return votes of members that are right more often than not, on random images."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, N_CLASSES, N_ROWS)
    right = rng.random((N_ROWS, N_MEMBERS)) < rng.beta(4, 2, N_ROWS)[:, None]
    guesses = rng.integers(-1, N_CLASSES, (N_ROWS, N_MEMBERS))
    votes = np.where(right, truth[:, None], guesses)
    images = rng.integers(0, 256, (N_ROWS, 3, 32, 32)).astype(np.uint8)
    return Evidence("members", certify_votes(votes, N_CLASSES), truth, samples=make_samples(images))


def seconds_to_open(browser: Any, address: str) -> list[float]:
    """Return the time from navigation to the end of loading, in fresh tabs."""
    times = []
    for _ in range(OPENINGS):
        page = browser.new_page()
        page.goto(address)
        script = "performance.getEntriesByType('navigation')[0].duration"
        times.append(page.evaluate(script) / 1000)
        page.close()
    return times


def measure() -> dict[str, Any]:
    """Make the page, weigh it and open it."""
    started = time.perf_counter()
    page = Report([evidence()], title="10,000 images").html().encode()
    made = time.perf_counter() - started
    path = os.environ.get("POISONPROOF_CHROMIUM")
    path = path or next(filter(None, map(shutil.which, BROWSERS)), None)
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file, blank = Path(folder, "report.html"), Path(folder, "blank.html")
        file.write_bytes(page)
        blank.write_text("<!doctype html><title>blank</title>")
        browser = driver.chromium.launch(executable_path=path, args=sandbox)
        version = browser.version
        opened = seconds_to_open(browser, file.as_uri())
        reference = seconds_to_open(browser, blank.as_uri())
        browser.close()
    return {
        "rows": N_ROWS,
        "members": N_MEMBERS,
        "bytes": len(page),
        "seconds_to_make": round(made, 3),
        "seconds_to_open": {
            "median": round(statistics.median(opened), 3),
            "largest": round(max(opened), 3),
        },
        "seconds_to_open_a_blank_page": round(statistics.median(reference), 3),
        "browser": f"Chromium {version}",
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
    }


def main() -> int:
    """Print and write the measurement; return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out: Path | None = parser.parse_args().out
    found = measure()
    print(json.dumps(found, indent=1))
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")
    kept = found["bytes"] < BYTES_ALLOWED and found["seconds_to_open"]["largest"] < SECONDS_ALLOWED
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

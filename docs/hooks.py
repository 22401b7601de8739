"""Makes the example reports while the site is built, so that they are never out of date."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from poisonproof.attacks import AttackStudy

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "going-further" / "reports.py"
ATTACKS = ROOT / "benchmarks" / "results" / "attack_digits.json"


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the example to the site; the attacks are those that were measured."""
    spec = importlib.util.spec_from_file_location("reports", EXAMPLE)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    study = AttackStudy.from_dict(json.loads(ATTACKS.read_text()))
    for name, report in example.reports(study).items():
        files.append(File.generated(config, f"assets/reports/{name}.html", content=report.html()))
    return files

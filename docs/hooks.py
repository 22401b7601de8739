"""Make the example reports and the curves while the site is built: they are never out of date."""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from mkdocs.structure.files import File, Files
from sklearn.datasets import load_digits

from poisonproof import DPAClassifier
from poisonproof.attacks import AttackStudy
from poisonproof.evaluation import certified_accuracy

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "going-further" / "reports.py"
ATTACKS = ROOT / "benchmarks" / "results" / "attack_digits.json"
CURVES = ROOT / "research" / "results" / "curves.json"
COLOURS = ("#00897b", "#e07b00", "#5c6bc0", "#b0406f")
GRAY = "#808a8a"  # readable on the light and on the dark page
SHOWN = {
    "mnist": {
        "mnist-neighbors-0.89": "neighbour votes on HOG",
        "mnist-dpa-kernel-ridge-3000": "kernel ridge on HOG, k = 3,000",
        "mnist-dpa-1200": "NiN networks, k = 1,200",
    },
    "cifar10": {
        "cifar10-strong-150-runoff-network-moved-edges-moved-waves-moved-patches-150": (
            "committee with a network, k = 150"
        ),
        "cifar10-runoff-moved-edges-moved-waves-moved-patches-120": "committee, k = 120",
        "cifar10-strong-150": "tuned ResNet-10, k = 150",
        "cifar10-dpa-50": "NiN networks, k = 50",
    },
    "gtsrb": {
        "gtsrb-tuned-150-dpa-network-edges": "ResNet-10, HOG and colours, k = 150",
        "gtsrb-dpa-colours-200": "HOG and colours, k = 200",
        "gtsrb-dpa-kernel-ridge-100": "kernel ridge on HOG, k = 100",
        "gtsrb-dpa-50": "NiN networks, k = 50",
    },
}


def on_files(files: Files, config: Any) -> Files:
    """Add the curves and the example reports; the attacks are those that were measured."""
    pages = {f"assets/results/{name}.svg": result_curves(shown) for name, shown in SHOWN.items()}
    pages["assets/digits-curve.svg"] = digits_curve()
    for name, report in _example_reports().items():
        pages[f"assets/reports/{name}.html"] = report.html()
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def digits_curve() -> str:
    """Draw certified accuracy of the example on the home page."""
    X, y = load_digits(return_X_y=True)
    clf = DPAClassifier(n_partitions=50, classes=range(10)).fit(X[:1500], y[:1500])
    sizes = list(range(26))
    certified = certified_accuracy(clf.certify(X[1500:]), y[1500:], sizes)
    half = max(size for size, share in zip(sizes, certified, strict=True) if share >= 0.5)
    return _draw([(sizes, [100 * share for share in certified], "")], "test images", half)


def result_curves(shown: dict[str, str]) -> str:
    """Draw committed curves of several methods on one dataset."""
    curves = {curve["id"]: curve for curve in json.loads(CURVES.read_text())["curves"]}
    lines = []
    for name, title in shown.items():
        right, n_test = curves[name]["right"], curves[name]["n_test"]
        lines.append((curves[name]["sizes"], [100 * count / n_test for count in right], title))
    return _draw(lines, "test images")


def _draw(lines: list[tuple[list[int], list[float], str]], of: str, half: int = 0) -> str:
    settings = {"svg.hashsalt": "poisonproof", "svg.fonttype": "none", "font.family": "sans-serif"}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(8, 3.4))
        axes = figure.subplots()
        for (sizes, percent, title), colour in zip(lines, COLOURS, strict=False):
            axes.step(sizes, percent, where="post", color=colour, linewidth=2, label=title or None)
        axes.axhline(50, color=GRAY, linewidth=0.8, linestyle=":")
        if half:
            at = (half, dict(zip(*lines[0][:2], strict=True))[half])
            axes.plot(*at, "o", color=COLOURS[0])
            words = f"any {half} rows:\nat least half of the {of}"
            axes.annotate(words, at, (8, 8), textcoords="offset points", color=GRAY)
        axes.set(xlim=(0, None), ylim=(0, 100))
        axes.set_xlabel("attack size: training rows inserted or deleted", color=GRAY)
        axes.set_ylabel(f"% of {of}, provably correct", color=GRAY)
        axes.tick_params(colors=GRAY)
        for name, spine in axes.spines.items():
            spine.set_color(GRAY)
            spine.set_visible(name in ("left", "bottom"))
        if len(lines) > 1:
            axes.legend(
                loc="upper center",
                bbox_to_anchor=(0.5, -0.18),
                ncols=2,
                frameon=False,
                labelcolor=GRAY,
            )
        text = io.StringIO()
        figure.savefig(
            text, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None}
        )
    return text.getvalue()


def _example_reports() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("reports", EXAMPLE)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    study = AttackStudy.from_dict(json.loads(ATTACKS.read_text()))
    reports: dict[str, Any] = example.reports(study)
    return reports

"""The page in a real browser: numbers, keyboard, accessibility, hostile cells, screens, paper.

Needs a Chromium; without one these tests are skipped. Run them alone with
``pytest tests/report/test_browser.py``; POISONPROOF_CHROMIUM names a browser that is not on the
path, POISONPROOF_SCREENSHOTS a folder for pictures of the page.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poisonproof import certify_votes
from poisonproof.attacks import AttackStudy
from poisonproof.evaluation import certified_accuracy, protected_share
from poisonproof.report import Evidence, Report, make_samples
from poisonproof.report.evidence import percent

from .conftest import random_evidence

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
DARK = {**DESKTOP, "color_scheme": "dark"}
SCREENS = {"desktop": DESKTOP, "phone": PHONE, "dark": DARK}

Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a report from the disk; fail if it logs anything or asks for anything else."""
    contexts, noise = [], []

    def open_report(report: Report, **options: Any) -> Any:
        file = tmp_path / "report.html"
        report.save(file)
        context = browser.new_context(**{**DESKTOP, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("dialog", lambda dialog: noise.append(dialog.message))
        page.on(
            "request",
            lambda asked: None if asked.url in (file.as_uri(),) else noise.append(asked.url),
        )
        page.goto(file.as_uri())
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert [text for text in noise if not text.startswith("data:image/")] == []


def shown(page: Any) -> list[tuple[str, str | None, str | None, str]]:
    return [
        tuple(row)
        for row in page.evaluate(
            """() => Array.from(document.querySelectorAll("[data-show]")).map((element) =>
            [element.dataset.show, element.dataset.model ?? null, element.dataset.class ?? null,
             element.textContent])"""
        )
    ]


def expected(models: list[Evidence], size: int) -> Callable[..., str]:
    """Compute what the page must show, from the evaluation and not from the report's own counts."""

    def value(kind: str, number: str | None, label: str | None) -> str:
        model = models[int(number or 0)]
        certificates, truth, threat = model.certificates, model.y_true, model.certificates.threat
        assert truth is not None
        n = len(truth)
        kept = round(n * float(certified_accuracy(certificates, truth, size)))
        clean = round(n * float(certified_accuracy(certificates, truth, 0)))
        fixed = round(n * float(protected_share(certificates, size)))
        if label is not None:
            own = np.flatnonzero(truth == int(label))
            share = certified_accuracy(certificates[own], truth[own], size)
            return percent(round(len(own) * float(share)), len(own))
        case = f"If any {threat.clause(size)}" if size else "Without an attack"
        return {
            "unit": threat.singular if size == 1 else threat.plural,
            "count": threat.count(size),
            "case": case,
            "kept-share": percent(kept, n),
            "kept-rows": f"{kept:,}",
            "kept-lost": f"{clean - kept:,}",
            "fixed-share": percent(fixed, n),
            "open-rows": f"{n - fixed:,}",
            "wrong-fixed": f"{fixed - kept:,}",
            "budget": percent(size, model.n_training_units or 0),
        }[kind]

    return value


def sizes_of(models: list[Evidence]) -> list[int]:
    largest = max(model.largest for model in models)
    return [0, 1, 2, 5, largest // 2, largest, largest + 1]


@pytest.mark.parametrize("count", [1, 2])
def test_every_number_follows_the_slider(
    open_page: Open, digits: list[Evidence], count: int
) -> None:
    models = digits[:count]
    page = open_page(Report(models, title="Digits"))
    for size in sizes_of(models):
        page.locator("#size").fill(str(size))
        value = expected(models, size)
        numbers = shown(page)
        assert len(numbers) > 15
        for kind, model, label, text in numbers:
            assert text == value(kind, model, label), (size, kind, model, label)
        assert page.locator("#exact").input_value() == str(size)


def test_numbers_agree_on_ten_thousand_rows(open_page: Open) -> None:
    models = [random_evidence(10_000, 1200, 10, partition_sizes=np.full(1200, 50))]
    page = open_page(Report(models))
    for size in (0, 17, 333, models[0].largest):
        page.locator("#size").fill(str(size))
        value = expected(models, size)
        for kind, model, label, text in shown(page):
            assert text == value(kind, model, label), (size, kind, label)


def test_rows_say_whether_they_withstand_the_attack(
    open_page: Open, digits: list[Evidence]
) -> None:
    page = open_page(Report(digits[:1]))
    for size in sizes_of(digits[:1]):
        page.locator("#size").fill(str(size))
        cards = page.evaluate(
            """() => Array.from(document.querySelectorAll(".card")).map((card) => ({
              radius: Number(card.dataset.radius),
              state: card.querySelector("[data-state]").textContent,
              solid: parseFloat(card.querySelector("[data-solid]").getAttribute("width")),
              ghost: parseFloat(card.querySelectorAll("[data-ghost]")[1].getAttribute("width")),
            }))"""
        )
        assert len(cards) == 12
        for card in cards:
            holds = card["radius"] >= size
            assert card["state"] == ("Holds, proved" if holds else "Might be turned")
            # What stays of the winner against what the rival may reach; ties need the tie rule.
            stays, reaches = card["solid"], card["ghost"]
            assert stays >= reaches if holds else stays <= reaches


def test_without_scripts_the_page_shows_the_numbers_of_its_first_size(
    open_page: Open, digits: list[Evidence]
) -> None:
    page = open_page(Report(digits), java_script_enabled=False)
    assert not page.locator(".dial").is_visible()
    assert page.locator(".printed").is_visible()
    size = int(page.locator("#size").get_attribute("value"))
    value = expected(digits, size)
    for kind, model, label, text in shown(page):
        assert text == value(kind, model, label)


def test_the_keyboard_reaches_and_moves_the_slider(open_page: Open, digits: list[Evidence]) -> None:
    page = open_page(Report(digits[:1]))
    before = int(page.locator("#size").input_value())
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "size":
            break
    page.keyboard.press("ArrowRight")
    assert int(page.locator("#exact").input_value()) == before + 1
    page.keyboard.press("Home")
    assert page.locator("#now").text_content() == "Without an attack"
    page.keyboard.press("Tab")
    page.keyboard.type("7")
    assert page.locator("#size").input_value() in {"7", "70"}


def test_a_screen_reader_hears_the_result_once_the_slider_rests(
    open_page: Open, digits: list[Evidence]
) -> None:
    page = open_page(Report(digits[:1]))
    page.locator("#size").fill("3")
    words = digits[0].certificates.threat.count(3)
    assert page.locator("#size").get_attribute("aria-valuetext") == words
    said = re.compile(f"^{words}")  # before, it may say "13 rows ..."
    page.locator("#spoken", has_text=said).wait_for(state="attached", timeout=5000)
    kept = digits[0].tally.kept
    assert percent(kept.at(3), kept.n_rows) in page.locator("#spoken").text_content()


def test_clicking_the_chart_and_the_buttons_moves_the_slider(
    open_page: Open, digits: list[Evidence]
) -> None:
    page = open_page(Report(digits[:1]))
    chart = page.locator(".chart.tall")
    box = chart.bounding_box()
    chart.click(position={"x": box["width"] * 0.999, "y": 10})
    assert page.locator("#size").input_value() == str(digits[0].largest)
    page.get_by_role("button", name="No attack").click()
    assert page.locator("#size").input_value() == "0"


@pytest.mark.parametrize("screen", SCREENS)
def test_no_serious_accessibility_finding(
    open_page: Open, digits: list[Evidence], grid: Evidence, study: AttackStudy, screen: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra dev")
    page = open_page(Report([grid, *digits], title="Digits", study=study), **SCREENS[screen])
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    findings = axe.Axe().run(page).response["violations"]
    serious = [
        (finding["id"], [node["target"] for node in finding["nodes"]])
        for finding in findings
        if finding["impact"] in {"serious", "critical"}
    ]
    assert serious == []


@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_is_wider_than_the_screen(
    open_page: Open, digits: list[Evidence], grid: Evidence, study: AttackStudy, screen: str
) -> None:
    page = open_page(Report([grid, *digits], title="Digits" * 20, study=study), **SCREENS[screen])
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    folder = os.environ.get("POISONPROOF_SCREENSHOTS")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{screen}.png"), full_page=True)


def test_paper_gets_the_attack_size_and_no_controls(
    open_page: Open, digits: list[Evidence]
) -> None:
    page = open_page(Report(digits[:1]))
    page.emulate_media(media="print")
    assert page.locator(".printed").is_visible()
    assert not page.locator(".dial").is_visible()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    folder = os.environ.get("POISONPROOF_SCREENSHOTS")
    if folder:
        page.pdf(path=str(Path(folder) / "print.pdf"), format="A4")


def test_ten_thousand_rows_open_in_under_a_second(open_page: Open) -> None:
    images = np.random.default_rng(0).integers(0, 256, (10_000, 3, 32, 32)).astype(np.uint8)
    evidence = random_evidence(10_000, 1200, 10, samples=make_samples(images))
    page = open_page(Report([evidence]))
    times = []
    for _ in range(3):
        page.reload()
        times.append(page.evaluate("performance.getEntriesByType('navigation')[0].duration"))
    assert min(times) < 1000


HOSTILE = (
    '<script>document.title = "owned"</script>',
    '</script><script>document.title = "owned"</script>',
    '"><img src=x onerror="document.title=1">',
    "'-alert(1)-'",
    '=HYPERLINK("http://example.org","click")',
    "{{ 7 * 7 }}{% raw %}",
    "<!--<script>",
    "javascript:alert(1)",
)


def test_scripts_in_cells_labels_and_names_do_not_run(open_page: Open) -> None:
    n = len(HOSTILE)
    rng = np.random.default_rng(0)
    certificates = certify_votes(rng.integers(0, n, (40, 9)), n).with_classes(list(HOSTILE))
    truth = np.array(HOSTILE)[rng.integers(0, n, 40)]
    text = Evidence(
        HOSTILE[1], certificates, truth, make_samples([HOSTILE[i % n] for i in range(40)])
    )
    cells = make_samples(
        np.array([HOSTILE] * 40, dtype=object),
        names=[f"{name} {i}" for i, name in enumerate(HOSTILE)],
    )
    table = Evidence(HOSTILE[2], certificates, truth, cells)
    page = open_page(Report([text, table], title=HOSTILE[1], data_name=HOSTILE[0], n_shown=12))
    page.locator("#size").fill("1")
    assert page.title() == HOSTILE[1]
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0
    assert page.locator("a:not([href^='#'])").count() == 0
    assert page.locator("tbody th bdi").first.text_content() in HOSTILE
    assert "49" not in page.locator("tbody").first.text_content()

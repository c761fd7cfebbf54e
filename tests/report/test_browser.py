"""The report in a browser: it draws, its controls work, and it asks nothing of the network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorded_runs import write_run

from bic.report.page import write_report

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed (Debian: apt install chromium)"
)

FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
NAMES = [
    "<b>bold</b>",
    "</script><script>alert(1)</script>",
    "constructor",
    *(f"class {number}" for number in range(3, 60)),
]
CHARTS = [
    "curves",
    "new-share",
    "group-share",
    "scores",
    "pair",
    "norms",
    "confusion-before",
    "confusion-after",
]
CHARTS += ["groups", "reliability", "error", "time"]


def chosen_answers(seen: int) -> dict[str, Any]:
    """Ten images of each class, of which class k gets k mod 10 right; the others are taken for the newest class."""
    true = np.repeat(np.arange(seen), 10)
    right = np.tile(np.arange(10), seen) < true % 10
    predicted = np.where(right, true, seen - 1)
    sure = np.full(len(true), 0.5, dtype=np.float32)
    both = {"predicted": predicted, "predicted_uncorrected": np.full(len(true), seen - 1)}
    return {"index": true, "true": true, **both, "confidence": sure, "confidence_uncorrected": sure}


@pytest.fixture(scope="module")
def tab() -> Iterator[tuple[Any, list[str]]]:
    """One tab for all tests, so that plotly's script is compiled once; and what goes wrong in it."""
    wrong: list[str] = []

    def logged(message: Any) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def requested(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            wrong.append(request.url)

    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS.split(), "--no-first-run"]
        )
        page = browser.new_page()
        page.set_default_timeout(10_000)
        page.on("console", logged)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message) or dialog.dismiss())
        page.on("request", requested)
        yield page, wrong
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods of three steps of 20 classes, one run without predictions, and one of another protocol."""
    folder = tmp_path_factory.mktemp("report")
    chosen = [chosen_answers(seen) for seen in (20, 40, 60)]
    write_run(folder / "runs" / "bic", [20, 20, 20], answers=chosen, classes=NAMES)
    same = [{**each, "predicted_uncorrected": each["predicted"]} for each in chosen]
    write_run(
        folder / "runs" / "distill",
        [20, 20, 20],
        answers=same,
        classes=NAMES,
        method="distill",
        pictures=0,
    )
    write_run(folder / "runs" / "other", [200] * 2, per_class=2, seed=4, pictures=0)
    bare = write_run(folder / "lwf", [20, 20, 20], classes=NAMES, method="lwf") / "result.json"
    (folder / "runs" / "lwf.json").write_bytes(bare.read_bytes())
    return write_report([folder / "runs"], folder / "page.html")


@pytest.fixture
def visit(tab: tuple[Any, list[str]], report: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page; at the end no error was logged and no request had left it."""
    page, wrong = tab
    wrong.clear()

    def opened(width: int = 1200, scheme: str = "light") -> Any:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto(report.as_uri())
        page.wait_for_selector("#step-name:not(:empty)")
        return page

    yield opened
    assert wrong == []


def pick(page: Any, label: str) -> None:
    page.select_option("#run", label=label)


def first_column(page: Any, table: str) -> list[str]:
    return [
        text.strip() for text in page.locator(f"{table} tbody tr td:first-child").all_inner_texts()
    ]


def test_every_chart_is_drawn_once_it_comes_into_view(visit: Any) -> None:
    page = visit()
    assert page.locator("#time .main-svg").count() == 0
    for chart in CHARTS:
        page.locator(f"#{chart}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#{chart} .main-svg")
    assert page.locator("#curves .legendtext").all_text_contents() == ["lwf", "bic", "distill"]
    assert page.locator("#run option:checked").inner_text() == "bic, seed 0, 3 × 20"


def test_curves_can_be_hidden_and_the_metric_changed(visit: Any) -> None:
    page = visit()
    page.wait_for_selector("#curves .main-svg")
    assert page.locator("#curves .scatterlayer .trace").count() == 3
    page.locator("#curves .legendtoggle").first.click()
    page.wait_for_function("document.querySelectorAll('#curves .scatterlayer .trace').length === 2")
    page.get_by_text("The numbers").click()
    bic = page.locator("#numbers tr", has=page.get_by_text("bic", exact=True))
    assert bic.locator("td").all_inner_texts() == ["45.50", "45.25", "45.17"]
    page.get_by_label("top-1 of the raw scores").check()
    assert bic.locator("td").all_inner_texts() == ["5.00", "2.50", "1.67"]
    page.select_option("#protocol", index=1)
    page.wait_for_function("document.querySelectorAll('#curves .scatterlayer .trace').length === 1")


def test_the_slider_moves_all_that_depends_on_the_step(visit: Any) -> None:
    page = visit()
    page.locator("#confusion-after").scroll_into_view_if_needed()
    page.wait_for_selector("#confusion-after .main-svg")
    assert page.locator("#confusion-before-note").inner_text() == "step 3: 1.7 % right"
    assert page.locator("#confusion-after-note").inner_text() == "step 3: 45.2 % right"
    page.focus("#step")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#step-name").inner_text() == "2 of 3, 40 classes"
    assert page.locator("#confusion-after-note").inner_text() == "step 2: 45.3 % right"
    assert page.evaluate("document.getElementById('confusion-after').data[0].z.length") == 40
    page.get_by_label("groups of classes").check()
    assert page.evaluate("document.getElementById('confusion-after').data[0].text[0][1]").endswith(
        "110 of 200, 55.0 %"
    )


def test_what_a_run_has_not_is_not_shown(visit: Any) -> None:
    page = visit()
    assert page.locator("#pair").is_visible()
    pick(page, "distill, seed 0, 3 × 20")
    assert not page.locator("#pair").is_visible()
    assert not page.locator("#confusion-before").is_visible()
    pick(page, "lwf, seed 0, 3 × 20")
    assert page.locator("#confusions-empty").is_visible()
    assert not page.locator("#class-table").is_visible()
    pick(page, "bic, seed 0, 3 × 20")
    assert page.locator("#pair").is_visible()
    assert page.locator("#class-table").is_visible()


def test_classes_are_sorted_searched_and_turned(visit: Any) -> None:
    page = visit()
    assert page.locator("#class-table .count").inner_text() == "1–10 of 60"
    page.get_by_role("button", name="Class", exact=True).click()
    assert first_column(page, "#class-table")[0] == "</script><script>alert(1)</script>"
    page.get_by_role("button", name="Accuracy", exact=True).click()
    assert first_column(page, "#class-table")[:3] == [
        "<b>bold</b>",
        "class 10",
        "class 20",
    ]  # none of them right
    page.get_by_role("button", name="Accuracy", exact=True).press("Enter")
    assert first_column(page, "#class-table")[:2] == [
        "class 59",
        "class 9",
    ]  # all of the newest, nine of ten
    assert page.locator("#class-table th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.locator("#class-table [aria-label='Later rows']").click()
    assert page.locator("#class-table .count").inner_text() == "11–20 of 60"
    page.get_by_label("Search: Every class").fill("class 4")
    assert page.locator("#class-table .count").inner_text() == "1–10 of 11"


def test_a_click_on_a_cell_lists_its_pairs(visit: Any) -> None:
    page = visit()
    assert page.locator("#pairs .count").inner_text() == "1–8 of 59"
    page.locator("#confusion-after").scroll_into_view_if_needed()
    page.wait_for_selector("#confusion-after .main-svg")
    page.get_by_label("groups of classes").check()
    box = page.locator("#confusion-after .nsewdrag").bounding_box()
    page.mouse.click(
        box["x"] + box["width"] * 5 / 6, box["y"] + box["height"] / 6
    )  # step 1 taken for step 3
    page.wait_for_function("document.querySelector('#pairs .count').textContent === '1–8 of 20'")
    said = page.locator("#pairs .cell").inner_text()
    assert said.startswith(
        "step 1 (classes 1–20) taken for step 3 (classes 41–60): 110 of 200 after step 3."
    )
    page.get_by_role("button", name="show all").click()
    assert page.locator("#pairs .count").inner_text() == "1–8 of 59"


def test_zooming_one_matrix_zooms_both(visit: Any) -> None:
    page = visit()
    page.locator("#confusion-after").scroll_into_view_if_needed()
    page.wait_for_selector("#confusion-after .main-svg")
    box = page.locator("#confusion-before .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 6, box["y"] + box["height"] / 6, steps=4)
    page.mouse.up()
    page.wait_for_selector("#unzoom:not([hidden])")
    ticks = page.locator("#confusion-after .ytick text").all_text_contents()
    assert ticks[:3] == ["<b>bold</b>", "</script><script>a", "constructor"]
    page.locator("#unzoom").click()
    page.wait_for_function(
        "document.querySelector('#confusion-after .ytick text').textContent === 'step 1'"
    )
    # Old classes taken for new ones: a part of the matrix away from its diagonal.
    box = page.locator("#confusion-before .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 5 / 6, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 6, steps=4)
    page.mouse.up()
    page.wait_for_selector("#unzoom:not([hidden])")
    assert page.locator("#confusion-after .ytick text").all_text_contents()[:1] == ["<b>bold</b>"]
    assert "class 55" in page.locator("#confusion-after .xtick text").all_text_contents()


def test_nothing_can_be_uploaded(visit: Any) -> None:
    page = visit()
    page.locator("#curves").hover()
    page.wait_for_selector("#curves .modebar-btn")
    titles = page.locator("#curves .modebar-btn").evaluate_all(
        "all => all.map(one => one.dataset.title)"
    )
    assert "Zoom" in titles
    assert not any("share" in (title or "").lower() for title in titles)
    assert not page.locator("#no-plotly").is_visible()


def test_a_page_without_its_script_says_so(
    tab: tuple[Any, list[str]], report: Path, tmp_path: Path
) -> None:
    page, wrong = tab
    shutil.copy(report, tmp_path / "moved.html")
    page.goto((tmp_path / "moved.html").as_uri())
    page.wait_for_selector("#no-plotly:not([hidden])")
    assert "must lie beside this page" in page.locator("#no-plotly").inner_text()
    wrong.clear()  # the browser logs that the script is missing


def test_many_classes_are_shown_by_group_first(visit: Any) -> None:
    page = visit()
    pick(page, "bic, seed 4, 2 × 200")
    page.locator("#confusion-after").scroll_into_view_if_needed()
    page.wait_for_selector("#confusion-after .main-svg")
    sizes = "document.getElementById('confusion-after').data[0].z.length"
    assert page.evaluate(sizes) == 2
    page.get_by_label("bins of up to 4 classes").check()
    assert page.evaluate(sizes) == 100


def test_light_and_dark(visit: Any) -> None:
    page = visit(scheme="dark")
    page.wait_for_selector("#curves .main-svg")
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('curves')._fullLayout.font.color"
    assert page.evaluate(background) == "rgb(16, 19, 22)"
    assert page.evaluate(ink) == "rgb(231, 234, 238)"
    page.locator("#theme").click()
    assert page.evaluate(background) == "rgb(246, 247, 249)"
    assert page.evaluate(ink) == "rgb(27, 31, 36)"


def test_a_phones_width_holds_the_page(visit: Any) -> None:
    page = visit(width=390)
    for chart in CHARTS:
        page.locator(f"#{chart}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#{chart} .main-svg")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_paper_has_every_chart_and_whole_tables(visit: Any) -> None:
    page = visit()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    widest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth))"
    )
    assert widest <= 720
    assert page.locator(".count:visible").all_inner_texts() == ["1–8 of 59", "1–10 of 60"]
    page.emulate_media(media="screen")
    assert page.locator(".plot .main-svg:first-child").count() == len(CHARTS)
    assert page.locator("#curves").bounding_box()["width"] < 720
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#curves").bounding_box()["width"] > 720

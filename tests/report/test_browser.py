"""The report in a browser: it draws, its controls work, and it needs no network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorded_runs import write_run

from bic.report.page import write_report

NAMES = [
    "<b>bold</b>",
    "</script><script>alert(1)</script>",
    "constructor",
    *(f"class {number}" for number in range(3, 60)),
]
CHARTS = (
    "curves",
    "new-share",
    "group-share",
    "logits",
    "pair",
    "norms",
    "confusion-before",
    "confusion-after",
    "groups",
    "reliability",
    "error",
    "time",
)
NUM_CURVES = "document.querySelectorAll('#curves .scatterlayer .trace').length"


def chosen_predictions(seen: int) -> dict[str, Any]:
    """Ten images per class. Of class k, k mod 10 are right; the others go to the newest class."""
    true = np.repeat(np.arange(seen), 10)
    is_right = np.tile(np.arange(10), seen) < true % 10
    confidence = np.full(len(true), 0.5, dtype=np.float32)
    return {
        "index": true,
        "true": true,
        "predicted": np.where(is_right, true, seen - 1),
        "predicted_uncorrected": np.full(len(true), seen - 1),
        "confidence": confidence,
        "confidence_uncorrected": confidence,
    }


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[tuple[Any, list[str]]]:
    """One tab for all tests, so that plotly's script is compiled once, and its list of errors."""
    errors: list[str] = []

    def log(message: Any) -> None:
        if message.type in ("error", "warning"):
            errors.append(message.text)

    def log_request(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            errors.append(request.url)

    def dismiss(dialog: Any) -> None:
        errors.append(dialog.message)
        dialog.dismiss()

    page = browser.new_page()
    page.set_default_timeout(10_000)
    page.on("console", log)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", dismiss)
    page.on("request", log_request)
    yield page, errors
    page.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two methods in three steps of 20 classes, and of two other runs.

    One of them has no predictions, the other is of another protocol.
    """
    folder = tmp_path_factory.mktemp("report")
    runs = folder / "runs"
    sizes = [20, 20, 20]
    corrected = [chosen_predictions(seen) for seen in (20, 40, 60)]
    plain = [{**columns, "predicted_uncorrected": columns["predicted"]} for columns in corrected]
    write_run(runs / "bic", sizes, predictions=corrected, classes=NAMES)
    distill = {"method": "distill", "pictures": 0}
    write_run(runs / "distill", sizes, predictions=plain, classes=NAMES, **distill)
    write_run(runs / "other", [200] * 2, per_class=2, seed=4, pictures=0)
    result = write_run(folder / "lwf", sizes, classes=NAMES, method="lwf") / "result.json"
    (runs / "lwf.json").write_bytes(result.read_bytes())
    return write_report([runs], folder / "page.html")


@pytest.fixture
def visit(tab: tuple[Any, list[str]], report: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page. At the end no error was logged and no request left the machine."""
    page, errors = tab
    errors.clear()

    def opened(width: int = 1200, scheme: str = "light") -> Any:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto(report.as_uri())
        page.wait_for_selector("#step-name:not(:empty)")
        return page

    yield opened
    assert errors == []


def pick(page: Any, label: str) -> None:
    page.select_option("#run", label=label)


def show(page: Any, chart: str) -> None:
    """Scroll to a chart and wait until it is drawn."""
    page.locator(f"#{chart}").scroll_into_view_if_needed()
    page.wait_for_selector(f"#{chart} .main-svg")


def drag(page: Any, chart: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag the mouse over a chart. Positions are shares of its width and height."""
    box = page.locator(f"#{chart} .nsewdrag").bounding_box()
    positions = [
        (box["x"] + box["width"] * across, box["y"] + box["height"] * down)
        for across, down in (start, end)
    ]
    page.mouse.move(*positions[0])
    page.mouse.down()
    page.mouse.move(*positions[1], steps=4)
    page.mouse.up()


def first_column(page: Any, table: str) -> list[str]:
    cells = page.locator(f"{table} tbody tr td:first-child").all_inner_texts()
    return [text.strip() for text in cells]


def test_every_chart_is_drawn_when_it_comes_into_view(visit: Any) -> None:
    page = visit()
    assert page.locator("#time .main-svg").count() == 0
    for chart in CHARTS:
        show(page, chart)
    assert page.locator("#curves .legendtext").all_text_contents() == ["lwf", "bic", "distill"]
    assert page.locator("#run option:checked").inner_text() == "bic, seed 0, 3 × 20"


def test_curves_can_be_hidden_and_the_metric_changed(visit: Any) -> None:
    page = visit()
    show(page, "curves")
    assert page.evaluate(NUM_CURVES) == 3
    page.locator("#curves .legendtoggle").first.click()
    page.wait_for_function(f"{NUM_CURVES} === 2")
    page.get_by_text("The numbers").click()
    bic = page.locator("#numbers tr", has=page.get_by_text("bic", exact=True))
    assert bic.locator("td").all_inner_texts() == ["45.50", "45.25", "45.17"]
    page.get_by_label("top-1 of the raw logits").check()
    assert bic.locator("td").all_inner_texts() == ["5.00", "2.50", "1.67"]
    page.select_option("#protocol", index=1)
    page.wait_for_function(f"{NUM_CURVES} === 1")


def test_the_slider_changes_everything_that_depends_on_the_step(visit: Any) -> None:
    page = visit()
    show(page, "confusion-after")
    assert page.locator("#confusion-before-note").inner_text() == "step 3: 1.7 % right"
    assert page.locator("#confusion-after-note").inner_text() == "step 3: 45.2 % right"
    page.focus("#step")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#step-name").inner_text() == "2 of 3, 40 classes"
    assert page.locator("#confusion-after-note").inner_text() == "step 2: 45.3 % right"
    trace = "document.getElementById('confusion-after').data[0]"
    assert page.evaluate(f"{trace}.z.length") == 40
    page.get_by_label("groups of classes").check()
    assert page.evaluate(f"{trace}.text[0][1]").endswith("110 of 200, 55.0 %")


def test_parts_without_data_are_hidden(visit: Any) -> None:
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


def test_classes_can_be_sorted_searched_and_paged(visit: Any) -> None:
    page = visit()
    count = page.locator("#class-table .count")
    by_accuracy = page.get_by_role("button", name="Accuracy", exact=True)
    assert count.inner_text() == "1–10 of 60"
    page.get_by_role("button", name="Class", exact=True).click()
    assert first_column(page, "#class-table")[0] == "</script><script>alert(1)</script>"
    by_accuracy.click()
    none_right = ["<b>bold</b>", "class 10", "class 20"]
    assert first_column(page, "#class-table")[:3] == none_right
    by_accuracy.press("Enter")
    newest_and_nine_of_ten = ["class 59", "class 9"]
    assert first_column(page, "#class-table")[:2] == newest_and_nine_of_ten
    assert page.locator("#class-table th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.locator("#class-table [aria-label='Later rows']").click()
    assert count.inner_text() == "11–20 of 60"
    page.get_by_label("Search: Every class").fill("class 4")
    assert count.inner_text() == "1–10 of 11"


def test_a_click_on_a_cell_lists_its_pairs(visit: Any) -> None:
    page = visit()
    assert page.locator("#pairs .count").inner_text() == "1–8 of 59"
    show(page, "confusion-after")
    page.get_by_label("groups of classes").check()
    box = page.locator("#confusion-after .nsewdrag").bounding_box()
    # Step 1 taken for step 3.
    page.mouse.click(box["x"] + box["width"] * 5 / 6, box["y"] + box["height"] / 6)
    page.wait_for_function("document.querySelector('#pairs .count').textContent === '1–8 of 20'")
    note = page.locator("#pairs .cell").inner_text()
    assert note.startswith(
        "step 1 (classes 1–20) taken for step 3 (classes 41–60): 110 of 200 after step 3."
    )
    page.get_by_role("button", name="show all").click()
    assert page.locator("#pairs .count").inner_text() == "1–8 of 59"


def test_zooming_one_matrix_zooms_both(visit: Any) -> None:
    page = visit()
    show(page, "confusion-after")
    drag(page, "confusion-before", (0.004, 0.004), (1 / 6, 1 / 6))
    page.wait_for_selector("#unzoom:not([hidden])")
    ticks = page.locator("#confusion-after .ytick text").all_text_contents()
    assert ticks[:3] == ["<b>bold</b>", "</script><script>a", "constructor"]
    page.locator("#unzoom").click()
    page.wait_for_function(
        "document.querySelector('#confusion-after .ytick text').textContent === 'step 1'"
    )


def test_a_part_away_from_the_diagonal_can_be_zoomed(visit: Any) -> None:
    page = visit()
    show(page, "confusion-after")
    # Old classes taken for new ones.
    drag(page, "confusion-before", (5 / 6, 0.004), (0.996, 1 / 6))
    page.wait_for_selector("#unzoom:not([hidden])")
    assert page.locator("#confusion-after .ytick text").all_text_contents()[:1] == ["<b>bold</b>"]
    assert "class 55" in page.locator("#confusion-after .xtick text").all_text_contents()


def test_nothing_can_be_uploaded(visit: Any) -> None:
    page = visit()
    page.locator("#curves").hover()
    page.wait_for_selector("#curves .modebar-btn")
    titles = page.locator("#curves .modebar-btn").evaluate_all(
        "buttons => buttons.map(button => button.dataset.title)"
    )
    assert "Zoom" in titles
    assert not any("share" in (title or "").lower() for title in titles)
    assert not page.locator("#no-plotly").is_visible()


def test_a_page_without_plotly_says_so(
    tab: tuple[Any, list[str]], report: Path, tmp_path: Path
) -> None:
    page, errors = tab
    shutil.copy(report, tmp_path / "moved.html")
    page.goto((tmp_path / "moved.html").as_uri())
    page.wait_for_selector("#no-plotly:not([hidden])")
    message = page.locator("#no-plotly").inner_text()
    assert "must be in the same folder as this page" in " ".join(message.split())
    errors.clear()  # the browser logs that the script is missing


def test_many_classes_are_shown_by_group_first(visit: Any) -> None:
    page = visit()
    pick(page, "bic, seed 4, 2 × 200")
    show(page, "confusion-after")
    num_rows = "document.getElementById('confusion-after').data[0].z.length"
    assert page.evaluate(num_rows) == 2
    page.get_by_label("bins of up to 4 classes").check()
    assert page.evaluate(num_rows) == 100


def test_light_and_dark(visit: Any) -> None:
    page = visit(scheme="dark")
    show(page, "curves")
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('curves')._fullLayout.font.color"
    assert page.evaluate(background) == "rgb(16, 19, 22)"
    assert page.evaluate(ink) == "rgb(231, 234, 238)"
    page.locator("#theme").click()
    assert page.evaluate(background) == "rgb(246, 247, 249)"
    assert page.evaluate(ink) == "rgb(27, 31, 36)"


def test_the_page_fits_the_width_of_a_phone(visit: Any) -> None:
    page = visit(width=390)
    for chart in CHARTS:
        show(page, chart)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_all_charts_and_whole_tables_are_printed(visit: Any) -> None:
    page = visit()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    widest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.scroll')].map((table) => table.scrollWidth))"
    )
    assert widest <= 720
    assert page.locator(".count:visible").all_inner_texts() == ["1–8 of 59", "1–10 of 60"]
    page.emulate_media(media="screen")
    assert page.locator(".plot .main-svg:first-child").count() == len(CHARTS)
    assert page.locator("#curves").bounding_box()["width"] < 720
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#curves").bounding_box()["width"] > 720

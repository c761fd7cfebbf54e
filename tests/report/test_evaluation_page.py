"""The page and the tables of an evaluation: figures by hand, names from strangers, a browser."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.pictures import ROTATED, jpeg, orientation, picture, png

from bic import Evaluation, Share, UserError
from bic.model.evaluation import ClassResult, Confusion, Mistake, Rejection
from bic.model.measures import Reliability
from bic.report.evaluation_page import CHART_SIDE, _bars, _picture, render, write_page
from bic.report.evaluation_tables import sentences, tables

EVIL = "</script><script>alert(1)</script>\x1b[2J[red]"
LAST_OF_15 = np.arange(15) == 14
MEASURED = Reliability(4 * LAST_OF_15, 0.9 * LAST_OF_15, 0.75 * LAST_OF_15)
EVALUATION = Evaluation(
    accuracy=Share(9, 10),
    top5=None,
    classes=(ClassResult("ant", Share(4, 5), 4), ClassResult(EVIL, Share(5, 5), 6)),
    confusions=(Confusion("ant", EVIL, 1),),
    mistakes=(Mistake(3, "ant", EVIL, 0.987),),
    uncalibrated=MEASURED,
    calibrated=MEASURED,
    temperature=1.25,
    rejection=Rejection(0.05, 0.3, Share(1, 10), Share(9, 9), Share(1, 2)),
    unknown={"cow": 2},
    untested=("dog",),
    num_skipped=1,
)
FACTS = {"model": "shop"}


def test_sentences_say_what_matters() -> None:
    assert sentences(EVALUATION) == [
        "90.0 % of 10 images are right.",
        "95 % interval 59.6 to 98.2 %; mean over 2 classes 90.0 %.",
        "2 images of 1 class that the model does not know are not in these figures: cow.",
        "1 class without test images: dog.",
        "1 image could not be read.",
        "“None of these” below a certainty of 0.300 wrongly rejects 10.0 % of the images of "
        "known classes (5 % of the held-out images).",
        "Of the other answers, 100.0 % are right.",
        "It rejects 50.0 % of the 2 images of unknown classes (95 % interval 9.5 to 90.5 %).",
    ]
    many = replace(EVALUATION, untested=tuple("abcdefg"), top5=Share(10, 10))
    assert "7 classes without test images: a, b, c, d, e and 2 more." in sentences(many)
    assert sentences(many)[1].endswith("; top-5 100.0 %.")


def test_tables_show_names_as_they_are_but_no_control_characters() -> None:
    console = Console(file=io.StringIO(), width=120)
    for table in tables(EVALUATION):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in text
    assert r"</script><script>alert(1)</script>\x1b[2J[red]" in text
    assert re.search(r"80 to 100 % +4 +90\.0 % +75\.0 % +4 +90\.0 % +75\.0 %", text)
    assert re.search(r"0 to 20 % +0 +– +– +0 +– +–", text)
    assert "expected calibration error before: 15.0 points, after: 15.0 points" in text


def test_a_bar_ends_at_the_accuracy_and_its_gap_at_the_confidence() -> None:
    (bar,) = _bars(Reliability(np.array([0, 4]), np.array([0.0, 0.9]), np.array([0.0, 0.75])))
    assert (bar.x, bar.width) == (CHART_SIDE / 2 + 1, CHART_SIDE / 2 - 2)
    assert (bar.y, bar.height) == (CHART_SIDE / 4, CHART_SIDE * 3 / 4)
    assert bar.gap_y == pytest.approx(CHART_SIDE * 0.1)
    assert bar.gap_height == pytest.approx(CHART_SIDE * 0.15)
    assert bar.title == "4 images: 90.0% sure, 75.0% right"


def test_the_page_is_whole_and_asks_nothing_of_others() -> None:
    page = render(EVALUATION, FACTS, {3: png(picture(1, 40, 30))})
    assert "<h1>90.0 % of 10 images are right.</h1>" in page
    assert page.count("<script>alert") == 0
    assert "data:image/webp;base64," in page
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", page)
    assert "None of these" in page
    plain = replace(EVALUATION, rejection=None, calibrated=None, temperature=None, mistakes=())
    assert "The model has no temperature" in render(plain, FACTS, {})
    assert 'id="rejection"' not in render(plain, FACTS, {})


def test_pictures_are_upright_and_others_left_out() -> None:
    turned = jpeg(picture(1, 40, 20), exif=orientation(ROTATED))
    assert _picture(turned) is not None
    assert _picture(b"\x93NUMPY") is None
    assert _picture(b"") is None


def test_the_page_must_be_html(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a name that ends in \.html, got .*; change report"):
        write_page(EVALUATION, tmp_path / "page.txt", facts=FACTS)
    with pytest.raises(UserError, match="cannot write"):
        write_page(EVALUATION, Path("/proc/page.html"), facts=FACTS)


def test_in_a_browser(tmp_path: Path, browser: Any) -> None:
    path = write_page(EVALUATION, tmp_path / "page.html", facts=FACTS)
    problems: list[str] = []
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on("request", lambda request: problems.append(request.url))
    page.goto(path.as_uri())
    rows = page.locator("#class-table tbody tr").all_inner_texts()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.click("#theme")
    page.fill("#class-table input", "ant")
    found = page.locator("#class-table tbody tr").all_inner_texts()
    page.close()
    assert [row.split("\t")[0].strip() for row in rows] == ["ant", EVIL]
    assert len(found) == 1
    assert problems == [path.as_uri()]

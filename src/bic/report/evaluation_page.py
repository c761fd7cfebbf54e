"""The page of an evaluation: one HTML file that works offline."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bic.data.small_pictures import small_picture
from bic.errors import UserError
from bic.files import write_file
from bic.model.evaluation import Evaluation, Mistake
from bic.model.measures import Reliability
from bic.report.evaluation_tables import rejection_sentences, sentences
from bic.report.html_page import html_page

# In this order: later scripts use what earlier ones define.
SCRIPTS = ("start.js", "table.js", "evaluation.js")
PICTURE_SIDE = 112  # pixels
CHART_SIDE = 240  # units of the drawing
Content = dict[str, Any]


class Bar(NamedTuple):
    """One bin of a reliability diagram, in units of the drawing. `gap` spans to the confidence."""

    x: float
    width: float
    y: float
    height: float
    gap_y: float
    gap_height: float
    title: str


def write_page(
    evaluation: Evaluation,
    out: Path,
    *,
    facts: Mapping[str, str],
    pictures: Mapping[int, bytes] | None = None,
) -> Path:
    """Write the page and return its path.

    `facts` says what was evaluated, such as the folder of the model. `pictures` has encoded images
    by their position among the test images, to show mistakes. Raises UserError if the page cannot
    be written.
    """
    check_name(out)
    write_file(out, render(evaluation, facts, pictures or {}).encode(errors="replace"))
    return out


def check_name(out: Path) -> None:
    """Raise UserError if the page has another ending than .html."""
    if out.suffix.lower() not in (".html", ".htm"):
        problem = f"the page must have a name that ends in .html, got {out}"
        raise UserError(problem, "change {report}")


def render(evaluation: Evaluation, facts: Mapping[str, str], pictures: Mapping[int, bytes]) -> str:
    """The text of the page."""
    rejection = rejection_sentences(evaluation)
    headline, lead, *notices = sentences(evaluation)
    return html_page(
        "evaluation.html",
        styles=["page.css", "evaluation.css"],
        scripts=SCRIPTS,
        data=_data(evaluation),
        headline=headline,
        lead=lead,
        notices=notices[: len(notices) - len(rejection)],
        rejection=rejection,
        mistakes=_pictured(evaluation.mistakes, pictures),
        diagrams=_diagrams(evaluation),
        temperature=evaluation.temperature,
        facts=facts,
        chart_side=CHART_SIDE,
    )


def _data(evaluation: Evaluation) -> Content:
    """The rows of the tables, for the page's script."""
    classes = []
    for result in evaluation.classes:
        accuracy = result.accuracy
        low, high = accuracy.interval
        figures = [100 * accuracy.value, 100 * low, 100 * high]
        rounded = [round(figure, 2) for figure in figures]
        classes.append([result.name, *rounded, accuracy.total, result.num_predicted])
    num_images = {result.name: result.accuracy.total for result in evaluation.classes}
    confusions = []
    for confusion in evaluation.confusions:
        share = 100 * confusion.num_images / num_images[confusion.true]
        pair = [confusion.true, confusion.predicted]
        confusions.append([*pair, confusion.num_images, round(share, 2)])
    return {"classes": classes, "confusions": confusions}


def _diagrams(evaluation: Evaluation) -> list[Content]:
    sides = [("Without a temperature", "before", evaluation.uncalibrated)]
    if evaluation.calibrated is not None:
        sides[0] = ("Before", "before", evaluation.uncalibrated)
        sides.append(("After", "after", evaluation.calibrated))
    diagrams = []
    for title, side, measured in sides:
        diagrams.append(
            {
                "title": title,
                "side": side,
                "error": f"{100 * measured.error:.1f}",
                "bars": _bars(measured),
                "rows": _rows(measured),
            }
        )
    return diagrams


def _rows(measured: Reliability) -> list[tuple[str, str, str, str]]:
    """The bins with images: their range, number of images, mean confidence and accuracy."""
    rows = []
    num_bins = len(measured.counts)
    columns = (column.tolist() for column in measured)
    for number, (count, confidence, accuracy) in enumerate(zip(*columns, strict=True)):
        if count:
            low = 100 * number / num_bins
            high = 100 * (number + 1) / num_bins
            bin_range = f"{low:.0f} to {high:.0f} %"
            rows.append((bin_range, f"{count:,}", f"{confidence:.1%}", f"{accuracy:.1%}"))
    return rows


def _bars(measured: Reliability) -> list[Bar]:
    num_bins = len(measured.counts)
    width = CHART_SIDE / num_bins
    bars = []
    columns = (column.tolist() for column in measured)
    for number, (count, confidence, accuracy) in enumerate(zip(*columns, strict=True)):
        if not count:
            continue
        low, high = sorted((accuracy, confidence))
        images = "1 image" if count == 1 else f"{count:,} images"
        bars.append(
            Bar(
                x=round(number * width + 1, 2),
                width=round(width - 2, 2),
                y=round(CHART_SIDE * (1 - accuracy), 2),
                height=round(CHART_SIDE * accuracy, 2),
                gap_y=round(CHART_SIDE * (1 - high), 2),
                gap_height=round(CHART_SIDE * (high - low), 2),
                title=f"{images}: {confidence:.1%} sure, {accuracy:.1%} right",
            )
        )
    return bars


def _pictured(mistakes: Sequence[Mistake], pictures: Mapping[int, bytes]) -> list[Content]:
    """The mistakes whose pictures can be shown."""
    shown = []
    for mistake in mistakes:
        picture = _picture(pictures.get(mistake.image, b""))
        if picture is not None:
            shown.append(
                {
                    "picture": picture,
                    "true": mistake.true,
                    "predicted": mistake.predicted,
                    "confidence": f"{100 * mistake.confidence:.0f}\N{NO-BREAK SPACE}%",
                }
            )
    return shown


def _picture(encoded: bytes) -> str | None:
    """A small picture as base64 of WebP, or None for what is not an image, such as a vector."""
    small = small_picture(encoded, PICTURE_SIDE)
    return None if small is None else base64.b64encode(small).decode()

"""An evaluation on the terminal: a few sentences and tables."""

from collections.abc import Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from bic.model.evaluation import Evaluation
from bic.model.intervals import Share
from bic.model.measures import Reliability
from bic.report.tables import new_table
from bic.text import printable

SHOWN_CLASSES = 15
SHOWN_CONFUSIONS = 10
SHOWN_NAMES = 5
SHOWN_BINS = 5  # the bins of a reliability are merged to so many


def percent(share: Share) -> str:
    return f"{100 * share.value:.1f} %"


def interval(share: Share) -> str:
    """The 95 % interval in words.

    >>> interval(Share(9, 10))
    '59.6 to 98.2 %'
    """
    low, high = share.interval
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "image"), counted(2000, "image"), counted(2, "class")
    ('1 image', '2,000 images', '2 classes')
    """
    ending = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:SHOWN_NAMES])
    more = len(names) - SHOWN_NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown


def sentences(evaluation: Evaluation) -> list[str]:
    """What the evaluation says: the accuracy, more about it, and what must be known besides.

    Names in it are not made printable.
    """
    accuracy = evaluation.accuracy
    num_classes = counted(len(evaluation.classes), "class")
    more = f"95 % interval {interval(accuracy)}"
    more += f"; mean over {num_classes} {100 * evaluation.mean_accuracy:.1f} %"
    if evaluation.top5 is not None:
        more += f"; top-5 {percent(evaluation.top5)}"
    lines = [f"{percent(accuracy)} of {counted(accuracy.total, 'image')} are right.", f"{more}."]
    if evaluation.unknown:
        num_unknown = counted(sum(evaluation.unknown.values()), "image")
        unknown = counted(len(evaluation.unknown), "class")
        lines.append(
            f"{num_unknown} of {unknown} that the model does not know are not in these figures: "
            f"{listed(list(evaluation.unknown))}."
        )
    if evaluation.untested:
        untested = counted(len(evaluation.untested), "class")
        lines.append(f"{untested} without test images: {listed(evaluation.untested)}.")
    if evaluation.num_skipped:
        lines.append(f"{counted(evaluation.num_skipped, 'image')} could not be read.")
    return lines + rejection_sentences(evaluation)


def rejection_sentences(evaluation: Evaluation) -> list[str]:
    """What answering "none of these" costs and brings."""
    rejection = evaluation.rejection
    if rejection is None:
        return []
    lines = [
        f"“None of these” below a certainty of {rejection.threshold:.3f} wrongly rejects "
        f"{percent(rejection.known)} of the images of known classes "
        f"({100 * rejection.share:g} % of the held-out images)."
    ]
    if rejection.answered is not None:
        lines.append(f"Of the other answers, {percent(rejection.answered)} are right.")
    if rejection.unknown is not None:
        lines.append(
            f"It rejects {percent(rejection.unknown)} of the "
            f"{counted(rejection.unknown.total, 'image')} of unknown classes "
            f"(95 % interval {interval(rejection.unknown)})."
        )
    return lines


def tables(evaluation: Evaluation) -> list[Table]:
    """The tables of the terminal. The JSON and the page have all rows."""
    shown = [_classes(evaluation)]
    if evaluation.confusions:
        shown.append(_confusions(evaluation))
    return [*shown, _calibration(evaluation)]


def _classes(evaluation: Evaluation) -> Table:
    table = new_table("Classes, the worst first", "class", ["right", "images", "95 % interval"])
    worst = sorted(evaluation.classes, key=lambda result: result.accuracy.value)
    for result in worst[:SHOWN_CLASSES]:
        accuracy = result.accuracy
        cells = [percent(accuracy), f"{accuracy.total:,}", interval(accuracy)]
        table.add_row(_plain(result.name), *cells)
    more = len(worst) - SHOWN_CLASSES
    if more > 0:
        table.caption = f"and {counted(more, 'class')} more"
    return table


def _confusions(evaluation: Evaluation) -> Table:
    table = new_table("Most confused", "true class", ["taken for", "images"])
    for confusion in evaluation.confusions[:SHOWN_CONFUSIONS]:
        table.add_row(
            _plain(confusion.true), _plain(confusion.predicted), f"{confusion.num_images:,}"
        )
    return table


def _calibration(evaluation: Evaluation) -> Table:
    """Confidence and accuracy, before and after the temperature, in few bins."""
    sides = [("", evaluation.uncalibrated)]
    title = "Calibration: how sure, and how often right"
    if evaluation.calibrated is not None:
        title += ", before and after the temperature"
        sides = [("before: ", evaluation.uncalibrated), ("after: ", evaluation.calibrated)]
    columns = []
    for name, _ in sides:
        columns += [f"{name}images", "sure", "right"]
    table = new_table(title, "confidence", columns)
    for row in range(SHOWN_BINS):
        cells: list[str] = []
        for _, measured in sides:
            cells += _bin_cells(measured, row)
        low = 100 * row // SHOWN_BINS
        table.add_row(f"{low} to {low + 100 // SHOWN_BINS} %", *cells)
    errors = [f"{name}{100 * measured.error:.1f} points" for name, measured in sides]
    caption = f"expected calibration error {', '.join(errors)}"
    if evaluation.temperature is None:
        caption += "; the model has no temperature"
    else:
        caption += f"; temperature {evaluation.temperature:.3f}"
    table.caption = caption
    return table


def _bin_cells(measured: Reliability, row: int) -> list[str]:
    """Number of images, mean confidence and accuracy in one of the merged bins."""
    bins = np.array_split(np.arange(len(measured.counts)), SHOWN_BINS)[row]
    counts = measured.counts[bins]
    total = int(counts.sum())
    if not total:
        return ["0", "–", "–"]
    confidence = float(counts @ measured.confidence[bins]) / total
    accuracy = float(counts @ measured.accuracy[bins]) / total
    return [f"{total:,}", f"{100 * confidence:.1f} %", f"{100 * accuracy:.1f} %"]


def _plain(name: str) -> Text:
    """A name in a cell: printable, and not taken for markup."""
    return Text(printable(name))

"""Predictions as text, CSV and JSON. No control character of a name reaches a terminal."""

import csv
import io
import json
from collections.abc import Iterable, Sequence

from bic.model.predict import Prediction
from bic.text import printable

NONE_OF_THESE = "none of these"


def printable_names(rows: Iterable[Prediction]) -> list[Prediction]:
    """The predictions with names that can be shown on a terminal."""
    shown = []
    for row in rows:
        classes = tuple(printable(name) for name in row.classes)
        shown.append(row._replace(file=printable(row.file), classes=classes))
    return shown


def as_text(rows: Iterable[Prediction]) -> str:
    """One line per image, for people: the file, then each class and its probability."""
    lines = []
    for row in printable_names(rows):
        pairs = zip(row.classes, row.probabilities, strict=True)
        listed = ", ".join(f"{name} {100 * probability:.1f} %" for name, probability in pairs)
        answer = f"{NONE_OF_THESE} ({listed})" if row.rejected else listed
        lines.append(f"{row.file}: {answer}\n")
    return "".join(lines)


def as_csv(rows: Sequence[Prediction], *, with_answer: bool = False) -> str:
    """One line per image: the file, then each class and its probability.

    `with_answer` adds the answer, which is `none of these` for a rejected image.
    """
    num_classes = max((len(row.classes) for row in rows), default=1)
    header = ["file", "answer"] if with_answer else ["file"]
    for rank in range(1, num_classes + 1):
        header += [f"class_{rank}", f"probability_{rank}"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        cells = [row.file]
        if with_answer:
            cells.append(NONE_OF_THESE if row.answer is None else row.answer)
        for name, probability in zip(row.classes, row.probabilities, strict=True):
            cells += [name, f"{probability:.4f}"]
        writer.writerow(cells)
    return text.getvalue()


def as_json(rows: Iterable[Prediction]) -> str:
    """A list with one object per image, on a line. The answer of a rejected image is null."""
    lines = []
    for row in rows:
        pairs = zip(row.classes, row.probabilities, strict=True)
        classes = [
            {"class": name, "probability": round(probability, 6)} for name, probability in pairs
        ]
        content = {"file": row.file, "answer": row.answer, "classes": classes}
        lines.append(escaped(json.dumps(content, ensure_ascii=False)))
    joined = ",\n ".join(lines)
    return f"[\n {joined}\n]\n" if lines else "[]\n"


def escaped(text: str) -> str:
    r"""JSON with escape codes for all characters that a terminal may obey. Its value is the same.

    >>> escaped('"caf\xe9 \x9b2J"')
    '"café \\u009b2J"'
    """
    if text.isprintable():
        return text
    characters = []
    for character in text:
        characters.append(character if character.isprintable() else json.dumps(character)[1:-1])
    return "".join(characters)

"""Small pictures of exemplars for the page."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from support.pictures import plain_png
from support.recorded_runs import write_run

from bic.learn.saved_learner import MEMORY_TYPES
from bic.report.runs import load
from bic.report.thumbnails import thumbnails


def test_a_run_without_exemplars_has_no_pictures_and_no_problem(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [2], method="joint")
    (folder / "model").mkdir(exist_ok=True)
    empty = pa.schema(MEMORY_TYPES).empty_table()
    pq.write_table(empty, folder / "model" / "memory.parquet")
    run = load(folder)
    assert run.memory_file() is not None
    assert thumbnails([run], run.result.classes) == {}
    assert run.problems == []


def test_exemplars_that_cannot_be_shown_hide_no_others(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [3])
    (folder / "model").mkdir(exist_ok=True)
    vector = b"\x93NUMPY"
    rows = [(0, 0, plain_png(1)), (0, 1, vector), (1, 0, vector), (2, 0, plain_png(2))]

    def shown() -> list[int]:
        table = {
            "class": [number for number, _, _ in rows],
            "rank": [rank for _, rank, _ in rows],
            "part": ["train"] * len(rows),
            "image": [image for _, _, image in rows],
        }
        schema = pa.schema([(name, kind) for name, kind in MEMORY_TYPES.items() if name in table])
        pq.write_table(pa.table(table, schema), folder / "model" / "memory.parquet")
        pictures = thumbnails([run], run.result.classes)
        return [len(pictures.get(name, [])) for name in run.result.classes]

    run = load(folder)
    assert shown() == [1, 0, 1]
    assert run.problems == []
    rows = rows[1:3]
    assert shown() == [0, 0, 0]
    assert run.problems == ["its exemplars cannot be shown as pictures"]

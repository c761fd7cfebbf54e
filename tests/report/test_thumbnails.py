"""Small pictures of exemplars for the page."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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

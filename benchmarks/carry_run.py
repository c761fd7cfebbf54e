"""Carry an unfinished run to another machine without the images of its data set.

    python benchmarks/carry_run.py pack RUN DATA PACKED      the run without its images
    python benchmarks/carry_run.py unpack PACKED DATA RUN    the run again, to continue with bic run

DATA is the path of the data set, as for `bic run`. The memory of a run holds images of its
data set. In a packed run each of them is the number of a training image instead. So a packed run
is small, and it can be published where the images cannot. Weights and optimiser state are kept, so
that the run continues as if it had never moved.
"""

import argparse
import io
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bic import files
from bic.data.images import Dataset
from bic.errors import UserError
from bic.lab.plan import RunConfig
from bic.lab.run_data import open_for
from bic.learn.memory import MEMORY_TYPES
from bic.learn.saved_learner import MEMORY
from bic.progress import Progress
from bic.settings import checked
from bic.store.results import read_config

ROWS = "memory-rows.parquet"  # the memory with a number in place of every image


def numbered(content: bytes, dataset: Dataset) -> bytes:
    """A memory with numbers of training images in place of the images."""
    table = pq.read_table(io.BytesIO(content))
    if set(table.column_names) != set(MEMORY_TYPES):
        raise UserError("this memory also holds features", "pack a run that trains its backbone")
    number_of = {}
    for number in range(len(dataset.train)):
        number_of[dataset.train.encoded(number)] = number
    numbers = [number_of.get(image) for image in table["image"].to_pylist()]
    if None in numbers:
        raise UserError("the memory holds images that the data does not have", "use its own data")
    return _written(table.drop_columns(["image"]).append_column("row", pa.array(numbers)))


def with_images(content: bytes, dataset: Dataset) -> bytes:
    """What `numbered` made, with the images again."""
    table = pq.read_table(io.BytesIO(content))
    numbers = table["row"].to_pylist()
    if not set(numbers) <= set(range(len(dataset.train))):
        raise UserError("the memory names rows that the data does not have", "pack the run again")
    images = [dataset.train.encoded(number) for number in numbers]
    column = pa.array(images, MEMORY_TYPES["image"])
    return _written(table.drop_columns(["row"]).append_column("image", column))


def _written(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="none")
    return out.getvalue()


def carry(source: Path, target: Path, dataset: Dataset) -> None:
    """Copy a run, whose folders of checkpoints are packed or unpacked on the way."""
    if target.exists():
        raise UserError(f"{target} exists", "choose another name")
    # A memory counts the rows of the data: other data would give it other images.
    if read_config(source)["plan"].get("fingerprint") != dataset.fingerprint:
        raise UserError(
            f"{source} is a run on other data", "give the data that it was started with"
        )
    carried = {}
    for folder in sorted((source / "checkpoint").iterdir()):
        contents = files.read_folder(folder)
        if MEMORY in contents:
            contents[ROWS] = numbered(contents.pop(MEMORY), dataset)
        elif ROWS in contents:
            contents[MEMORY] = with_images(contents.pop(ROWS), dataset)
        carried[folder.name] = contents
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name != ".lock":
            shutil.copyfile(path, target / path.name)
    for name, contents in carried.items():
        files.write_folder(target / "checkpoint" / name, contents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    config = checked(RunConfig, read_config(options.source)["asked"])
    data: Path | None = options.data
    if "/" in config.dataset or Path(config.dataset).suffix:  # a path on the other machine
        config = config.model_copy(update={"dataset": str(data)})
        data = None
    dataset = open_for(config, data, Progress("quiet"))
    carry(options.source, options.target, dataset)


if __name__ == "__main__":
    try:
        main()
    except (OSError, UserError) as error:
        sys.exit(str(error))

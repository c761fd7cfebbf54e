"""A job: one lesson that was asked for, from the queue to its end. Imports no torch."""

import re
import secrets
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from bic import files
from bic.foreign_files import read_json_file
from bic.text import printable

State = Literal["queued", "running", "done", "failed", "refused", "cancelled"]
Phase = Literal["waiting", "starting", "reading", "training", "judging", "finished"]

ENDED = ("done", "failed", "refused", "cancelled")
JOB_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
MOST_JOBS = 100  # that are remembered


@dataclass
class Job:
    """What callers see of a job, and the options of its lesson.

    `takes_pending`: images that wait for the next lesson join this one.
    """

    id: str
    classes: list[str]
    num_images: int
    created: str
    force: bool = False
    max_drop: float = 10.0
    takes_pending: bool = True
    state: State = "queued"
    phase: Phase = "waiting"
    share: float = 0.0
    seconds_left: float | None = None
    message: str = ""
    version: int | None = None
    finished: str | None = None
    can_retry: bool = False
    report: dict[str, Any] | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    def end(self, state: State, message: str) -> None:
        self.state = state
        self.phase = "finished"
        self.message = printable(message)
        self.seconds_left = None
        self.finished = timestamp()
        if state == "done":
            self.share = 1.0


def new_job(classes: list[str], num_images: int, **options: Any) -> Job:
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    job_id = f"{now}-{secrets.token_hex(3)}"
    return Job(id=job_id, classes=classes, num_images=num_images, created=timestamp(), **options)


def timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"


class JobRecords:
    """Jobs on disk, a file for each, so that a server that starts again knows what happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, job: Job) -> None:
        files.write_file(self.folder / f"{job.id}.json", files.to_json(asdict(job)))

    def load(self) -> list[Job]:
        """All jobs, oldest first. A file that cannot be read is left out."""
        jobs = []
        for path in sorted(self.folder.glob("*.json")):
            with suppress(*files.READ_ERRORS):
                content = read_json_file(path, follow_links=False)
                job = TypeAdapter(Job).validate_python(content)
                if JOB_ID.fullmatch(job.id) and path.name == f"{job.id}.json":
                    jobs.append(job)
        return jobs

    def forget(self, job: Job) -> None:
        (self.folder / f"{job.id}.json").unlink(missing_ok=True)

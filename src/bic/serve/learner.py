"""The process that learns one lesson: `python -m bic.serve.learner`.

It reads one line of JSON, a Request, and writes one line of JSON for each event. It ends itself
when its standard input is closed: then the server that started it is gone.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bic.errors import BicError, InUseError, LostError, show_warnings
from bic.progress import Progress, Task
from bic.store.learn_report import LearnReport

EVENT_SECONDS = 0.2  # between two events about the same task
RETRY_SECONDS = 0.5  # between two attempts to use a model that another process is changing
# The tasks of training are named after the version. A frozen backbone computes features instead.
TRAINING = ("version ", "computing features")

Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to learn: paths of images and their classes, in the same order.

    `settings` are those of a new model. A model that exists keeps its own.
    """

    model: str
    settings: dict[str, Any]
    paths: list[str]
    labels: list[str]
    force: bool
    max_drop: float
    device: str
    trust: bool


class ReportedTask(Task):
    """A task whose progress is sent to the server."""

    def __init__(self, owner: "ReportedProgress", name: str, total: int, done: int) -> None:
        super().__init__(owner, name, total, "images", done)
        self._emit = owner.emit
        self._is_training = name.startswith(TRAINING)
        self._started = time.monotonic()
        self._last = 0.0

    def advance(self, count: int, **notes: float) -> None:
        self.done += count
        now = time.monotonic()
        if now - self._last >= EVENT_SECONDS or self.done >= self.total:
            self._last = now
            self.send()

    def send(self) -> None:
        done_here = self.done - self.done_before
        seconds = None
        if done_here > 0:
            rate = (time.monotonic() - self._started) / done_here
            seconds = rate * max(0, self.total - self.done)
        self._emit(
            {
                "event": "task",
                "name": self.name,
                "is_training": self._is_training,
                "share": min(1.0, self.done / max(1, self.total)),
                "seconds_left": seconds,
            }
        )


class ReportedProgress(Progress):
    """Progress that is sent to the server instead of being shown."""

    def __init__(self, emit: Emit) -> None:
        super().__init__("quiet")
        self.emit = emit

    def say(self, message: str) -> None:
        self.emit({"event": "say", "message": message})

    @contextmanager
    def task(self, name: str, total: int, unit: str = "images", *, done: int = 0) -> Iterator[Task]:
        task = ReportedTask(self, name, total, done)
        task.send()
        yield task


def main() -> None:
    """Learn the lesson that standard input describes."""
    emit = _event_writer()
    request = Request(**json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    show_warnings(lambda text: emit({"event": "say", "message": f"warning: {text}"}))
    try:
        report = _learn(request, emit)
    except BicError as error:
        kind = "lost" if isinstance(error, LostError) else "user"
        emit({"event": "error", "kind": kind, "message": str(error)})
    except MemoryError:
        emit({"event": "error", "kind": "lost", "message": "out of memory"})
    except Exception as error:
        emit({"event": "error", "kind": "lost", "message": f"{type(error).__name__}: {error}"})
        raise
    else:
        emit({"event": "report", "report": asdict(report)})


def _learn(request: Request, emit: Emit) -> LearnReport:
    """Learn the lesson, as soon as no other process changes the model."""
    while True:
        try:
            return _learn_now(request, emit)
        except InUseError:
            emit({"event": "waiting"})
            time.sleep(RETRY_SECONDS)


def _learn_now(request: Request, emit: Emit) -> LearnReport:
    from bic.model.version_files import is_versioned
    from bic.store.model_folder import open_model

    is_new = not is_versioned(Path(request.model))  # it may exist since another process was done
    folder = open_model(
        request.model,
        progress=ReportedProgress(emit),
        device=request.device,
        trust=request.trust,
        **(request.settings if is_new else {}),
    )
    emit({"event": "reading"})
    return folder.learn(
        request.paths, request.labels, force=request.force, max_drop=request.max_drop
    )


def _event_writer() -> Emit:
    """Events go where standard output went. What others print goes to standard error."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def emit(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    return emit


def _end_with_the_server() -> None:
    os.read(0, 1)  # nothing more is sent, so this returns when the pipe is closed
    os._exit(1)


if __name__ == "__main__":
    main()

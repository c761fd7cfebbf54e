"""Where the images of lessons wait: those of each job, and those for the next lesson."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bic.store.learn_report import counted, listed
from bic.store.lesson_images import FEWEST
from bic.store.waiting import Box, WaitingImage, boxes

PENDING = "pending"
OWN = "-own"
TAKEN = "-taken"

Digests = dict[str, set[str]]  # of the images of each class


@dataclass(frozen=True)
class Readiness:
    """Which classes can be learned now, and what the others lack."""

    ready: tuple[str, ...]
    problem: str


def readiness(images: Mapping[str, set[str]], known: set[str], *, is_empty: bool) -> Readiness:
    """Which of the classes can be learned.

    A class that is new needs two different images, and the first lesson needs two classes.
    """
    ready: list[str] = []
    thin: list[str] = []
    for name, digests in images.items():
        is_ready = name in known or len(digests) >= FEWEST
        (ready if is_ready else thin).append(name)
    problem = ""
    if thin:
        needs = "needs" if len(thin) == 1 else "need"
        problem = f"{listed(tuple(thin))} {needs} {FEWEST} different images"
    if is_empty and len(ready) < 2:
        problem = f"the first lesson needs two classes with {FEWEST} different images each"
        ready = []
    return Readiness(tuple(ready), problem)


def joined(*parts: Digests) -> Digests:
    """The images of several boxes, by class."""
    together: Digests = {}
    for part in parts:
        for name, digests in part.items():
            together[name] = together.get(name, set()) | digests
    return together


class LessonBoxes:
    """The boxes of a model folder. Only one thread at a time may use them."""

    def __init__(self, model_folder: Path) -> None:
        self.folder = model_folder
        self.pending = Box(model_folder, PENDING)

    def own(self, job_id: str) -> Box:
        """The images that came with a job."""
        return Box(self.folder, job_id + OWN)

    def taken(self, job_id: str) -> Box:
        """The images that a job took from those that were pending."""
        return Box(self.folder, job_id + TAKEN)

    def take_pending(self, job_id: str, known: set[str], *, is_empty: bool) -> None:
        """Move all pending images that can be learned to a job."""
        together = self.with_pending(job_id)
        for name in readiness(together, known, is_empty=is_empty).ready:
            self.pending.move(name, self.taken(job_id))

    def with_pending(self, job_id: str) -> Digests:
        """The images that came with a job, and the pending ones that are not among them."""
        own = self.own(job_id).digests()
        sent = set().union(*own.values())
        pending = self.pending.digests()
        return joined(own, {name: pending[name] - sent for name in pending if pending[name] - sent})

    def give_back(self, job_id: str) -> None:
        """Make the images that a job took pending again."""
        self.taken(job_id).move_all(self.pending)

    def lesson(self, job_id: str) -> list[WaitingImage]:
        """All images of a job. What came with the job says which class an image has."""
        own = self.own(job_id).images()
        names = {image.path.name for image in own}
        taken = [image for image in self.taken(job_id).images() if image.path.name not in names]
        return [*own, *taken]

    def hand_over(self, old_id: str, new_id: str) -> None:
        """Give all images of a job to another job."""
        self.own(old_id).move_all(self.own(new_id))
        self.taken(old_id).move_all(self.taken(new_id))

    def clear(self, job_id: str) -> None:
        self.own(job_id).clear()
        self.taken(job_id).clear()

    def adopt_strays(self, job_ids: set[str]) -> None:
        """Make images pending whose job nobody remembers."""
        for box in boxes(self.folder):
            job_id = box.path.name.removesuffix(OWN).removesuffix(TAKEN)
            if box.path.name != PENDING and job_id not in job_ids:
                box.move_all(self.pending)


def in_words(digests: Digests) -> str:
    """
    >>> in_words({"cup": {"1", "2"}, "hat": {"3"}})
    '3 images of 2 classes (cup, hat)'
    """
    num_images = sum(map(len, digests.values()))
    classes = counted(len(digests), "class", "classes")
    return f"{counted(num_images, 'image')} of {classes} ({listed(tuple(digests), 3)})"

"""The gate: whether a new version may go live, judged on held-out images.

Held-out images are never trained on, in any version. So they are fair to both versions, and the
comparison is paired: the same images, before and after.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bic.data.batches import plain_batches
from bic.data.images import ImageSet, Labels
from bic.model.intervals import Drop, Share
from bic.model.model import Model
from bic.model.versions import Verdict
from bic.progress import Progress

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Judgement:
    """The verdict, and the accuracy on the held-out images of each class."""

    verdict: Verdict
    classes: dict[int, Share]


def judge(
    before: Model | None, after: Model, *, old: ImageSet, new: ImageSet, progress: Progress
) -> Judgement:
    """Compare two versions on held-out images.

    `old` images were held out before, `new` ones are from the images just learned. Neither version
    was trained on any of them, also if the memory no longer keeps them.
    """
    num_old = 0 if before is None else len(before.classes)
    right_old, restricted_old = _answers(after, old, num_old, progress)
    right_new, restricted_new = _answers(after, new, num_old, progress)
    labels = np.concatenate([old.labels, new.labels])
    is_right = np.concatenate([right_old, right_new])
    classes = _per_class(labels, is_right)
    is_old = labels < num_old
    new_after = _share(is_right[~is_old])
    if before is None or not is_old.any():
        return Judgement(Verdict(is_judged=False, new_after=new_after), classes)
    known = new.select(np.flatnonzero(new.labels < num_old))
    was_right = np.concatenate(
        [_answers(before, images, num_old, progress)[0] for images in (old, known)]
    )
    restricted = np.concatenate([restricted_old, restricted_new])[is_old]
    verdict = Verdict(
        is_judged=True,
        old_before=_share(was_right),
        old_after=_share(is_right[is_old]),
        new_after=new_after,
        drop=_drop(was_right, is_right[is_old]),
        restricted_drop=_drop(was_right, restricted),
    )
    return Judgement(verdict, classes)


def _per_class(labels: Labels, is_right: Flags) -> dict[int, Share]:
    totals = np.bincount(labels)
    correct = np.bincount(labels[is_right], minlength=len(totals))
    present = np.flatnonzero(totals)
    return {int(label): Share(int(correct[label]), int(totals[label])) for label in present}


def _answers(
    model: Model, images: ImageSet, num_old: int, progress: Progress
) -> tuple[Flags, Flags]:
    """Whether each image is classified correctly: among all classes, and among old ones only."""
    is_right = np.zeros(len(images), dtype=np.bool_)
    is_right_restricted = np.zeros(len(images), dtype=np.bool_)
    with progress.task("comparing versions", len(images)) as task:
        for pixels, indices in plain_batches(images, num_outputs=len(model.classes)):
            _, final = model.logits(pixels)
            labels = images.labels[indices]
            is_right[indices] = final.argmax(dim=1).cpu().numpy() == labels
            if num_old:
                restricted = final[:, :num_old].argmax(dim=1).cpu().numpy()
                is_right_restricted[indices] = restricted == labels
            task.advance(len(indices))
    return is_right, is_right_restricted


def _share(is_right: Flags) -> Share | None:
    return Share(int(is_right.sum()), len(is_right)) if len(is_right) else None


def _drop(was_right: Flags, is_right: Flags) -> Drop:
    lost = int((was_right & ~is_right).sum())
    gained = int((~was_right & is_right).sum())
    return Drop(lost, gained, len(was_right))

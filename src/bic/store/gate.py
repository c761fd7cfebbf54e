"""The gate: whether a new version may go live, judged on held-out images.

Held-out images are never trained on, in any version. So they are fair to both versions, and the
comparison is paired: the same images, before and after.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bic.data.batches import plain_batches
from bic.data.images import ImageSet
from bic.learn.memory import Memory
from bic.model.intervals import Drop, Share
from bic.model.model import Model
from bic.model.versions import Verdict
from bic.progress import Progress

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Judgement:
    """The verdict, and for each class how many of its held-out images are correct."""

    verdict: Verdict
    correct: dict[int, int]


def judge(
    before: Model | None,
    after: Model,
    *,
    memory_before: Memory | None,
    memory: Memory,
    progress: Progress,
) -> Judgement:
    """Compare two versions on the held-out images that either has in its memory."""
    kept = memory.held_out_images()
    images = _with_dropped(kept, memory_before)
    if not len(images):
        return Judgement(Verdict(is_judged=False), {})
    num_old = 0 if before is None else len(before.classes)
    is_right, is_right_restricted = _answers(after, images, num_old, progress)
    own = kept.labels[is_right[: len(kept)]]
    correct = dict.fromkeys(np.unique(kept.labels).tolist(), 0)
    right_labels, counts = np.unique(own, return_counts=True)
    correct |= dict(zip(right_labels.tolist(), counts.tolist(), strict=True))
    is_old = images.labels < num_old
    new_after = _share(is_right[~is_old])
    if before is None or not is_old.any():
        return Judgement(Verdict(is_judged=False, new_after=new_after), correct)
    was_right, _ = _answers(before, images.select(np.flatnonzero(is_old)), num_old, progress)
    verdict = Verdict(
        is_judged=True,
        old_before=_share(was_right),
        old_after=_share(is_right[is_old]),
        new_after=new_after,
        drop=_drop(was_right, is_right[is_old]),
        restricted_drop=_drop(was_right, is_right_restricted[is_old]),
    )
    return Judgement(verdict, correct)


def _with_dropped(kept: ImageSet, memory_before: Memory | None) -> ImageSet:
    """The held-out images of both memories: an image that lost its place is still fair to both."""
    if memory_before is None:
        return kept
    assert kept.files is not None
    present = set(zip(kept.labels.tolist(), kept.files, strict=True))
    earlier = memory_before.held_out_images()
    assert earlier.files is not None
    pairs = list(zip(earlier.labels.tolist(), earlier.files, strict=True))
    dropped = [pair for pair in pairs if pair not in present]
    labels = [label for label, _ in dropped]
    return replace(
        kept,
        labels=np.concatenate([kept.labels, np.array(labels, dtype=np.int64)]),
        files=[*kept.files, *(file for _, file in dropped)],
    )


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

"""How exemplars are chosen: by herding, or at random."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bic.data.decode_pool import decode_all
from bic.data.images import ImageSet, Indices, join
from bic.learn.lesson import Lesson
from bic.learn.memory import Memory, by_class, files_of
from bic.model.features import extract
from bic.model.model import Model


def remember(
    lesson: Lesson, model: Model, memory: Memory, *, new: ImageSet, held_out: Indices
) -> None:
    """Store the step's best images and its held-out images in the memory.

    New images of a known class compete with the exemplars that it already has.
    """
    labels = np.unique(new.labels).tolist()
    known = [label for label in labels if label in memory.classes]
    candidates = join([new, memory.train_images(known)], decode=decode_all)
    limit = memory.images_per_class(len(model.active))
    if limit is None:
        limit = len(candidates)
    best_of = rank(lesson, model, candidates, limit)
    ranked = {label: files_of(candidates, best) for label, best in best_of.items()}
    images = lesson.step.train
    held_out_files = {}
    for label, rows in by_class(images.labels[held_out]).items():
        held_out_files[label] = list(files_of(images, held_out[rows]))
    memory.features.add(candidates.select(np.concatenate(list(best_of.values()))))
    memory.features.add(images.select(held_out))
    memory.store(ranked, held_out_files)
    memory.forget_features()


def rank(lesson: Lesson, model: Model, images: ImageSet, limit: int) -> dict[int, Indices]:
    """The best `limit` images of each class, best first."""
    ranked = {}
    if lesson.learning.exemplars == "random":
        draws = lesson.draws("exemplars")
        for label, members in by_class(images.labels).items():
            ranked[label] = draws.permutation(members)[:limit]
        return ranked
    features, readable = extract(model.network, images, lesson.progress)
    for label, members in by_class(images.labels[readable]).items():
        ranked[label] = readable[members[herd(features[members], limit)]]
    return ranked


def herd(features: Tensor, count: int) -> Indices:
    """iCaRL's herding: rank images so that the mean feature of every prefix is near the class mean.

    features [n, dim]; they are L2-normalised here. Returns `count` indices, best first.
    """
    features = F.normalize(features.double(), dim=1)
    mean = features.mean(dim=0)
    # Since ‖f‖ = 1, ‖k·mean − Σ chosen − f‖² is smallest where
    # f·(k·mean − Σ chosen) is largest.
    target = mean.clone()
    is_taken = torch.zeros(len(features), dtype=torch.bool)
    chosen = np.empty(min(count, len(features)), dtype=np.int64)
    for place in range(len(chosen)):
        best = int((features @ target).masked_fill(is_taken, -torch.inf).argmax())
        chosen[place] = best
        is_taken[best] = True
        target += mean - features[best]
    return chosen

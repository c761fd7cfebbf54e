"""The answer of `ridge`: the head that is solved from the moments of all images learned so far."""

import copy
import os

import torch
import torch.nn.functional as F
from torch import Tensor

from bic.data.images import ImageSet
from bic.errors import UserError
from bic.learn.lesson import Lesson
from bic.learn.memory import Memory
from bic.learn.moments import Moments
from bic.learn.ridge import DEFAULT_PENALTY, Regression
from bic.model.answers import RidgeHead
from bic.model.calibrate import evenly_spaced
from bic.model.features import extract
from bic.model.model import Model
from bic.model.random_features import RandomFeatures

ROWS = 4096  # features that are expanded at a time
MATRICES = 6  # in double precision that exist at once while a head is solved
# Images that the penalty is chosen on, so that the choice costs the same for any number of classes.
# In seven of nine trials, 1,000 images chose the same one; in two, the next larger one.
MAX_HELD_OUT = 500
MAX_SEED = 2**32  # of the generator of random features


def check_room(lesson: Lesson, model: Model) -> None:
    """Raise UserError before the work starts if the machine's memory is too small for it."""
    dim = model.network.num_features + lesson.method_setting("random_features", 0)
    needed = MATRICES * 8 * dim**2
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > installed:
        raise UserError(
            f"a head with {dim:,} features takes {needed / 1e9:,.1f} GB of memory and this machine "
            f"has {installed / 1e9:,.1f} GB",
            "lower {method_settings.random_features}",
        )


def exact_head(
    lesson: Lesson,
    model: Model,
    memory: Memory,
    *,
    before: Model | None,
    new: ImageSet,
    held_out: ImageSet,
) -> RidgeHead:
    """Add the images in `new` to the moments, and solve the head again.

    The penalty and the scale of the logits are those that suit the held-out images best.
    """
    network = model.network
    if before is not None and isinstance(before.answer, RidgeHead):
        expansion = copy.deepcopy(before.answer.expansion).cpu()
    else:
        count = lesson.method_setting("random_features", 0)
        expansion = RandomFeatures(network.num_features, count, lesson.learning.seed % MAX_SEED)
    moments = memory.moments
    if moments is None:
        moments = Moments.empty(expansion.dim)
        memory.moments = moments
    moments.grow(len(model.classes))
    features, labels = _features(lesson, model, new)
    with lesson.progress.task("adding images to the head", len(labels)) as task:
        for start in range(0, len(labels), ROWS):
            rows = slice(start, start + ROWS)
            moments.add(expansion(features[rows]), labels[rows])
            task.advance(len(labels[rows]))
    regression = Regression(moments, model.active)
    penalty = lesson.method_setting("penalty", None)
    if len(held_out):
        features, labels = _features(lesson, model, evenly_spaced(held_out, MAX_HELD_OUT))
        head = regression.chosen_head(expansion(features), labels, penalty)
    else:
        head = regression.head(penalty or DEFAULT_PENALTY)
    means = F.normalize(moments.means[:, : network.num_features], dim=1).float()
    answer = RidgeHead(expansion, head.weight, head.bias, means, penalty=head.penalty)
    return answer.to(network.device)


def _features(lesson: Lesson, model: Model, images: ImageSet) -> tuple[Tensor, Tensor]:
    """Features [n, num_features] and labels [n] of the readable images."""
    features, readable = extract(model.network, images, lesson.progress)
    return features, torch.from_numpy(images.labels[readable])

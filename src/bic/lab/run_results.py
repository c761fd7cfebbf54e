"""What a run records: the test after each step, and with what the result was made."""

import hashlib
import io
import platform
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from bic.compute.distributed import world
from bic.data.images import Dataset
from bic.lab.plan import Plan
from bic.learn.learner import Learner
from bic.learn.lesson import Learned
from bic.model.answers import HeadAndMeans
from bic.model.evaluate import evaluate, forgetting
from bic.model.model import Model
from bic.store.results import BlendResult, Result, StepResult
from bic.store.run_folder import RunFolder
from bic.version import __version__


def tested(
    learner: Learner,
    learned: Learned,
    folder: RunFolder,
    dataset: Dataset,
    order: Sequence[int],
    past: Sequence[StepResult],
) -> StepResult:
    """Test on all classes seen. Predictions go to the folder; the step's result is returned."""
    start = time.perf_counter()
    model = learner.model
    number = len(model.classes_per_step)
    seen = order[: len(model.classes)]
    index = np.flatnonzero(np.isin(dataset.test.labels, seen))
    test = dataset.test.of_classes(seen)
    predictions, metrics = evaluate(model, test, index, learner.progress)
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **predictions)
    content = packed.getvalue()
    folder.write(f"predictions-{number}.npz", content)
    correction = model.correction
    accuracies = [step.top1_per_group for step in past]
    return StepResult(
        step=number,
        seen=len(model.classes),
        **metrics,
        alpha=None if correction is None else correction.alpha,
        beta=None if correction is None else correction.beta,
        blend=_blend_of(model),
        forgetting=forgetting([*accuracies, metrics["top1_per_group"]]),
        num_train=learned.num_train,
        num_held_out=learned.num_held_out,
        num_exemplars=learned.num_exemplars,
        seconds={**learned.seconds, "evaluate": time.perf_counter() - start},
        predictions_checksum=hashlib.sha256(content).hexdigest(),
    )


def _blend_of(model: Model) -> BlendResult | None:
    """The four numbers of an answer that also uses class means."""
    if not isinstance(model.answer, HeadAndMeans):
        return None
    blend = model.answer.blend
    correction = blend.correction
    return BlendResult(
        head=blend.head, alpha=correction.alpha, beta=correction.beta, means=blend.means
    )


def result_of(plan: Plan, model: Model, steps: Sequence[StepResult], *, complete: bool) -> Result:
    return Result(
        method=plan.learning.method,
        dataset=plan.protocol.dataset,
        seed=plan.learning.seed,
        config=plan.settings(),
        complete=complete,
        classes=list(model.classes),
        made_with=_made_with(model),
        steps=list(steps),
    )


def _made_with(model: Model) -> dict[str, Any]:
    """The versions and the machine: what can change the last bits or the time."""
    return {
        "bic": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": model.network.device.type,
        "threads": torch.get_num_threads(),
        "processes": world().size,
    }


def sentence(step: StepResult, num_steps: int) -> str:
    """The outcome of a step as a log line."""
    text = f"step {step.step}/{num_steps}: {step.seen} classes, top-1 {step.top1:.2f} %"
    if step.alpha is None or step.beta is None:
        return text
    uncorrected = f"uncorrected {step.top1_uncorrected:.2f} %"
    return f"{text} ({uncorrected}, α {step.alpha:.3f}, β {step.beta:.3f})"

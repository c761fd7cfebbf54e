"""A protocol from its first step to its last, in a folder from which it can go on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bic.config import Plan, RunConfig
from bic.data import Dataset, open_dataset
from bic.evaluate import evaluate, forgetting
from bic.learner import Learned, Learner
from bic.model import Model
from bic.progress import Progress
from bic.recipes import find_method, find_recipe, make_plan
from bic.record import arrays_to_bytes, locked, write_file
from bic.run_folder import RunFolder
from bic.steps import class_order, plan_steps


def run(
    config: RunConfig,
    out: Path | str | None = None,
    *,
    data: Path | str | Dataset | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Run one protocol with one method and return its result, the content of `result.json`.

    `out` is the run folder; `data` says where the data set is, or is the data set itself. A run
    that was interrupted goes on; one that is complete is only read. Raises UserError for what a
    user can mend, such as a configuration that cannot work or a folder that holds another run.
    """
    progress = progress or Progress("quiet")
    if threads is not None:
        torch.set_num_threads(threads)
    dataset = data if isinstance(data, Dataset) else _open(config, data, progress)
    plan = make_plan(config, dataset)
    path = Path("runs") / default_name(plan) if out is None else Path(out)
    with locked(path):
        folder = RunFolder(path)
        plan = folder.agree(config, plan)
        result = folder.read_result()
        if result["complete"]:
            progress.say(f"{path} is complete; nothing to do")
            return result
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        learner = Learner(plan, dataset.train.view, progress=progress, device=device)
        return _learn_all(learner, folder, dataset, result["steps"], progress)


def _learn_all(
    learner: Learner,
    folder: RunFolder,
    dataset: Dataset,
    recorded: list[dict[str, Any]],
    progress: Progress,
) -> dict[str, Any]:
    """Go through the steps that are not done yet."""
    plan = learner.plan
    order = plan.class_order or class_order(len(dataset.classes), plan.order_seed or 0)
    done = folder.load_step(learner)
    steps = recorded[:done]
    for step in plan_steps(
        dataset,
        order,
        plan.step_sizes,
        start=done + 1,
        with_old_data=learner.method.sees_old_data != "never",
    ):
        resume = folder.load_checkpoint(step.number)
        learned = learner.learn(step, resume=resume, save=folder.save_checkpoint)
        steps.append(_test(learner.model, learned, folder, dataset, order, steps, progress))
        folder.write_result(summary(plan, learner.model, steps, complete=False))
        folder.save_step(learner, step.number)
        progress.say(_sentence(steps[-1], len(plan.step_sizes)))
    folder.finish(len(steps))
    result = summary(plan, learner.model, steps, complete=True)
    folder.write_result(result)
    return result


def _test(
    model: Model,
    learned: Learned,
    folder: RunFolder,
    dataset: Dataset,
    order: Sequence[int],
    past: Sequence[dict[str, Any]],
    progress: Progress,
) -> dict[str, Any]:
    """Test on all classes seen: predictions go to the folder, the step's record comes back."""
    started = time.perf_counter()
    seen = order[: len(model.classes)]
    index = np.flatnonzero(np.isin(dataset.test.labels, seen))
    predictions, metrics = evaluate(model, dataset.test.of_classes(seen), index, progress)
    write_file(
        folder.path / f"predictions-{len(model.heads)}.npz", arrays_to_bytes(asdict(predictions))
    )
    pair = model.correction
    groups = [step["top1_per_group"] for step in past] + [metrics["top1_per_group"]]
    return {
        "step": len(model.heads),
        "seen": len(model.classes),
        **metrics,
        "alpha": pair and pair.alpha,
        "beta": pair and pair.beta,
        "forgetting": forgetting(groups),
        "num_train": learned.num_train,
        "num_held_out": learned.num_held_out,
        "num_exemplars": learned.num_exemplars,
        "seconds": {**learned.seconds, "evaluate": time.perf_counter() - started},
    }


def summary(
    plan: Plan, model: Model, steps: Sequence[dict[str, Any]], *, complete: bool
) -> dict[str, Any]:
    """The content of `result.json`."""
    top1 = [step["top1"] for step in steps]
    later = top1[1:]
    return {
        "method": plan.method,
        "dataset": plan.dataset,
        "seed": plan.seed,
        "config": plan.model_dump(mode="json"),
        "complete": complete,
        "final_top1": top1[-1],
        "average_top1": sum(top1) / len(top1),
        "average_incremental_top1": sum(later) / len(later) if later else None,
        "classes": list(model.classes),
        "steps": list(steps),
    }


def default_name(plan: Plan) -> str:
    """A folder name that keeps apart the runs people want side by side."""
    steps = len(plan.step_sizes)
    return f"{plan.dataset}-{steps}steps-{plan.method}-{plan.recipe.name}-seed{plan.seed}"


def _open(config: RunConfig, data: Path | str | None, progress: Progress) -> Dataset:
    recipe = find_recipe(config, find_method(config.method))
    return open_dataset(
        config.dataset,
        None if data is None else Path(data),
        image_size=recipe.image_size,
        resize=recipe.resize,
        keep_files=recipe.random_resize is not None,
        label=config.label,
        skip_bad=config.skip_bad,
        progress=progress,
    )


def _sentence(step: dict[str, Any], num_steps: int) -> str:
    """One step's outcome as a log line."""
    corrected = ""
    if step["alpha"] is not None:
        corrected = (
            f" (uncorrected {step['top1_uncorrected']:.2f} %, "
            f"α {step['alpha']:.3f}, β {step['beta']:.3f})"
        )
    return (
        f"step {step['step']}/{num_steps}: {step['seen']} classes, "
        f"top-1 {step['top1']:.2f} %{corrected}"
    )

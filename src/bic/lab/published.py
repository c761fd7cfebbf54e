"""Accuracies printed in the paper's tables: Wu et al., Large Scale Incremental Learning, CVPR 2019.

The paper's figures print no numbers, so their curves are not here. The paper estimated its numbers
for LwF, iCaRL and EEIL on ImageNet-1000 from the papers of those methods.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ORDER_SEED = 1993  # of the paper's class order


@dataclass(frozen=True)
class Published:
    """The accuracy (%) of a method after each step, and the settings it was measured with."""

    source: str
    method: str
    accuracies: tuple[float, ...]
    dataset: str = "cifar100"
    step_size: int = 20
    memory: int = 2000
    metric: Literal["top1", "top5"] = "top1"
    held_out: float = 0.1
    exemplars: str = "herding"

    def fits(self, plan: Mapping[str, Any]) -> bool:
        """Whether a run with these settings can be compared with these accuracies."""
        return (
            plan["dataset"] == self.dataset
            and list(plan["step_sizes"]) == [self.step_size] * len(self.accuracies)
            and plan["memory"]["images"] == self.memory
            and plan["order_seed"] == ORDER_SEED
            and plan["class_order"] is None
            and plan["classes"] is None
            and plan["held_out"] == self.held_out
            and plan["exemplars"] == self.exemplars
        )


def _imagenet(method: str, *accuracies: float) -> Published:
    return Published("Table 1", method, accuracies, "imagenet1000", 100, 20_000, "top5")


def _celebrities(method: str, *accuracies: float) -> Published:
    return Published("Table 2", method, accuracies, "celeb10000", 1000, 50_000, held_out=0.2)


PUBLISHED = (
    _imagenet("lwf", 90.0, 77.0, 68.0, 59.5, 52.5, 49.5, 46.5, 43.0, 40.5, 39.0),
    _imagenet("icarl", 90.0, 83.0, 77.5, 70.5, 63.0, 57.5, 53.5, 50.0, 48.0, 44.0),
    _imagenet("eeil", 95.0, 95.5, 86.0, 77.5, 71.0, 68.0, 62.0, 59.8, 55.0, 52.0),
    _imagenet("bic", 94.1, 92.5, 89.6, 89.1, 85.7, 83.2, 80.2, 77.5, 75.0, 73.2),
    _celebrities("icarl", 94.31, 94.26, 91.09, 86.88, 81.06, 77.45, 75.29, 71.34, 68.78, 65.56),
    _celebrities("bic", 95.90, 96.65, 96.68, 96.16, 95.43, 94.45, 93.35, 91.90, 90.18, 87.98),
    Published("Table 3", "finetune", (84.40, 68.30, 55.10, 48.52, 39.83)),
    Published("Table 3", "distill", (85.05, 72.22, 59.41, 50.43, 40.34)),
    Published("Table 3", "bic", (84.00, 74.69, 67.93, 61.25, 56.69)),
    Published("Table 3", "fc-retrain", (84.39, 76.15, 69.51, 64.03, 60.93)),
    Published("Table 4", "bic", (84.50, 73.19, 65.01, 58.68, 54.31), held_out=0.2),
    Published("Table 4", "bic", (84.70, 71.60, 63.68, 58.12, 53.74), held_out=0.3),
    Published("Table 4", "bic", (83.33, 68.84, 62.21, 56.00, 51.17), held_out=0.4),
    Published("Table 5", "bic", (85.20, 74.59, 66.76, 60.14, 55.55), exemplars="random"),
)

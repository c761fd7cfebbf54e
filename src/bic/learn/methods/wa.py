"""WA: weight aligning (Zhao et al., Maintaining Discrimination and Fairness, 2020)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bic.learn.methods import distill

if TYPE_CHECKING:
    from bic.model.network import Network


def align(network: Network, num_old: int) -> None:
    """Scale the new rows of the head so that their mean norm is that of the old rows."""
    weight = network.head.weight.detach()
    norms = weight.norm(dim=1)
    weight[num_old:] *= norms[:num_old].mean() / norms[num_old:].mean()


METHOD = replace(
    distill.METHOD,
    name="wa",
    summary="distillation, then new head rows scaled to the mean norm of the old rows",
    after_training=align,
    in_demo=False,
    colour="#6A3D9A",
    marker="p",
    symbol="pentagon",
)

"""Distill: stage 1 of BiC, without the correction. The paper's baseline-2."""

from bic.learn.methods.bic import distilling
from bic.learn.methods.method import Method

METHOD = Method(
    name="distill",
    summary="distillation without correction (baseline-2)",
    loss=distilling,
    colour="#0072B2",
    marker="s",
    symbol="square",
)

"""Joint: everything retrained on all data in every step. The upper bound of all methods."""

from dataclasses import replace

from bic.learn.methods import finetune

METHOD = replace(
    finetune.METHOD,
    name="joint",
    summary="upper bound: everything retrained on all data",
    sees_old_data="network",
    keeps_exemplars=False,
    starts_afresh=True,
    colour="#000000",
    marker="*",
    symbol="star",
)

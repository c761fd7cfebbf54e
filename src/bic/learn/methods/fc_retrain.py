"""fc-retrain: distill, then a head retrained on all data. Upper bound of any head correction."""

from dataclasses import replace

from bic.learn.methods import distill

METHOD = replace(
    distill.METHOD,
    name="fc-retrain",
    summary="upper bound: head retrained on all data",
    sees_old_data="head",
    colour="#E69F00",
    marker="X",
    symbol="x",
)

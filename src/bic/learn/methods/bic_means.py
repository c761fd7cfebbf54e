"""BiC whose answer also uses class means, as iCaRL's does. This is ours, not the paper's."""

from dataclasses import replace

from bic.learn.methods import bic

METHOD = replace(
    bic.METHOD,
    name="bic-means",
    summary="bic whose answer also uses class means",
    answer="head and means",
    colour="#882255",
    marker="h",
    symbol="hexagon",
)

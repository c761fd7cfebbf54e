"""BiC with its correction fitted on trained images, to show why that fails (Fig. 5)."""

from dataclasses import replace

from bic.learn.methods import bic

METHOD = replace(
    bic.METHOD,
    name="bic-trained",
    summary="the correction fitted on trained images",
    corrects_on="trained",
    listed=False,
)

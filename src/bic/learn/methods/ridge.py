"""Ridge: the features stay fixed, and the head is solved exactly from sums over all images.

A pretrained backbone is used as it is. Another one is trained in the first step and then stays
fixed. This is ours, after RanPAC (McDonnell et al., 2023).
"""

from dataclasses import replace

from pydantic import Field

from bic.learn.methods import finetune
from bic.learn.methods.method import MethodSettings


class RidgeSettings(MethodSettings):
    """The size of the exact head, and its penalty."""

    # Random features beside those of the backbone. Memory and files grow with their square.
    random_features: int = Field(2000, ge=0, le=20_000)
    # Relative to the mean variance of a feature. None: the one that suits the held-out images.
    penalty: float | None = Field(None, gt=0, le=1e6)


METHOD = replace(
    finetune.METHOD,
    name="ridge",
    summary="fixed features, and a head that is solved exactly",
    trains_once=True,
    needs_exemplars=False,
    answer="ridge",
    settings=RidgeSettings,
    # Mirrored images double the work and did not help, on a split of 50 classes of photographs.
    changes_to={"photos": {"recipe": {"augmentation": {"flip": False}}}},
    in_demo=False,
    colour="#332288",
    marker="d",
    symbol="diamond-tall",
)

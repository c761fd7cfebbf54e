"""Protocol: the data set, the class order and the step sizes of a benchmark."""

from typing import NamedTuple

from pydantic import Field

from bic.settings import Settings


class Defaults(NamedTuple):
    """What a protocol uses for settings that the user leaves out."""

    steps: int
    memory: int  # images
    held_out: float
    held_out_limit: int | None = None  # of old classes, and of new ones; the paper has none
    method: str = "bic"


DEFAULTS = {
    "cifar100": Defaults(steps=5, memory=2000, held_out=0.1),
    "imagenet100": Defaults(steps=10, memory=2000, held_out=0.1),
    "imagenet1000": Defaults(steps=10, memory=20_000, held_out=0.1),
    "celeb10000": Defaults(steps=10, memory=50_000, held_out=0.2),
    "digits": Defaults(steps=5, memory=120, held_out=0.25, held_out_limit=1000, method="bic-means"),
}
OTHERS = Defaults(steps=5, memory=2000, held_out=0.1, held_out_limit=1000, method="bic-means")


def defaults_for(dataset: str) -> Defaults:
    """The defaults of a data set. Data of your own has the defaults in OTHERS."""
    return DEFAULTS.get(dataset, OTHERS)


class Protocol(Settings):
    """Which classes a learner is given, and when. Only the lab knows this."""

    dataset: str
    label: str | None = None  # the label column of a Parquet file
    classes: tuple[str, ...] | None = None  # learn only these; None: all
    fingerprint: str  # a checksum of the data
    class_order: tuple[int, ...] | None = None  # explicit, instead of order_seed's shuffle
    order_seed: int = Field(1993, ge=0, lt=2**32)
    step_sizes: tuple[int, ...]

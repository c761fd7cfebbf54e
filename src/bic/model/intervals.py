"""Intervals around shares of images: how much a figure from few images can be trusted."""

import math
from dataclasses import dataclass

Z = 1.959963984540054  # of the normal distribution, for intervals of 95 %


@dataclass(frozen=True)
class Share:
    """A share of images, such as an accuracy: `correct` of `total` images, of which there are some.

    Raises ValueError for counts that do not fit each other.
    """

    correct: int
    total: int

    def __post_init__(self) -> None:
        if not 0 <= self.correct <= self.total or not self.total:
            raise ValueError(f"{self.correct} of {self.total} is not a share")

    @property
    def value(self) -> float:
        """In 0..1."""
        return self.correct / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval (Wilson, 1927). It stays within 0..1, also for few images.

        >>> low, high = Share(9, 10).interval
        >>> round(low, 4), round(high, 4)
        (0.5958, 0.9821)
        """
        shrunk = self.total / (self.total + Z**2)
        centre = shrunk * (self.value + Z**2 / (2 * self.total))
        variance = self.value * (1 - self.value) / self.total + Z**2 / (4 * self.total**2)
        half = shrunk * Z * math.sqrt(variance)
        return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True)
class Drop:
    """How much a share fell on the same images. `lost` images were correct before only.

    `gained` images are correct after only; the other images of `total` did not change. Raises
    ValueError for counts that do not fit each other.
    """

    lost: int
    gained: int
    total: int

    def __post_init__(self) -> None:
        fits = min(self.lost, self.gained) >= 0 and self.lost + self.gained <= self.total
        if not fits or not self.total:
            raise ValueError(f"{self.lost} and {self.gained} of {self.total} do not fit")

    @property
    def value(self) -> float:
        """In −1..1; negative if the share rose."""
        return (self.lost - self.gained) / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """The adjusted 95 % interval for paired shares (Bonett and Price, 2012).

        >>> low, high = Drop(lost=20, gained=5, total=100).interval
        >>> round(low, 4), round(high, 4)
        (0.0514, 0.2427)
        """
        images = self.total + 2
        lost = (self.lost + 1) / images
        gained = (self.gained + 1) / images
        centre = lost - gained
        half = Z * math.sqrt((lost + gained - centre**2) / images)
        return max(-1.0, centre - half), min(1.0, centre + half)

"""Which classes of a source to use."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bic.data.images import Dataset
from bic.errors import UserError

NUM_CLASSES = {"cifar100": 100, "imagenet100": 100, "imagenet1000": 1000, "celeb10000": 10_000}
# The authors' ImageNet-100 has the first 100 WordNet ids. Folder names and the labels of published
# Parquet files are in that order.
FIRST_CLASSES = {"imagenet100"}
SUPER_CLASSES = "coarse_label"  # the label column of CIFAR-100's 20 super-classes


@dataclass(frozen=True)
class Wanted:
    """The classes that the user named, or those that the name of the data set stands for."""

    dataset: str
    names: tuple[str, ...] | None = None
    label: str | None = None  # the label column, if the user chose one

    def of(self, known: Sequence[str], source: Path | str) -> list[str]:
        """The wanted classes among `known`, in the order of `known`.

        Raises UserError if any of them is missing from `source`, and for a `source` that cannot be
        the data set because it has another number of classes.
        """
        if self.names is None:
            return self._by_number(known, source)
        wanted = set(self.names)
        missing = wanted.difference(known)
        for name in self.names:
            if name in missing:
                problem = f"{source} has no class {name!r} among its {len(known):,}"
                raise UserError(problem, f"change {{classes}} ({_hint(name, known)})")
        return [name for name in known if name in wanted]

    def _by_number(self, known: Sequence[str], source: Path | str) -> list[str]:
        num_needed = NUM_CLASSES.get(self.dataset)
        has_super_classes = self.dataset == "cifar100" and self.label == SUPER_CLASSES
        if num_needed is None or has_super_classes:
            return list(known)
        has_more = len(known) > num_needed and self.dataset not in FIRST_CLASSES
        if len(known) < num_needed or has_more:
            raise UserError(
                f"{self.dataset} has {num_needed:,} classes, but {source} has {len(known):,}",
                f"give the path alone, in place of {self.dataset}",
            )
        return list(known[:num_needed])

    def in_dataset(self, dataset: Dataset, source: Path | str) -> Dataset:
        """The data set reduced to the wanted classes. `source` names it in errors."""
        classes = self.of(dataset.classes, source)
        if len(classes) == len(dataset.classes):
            return dataset
        position = {name: label for label, name in enumerate(dataset.classes)}
        labels = [position[name] for name in classes]
        return replace(
            dataset,
            classes=tuple(classes),
            train=dataset.train.of_classes(labels),
            test=dataset.test.of_classes(labels),
        )


def _hint(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"it has {', '.join(known[:3])} and so on"

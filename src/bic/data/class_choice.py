"""Which classes of a source to use."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bic.data.images import Dataset
from bic.errors import UserError

# Data sets that cannot be downloaded freely, by their number of classes. The authors' ImageNet-100
# has the first 100 WordNet ids. Folder names and the labels of published Parquet files are in that
# order.
SIZES = {"imagenet1000": 1000, "imagenet100": 100}


@dataclass(frozen=True)
class Wanted:
    """The classes that the user named, or those that the name of the data set stands for."""

    dataset: str
    names: tuple[str, ...] | None = None

    def of(self, known: Sequence[str], source: Path | str) -> list[str]:
        """The wanted classes among `known`, in the order of `known`.

        Raises UserError if any of them is missing from `source`.
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
        num_needed = SIZES.get(self.dataset)
        if num_needed is None:
            return list(known)
        if num_needed > len(known):
            problem = f"{self.dataset} needs {num_needed:,} classes, {source} has {len(known):,}"
            raise UserError(problem, f"leave out {self.dataset} and give the path alone")
        return list(known[:num_needed])

    def in_dataset(self, dataset: Dataset) -> Dataset:
        """The data set reduced to the wanted classes."""
        classes = self.of(dataset.classes, dataset.name)
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

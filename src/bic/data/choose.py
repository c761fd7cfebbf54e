"""Which of a source's classes are wanted."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bic.data.images import Dataset
from bic.errors import UserError

# Data sets that can't be downloaded freely, by their number of classes. The authors' ImageNet-100 is the first 100 by
# WordNet id, which is the order of a folder's names and of the labels in published Parquet files.
SIZES = {"imagenet1000": 1000, "imagenet100": 100}


@dataclass(frozen=True)
class Wanted:
    """The classes a user asked for by name, or those that the data set's own name stands for."""

    dataset: str
    names: tuple[str, ...] | None = None

    def of(self, known: Sequence[str], source: Path | str) -> list[str]:
        """Those of the `known` classes that are wanted, in their order."""
        if self.names is None:
            needed = SIZES.get(self.dataset, 0)
            if needed > len(known):
                then = f"leave out {self.dataset} and give the path alone"
                raise UserError(f"{self.dataset} needs {needed:,} classes, {source} has {len(known):,}; {then}")
            return list(known[:needed] if needed else known)
        wanted = set(self.names)
        if missing := wanted.difference(known):
            name = next(name for name in self.names if name in missing)
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"{near[0]!r}?" if near else f"there are {', '.join(known[:3])} and so on"
            raise UserError(f"{source} has no class {name!r} among its {len(known):,}; mend --classes ({hint})")
        return [name for name in known if name in wanted]

    def in_dataset(self, dataset: Dataset) -> Dataset:
        """The data set with the wanted classes alone."""
        classes = self.of(dataset.classes, dataset.name)
        if len(classes) == len(dataset.classes):
            return dataset
        position = {name: label for label, name in enumerate(dataset.classes)}
        order = [position[name] for name in classes]
        train, test = dataset.train.of_classes(order), dataset.test.of_classes(order)
        return replace(dataset, classes=tuple(classes), train=train, test=test)

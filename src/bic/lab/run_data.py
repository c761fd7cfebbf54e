"""The data of a run, in the form that its recipe needs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bic.data.fitting import fitted
from bic.data.images import Dataset
from bic.data.open import open_dataset
from bic.lab.plan import RunConfig, learning_for
from bic.learn.learner import Learner
from bic.model.feature_folder import MAX_BYTES, FeatureFolder, user_cache
from bic.model.pretrained_backbones import preprocessing_for
from bic.progress import Progress


def open_for(config: RunConfig, data: Path | str | Dataset | None, progress: Progress) -> Dataset:
    """The data set that a request names, or the one that is given.

    Images for a pretrained backbone get the size and the channels that it asks for.
    """
    recipe = learning_for(config).recipe
    wanted = preprocessing_for(recipe.backbone, recipe.image_size, recipe.resize)
    if isinstance(data, Dataset):
        dataset = data
    else:
        dataset = open_dataset(
            config.dataset,
            None if data is None else Path(data),
            image_size=recipe.image_size if wanted is None else None,
            resize=recipe.resize,
            label=config.label,
            classes=config.classes,
            skip_bad=config.skip_bad,
            keep_files=recipe.frozen or recipe.augmentation.random_resize is not None,
            progress=progress,
        )
    if wanted is None:
        return dataset
    train = fitted(dataset.train, wanted)
    return replace(dataset, train=train, test=fitted(dataset.test, wanted))


def with_features(learner: Learner, dataset: Dataset, first_classes: Sequence[int]) -> Dataset:
    """The data with the features of the frozen backbone, which the user's cache keeps.

    Normalisation is measured on the images of the first step, whose classes are `first_classes`.
    """
    fingerprint = learner.fingerprint(dataset.train.of_classes(first_classes))
    cache = FeatureFolder(user_cache(), fingerprint, learner.progress, max_bytes=MAX_BYTES)
    train = learner.featured(dataset.train, cache=cache)
    test = learner.featured(dataset.test, cache=cache, for_training=False)
    return replace(dataset, train=train, test=test)

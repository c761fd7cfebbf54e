"""Photographs: unless the settings ask for training, they are learned on pretrained features."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bic.data.new_images import NewImagesReader
from bic.errors import UserError
from bic.learn.learning import Learning
from bic.learn.recipes import RECIPES
from bic.model.pretrained import is_installed
from bic.progress import Progress
from bic.store.lesson_images import Source
from bic.store.model_settings import first_learning

PHOTOS = "photos"  # the recipe for photographs
# With one of these settings, a user has decided how a network is trained, or that none is.
DECIDED = {"recipe", "backbone", "epochs", "tune"}


def possible_learning(asked: Mapping[str, Any]) -> Learning:
    """The settings of a new model before it is known whether its images are photographs.

    Raises UserError for settings that suit neither photographs nor other images.
    """
    try:
        return first_learning(asked)
    except UserError:
        if (DECIDED | {"method"}) & asked.keys():
            raise
        with suppress(UserError):  # the method for photographs needs no memory
            return first_learning({**asked, "recipe": PHOTOS})
        raise


def suited_to_photographs(
    asked: Mapping[str, Any], source: Source, reader: NewImagesReader, progress: Progress
) -> dict[str, Any]:
    """The settings of a new model, with the recipe for photographs if the source holds them.

    The images are only looked at, with a reader that does not decode them.
    """
    settings = dict(asked)
    if DECIDED & settings.keys() or not source(reader).are_photographs:
        return settings
    backbone = RECIPES[PHOTOS].backbone
    if not is_installed(backbone):
        progress.say(
            "these look like photographs; bic[pretrained] is not installed, so that a network is "
            "trained from scratch"
        )
        return settings
    progress.say(
        f"these look like photographs: they are learned on the features of {backbone}, which was "
        "trained on ImageNet (backbone fast trains a network from scratch instead)"
    )
    return {**settings, "recipe": PHOTOS}

"""Learning: all settings that decide how a model learns. They name no data set and no steps."""

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, SerializeAsAny, ValidationError, model_validator

from bic.errors import UserError, unknown
from bic.learn.methods import find_method
from bic.learn.methods.method import Method, MethodSettings
from bic.learn.moved import refuse_moved
from bic.learn.recipe import Recipe
from bic.learn.recipes import RECIPES
from bic.model.pretrained import is_pretrained
from bic.settings import Kind, Settings, checked, known_paths, one_sentence

DEFAULT_METHOD = "bic-means"
PUBLISHED_CLASSES = 100  # that a rate in the `changes_to` of a method with `rate_per_class` is for
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class MemoryBudget(Settings):
    """How much the memory may hold over all classes: images, or bytes of encoded images."""

    IS_ONE_VALUE = True

    images: int | None = Field(None, ge=0, lt=2**60)
    bytes: int | None = Field(None, ge=1, lt=2**60)

    @property
    def is_zero(self) -> bool:
        """Whether only held-out images are kept."""
        return self.images == 0

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        """Accept 2000 and "64MB", as they are written on the command line."""
        if isinstance(value, dict | MemoryBudget):
            return value
        match = re.fullmatch(r"\s*(\d+)\s*([KMG]?B?)\s*", str(value).upper())
        if match is None or match[2] not in UNITS:
            raise ValueError(
                f"must be a number of images or of bytes (2000 or 64MB), got {value!r}"
            )
        return {"bytes" if match[2] else "images": int(match[1]) * UNITS[match[2]]}

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.images is None) == (self.bytes is None):
            raise ValueError("must be either a number of images or a number of bytes")
        return self


class Learning(Settings):
    """How a model learns: method, recipe, memory, and the settings around them.

    `recipe` is a name, a mapping of its `name` and the settings that differ, or a Recipe, which is
    used as it is, without the changes that some methods make to recipes.
    `backbone`, `epochs` and `precision` change these settings of the recipe; `epochs` also scales
    the epochs of the first step and of EEIL's fine-tuning. `tune` trains a pretrained backbone too.

    >>> Learning(recipe="fast", memory=2000, epochs=10).recipe.first_epochs
    16
    """

    SHORT_FORMS = ("backbone", "epochs", "precision", "tune")

    # A name in METHODS. On the features of a frozen backbone, the default is ridge.
    method: str = DEFAULT_METHOD
    recipe: Recipe  # a name in RECIPES, or a Recipe
    method_settings: SerializeAsAny[MethodSettings]  # settings that only this method has
    # Over all classes: 2000 or "64MB". For ridge 0 by default: only held-out images are kept.
    memory: MemoryBudget = MemoryBudget(images=2000)
    # Share of the exemplars that is held out. 0 is for methods without a correction.
    held_out: float = Field(0.1, ge=0, lt=1)
    # At most this many held-out images of old classes, and of new ones. None: no limit, as in the
    # paper.
    held_out_limit: int | None = Field(1000, ge=1)
    exemplars: Literal["herding", "random"] = "herding"  # how exemplars are chosen
    # Weight of β²/2 in the fit of the correction. The authors' code has 0.1, the paper 0.
    correction_penalty: float = Field(0.0, ge=0, le=1e9)
    seed: int = Field(0, ge=0)  # of every random draw
    compile: bool = False  # compile the network; this changes the last bits of results
    # Number of classes of all steps together, if it is known. iCaRL's learning rate depends on it,
    # or on the number of classes seen if this is None.
    num_classes: int | None = Field(None, ge=1)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise one_sentence(error, type(self)) from error

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Any) -> Any:
        return _resolved(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _enough_images(self) -> Self:
        method = find_method(self.method)
        if not self.held_out and method.corrects:
            raise ValueError(f"held_out must be more than 0 for {self.method}, got 0")
        if self.memory.is_zero and method.keeps_exemplars and method.needs_exemplars:
            raise ValueError(f"memory must be more than 0 for {self.method}, got 0")
        return self

    @property
    def precision(self) -> str:
        return self.recipe.precision

    def with_recipe(self, **changes: Any) -> Self:
        """A copy in which some settings of the recipe are changed."""
        return self.model_copy(update={"recipe": self.recipe.model_copy(update=changes)})

    def without_num_classes(self) -> Self:
        """A copy for a learner that does not know what comes: rates are per class seen again."""
        learning = self.model_copy(update={"num_classes": None})
        rate_per_class = find_method(self.method).rate_per_class
        if rate_per_class is None or self.num_classes is None:
            return learning
        recipe = self.recipe.model_dump()
        per_class = with_rates_scaled(recipe, 1 / (rate_per_class * self.num_classes))
        return learning.model_copy(update={"recipe": checked(Recipe, per_class, under="recipe.")})


def _resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with a full recipe and the method's own settings in place of names and changes."""
    values = dict(values)
    short = {name: values.pop(name, None) for name in ("backbone", "epochs", "precision")}
    tune = values.pop("tune", None)
    recipe = values.get("recipe") or default_recipe(short["backbone"], tune=bool(tune))
    own = values.get("method_settings") or {}
    for name, value, kinds in (
        ("recipe", recipe, (str, Mapping, Recipe)),
        ("method_settings", own, (Mapping, MethodSettings)),
    ):
        if not isinstance(value, kinds):
            raise UserError(f"{name} must hold settings, got {value!r}", f"change {{{name}}}")
    own = dict(own)
    values.setdefault("method", default_method(recipe, tune=bool(tune)))
    method = find_method(str(values["method"]))
    if not method.needs_exemplars:
        values.setdefault("memory", MemoryBudget(images=0))
    if isinstance(recipe, Recipe):
        chosen = recipe.model_dump()
    else:
        asked = {"name": recipe} if isinstance(recipe, str) else dict(recipe)
        refuse_moved(asked, "recipe.", known_paths(Recipe, "recipe."))
        chosen, brought = recipe_for(method, asked, values.get("num_classes"))
        own = merged(brought, own)
    epochs = short.pop("epochs")
    chosen |= {name: value for name, value in short.items() if value is not None}
    if tune:
        chosen["frozen"] = False
    checked_recipe = checked(Recipe, chosen, under="recipe.")
    checked_own = checked(method.settings, own, under="method_settings.")
    if epochs is not None:
        before = checked_recipe.epochs
        checked_recipe = checked(
            Recipe, {**checked_recipe.model_dump(), "epochs": epochs}, under="recipe."
        )
        share = (checked_recipe.epochs, before)
        checked_recipe = _scaled(checked_recipe, "first_epochs", share, under="recipe.")
        checked_own = _scaled(checked_own, "balanced_epochs", share, under="method_settings.")
    values["recipe"] = checked_recipe
    values["method_settings"] = checked_own
    return values


def _scaled(settings: Kind, name: str, share: tuple[int, int], *, under: str) -> Kind:
    """The settings with a number of epochs, if they have it, that is multiplied by a fraction."""
    found = getattr(settings, name, None)
    if not found:
        return settings
    now, before = share
    scaled = max(1, round(found * now / before))
    return checked(type(settings), {**settings.model_dump(), name: scaled}, under=under)


def default_method(recipe: str | Mapping[str, Any] | Recipe, *, tune: bool) -> str:
    """The method if none is named: on the features of a frozen backbone, the exact head."""
    if isinstance(recipe, Recipe):
        is_frozen = recipe.frozen
    else:
        asked = {"name": recipe} if isinstance(recipe, str) else recipe
        named = RECIPES.get(str(asked.get("name")))
        is_frozen = bool(asked.get("frozen", named is not None and named.frozen))
    return "ridge" if is_frozen and not tune else DEFAULT_METHOD


def default_recipe(backbone: str | None, *, tune: bool, otherwise: str = "fast") -> str:
    """The recipe if none is named: one for photographs if the backbone is pretrained."""
    if backbone is None or not is_pretrained(str(backbone)):
        return "photos-tune" if tune and backbone is None else otherwise
    return "photos-tune" if tune else "photos"


def recipe_for(
    method: Method, asked: Mapping[str, Any], num_classes: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The recipe with the method's and then the user's changes, and the method's own settings.

    `asked` has the recipe's `name` and the settings that differ.
    """
    name = str(asked.get("name") or "fast")
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    recipe = RECIPES[name].model_dump()
    if method.rate_per_class is not None and num_classes is not None:
        recipe = with_rates_scaled(recipe, method.rate_per_class * num_classes)
    own: dict[str, Any] = {}
    published = method.changes_to.get(name, {})
    for changes in (method.changes, published):
        recipe = merged(recipe, changes.get("recipe", {}))
        own = merged(own, changes.get("method_settings", {}))
    if method.rate_per_class is not None and num_classes is None and published:
        # Each step multiplies the rate by the number of classes seen.
        recipe = with_rates_scaled(recipe, 1 / (method.rate_per_class * PUBLISHED_CLASSES))
    return merged(recipe, {**asked, "name": name}), own


def with_rates_scaled(recipe: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The recipe as if its loss were multiplied by a factor: the weight decay keeps its effect."""
    decay = recipe["optimiser"]["weight_decay"] / factor
    changes = {"learning_rate": recipe["learning_rate"] * factor}
    return merged(recipe, {**changes, "optimiser": {"weight_decay": decay}})


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the changes, level by level.

    >>> merged({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 4}})
    {'a': 1, 'b': {'c': 2, 'd': 4}}
    """
    result = dict(settings)
    for name, value in changes.items():
        inner = result.get(name)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            result[name] = merged(inner, value)
        else:
            result[name] = value
    return result

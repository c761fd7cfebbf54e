"""All recipes, each written out in full. Milestones are shares of the epochs."""

from bic.data.augmentation import Augmentation
from bic.learn.recipe import Optimiser, Recipe, Schedule

# §6.2 of the paper: the rate falls after 100, 150 and 200 of 250 epochs. The authors' code also
# scales the weight decay by the step; the paper doesn't, and neither do we.
PAPER_CIFAR100 = Recipe(
    name="paper-cifar100",
    backbone="resnet32",
    epochs=250,
    batch_size=128,
    learning_rate=0.1,
    optimiser=Optimiser(momentum=0.9, weight_decay=2e-4),
    schedule=Schedule(kind="milestones", milestones=(0.4, 0.6, 0.8), decay=0.1),
    augmentation=Augmentation(crop_padding=4, flip=True),
)

# The rate falls after 30, 60, 80 and 90 of 100 epochs.
PAPER_IMAGENET = Recipe(
    name="paper-imagenet",
    backbone="resnet18",
    epochs=100,
    batch_size=256,
    learning_rate=0.1,
    image_size=224,
    resize=256,
    optimiser=Optimiser(momentum=0.9, weight_decay=1e-4),
    schedule=Schedule(kind="milestones", milestones=(0.3, 0.6, 0.8, 0.9), decay=0.1),
    augmentation=Augmentation(flip=True, random_resize=(256, 512)),
)

# CIFAR-100 in a quarter of an hour on two CPU cores.
FAST = Recipe(
    name="fast",
    backbone="fast",
    epochs=5,
    first_epochs=8,
    batch_size=64,
    learning_rate=0.1,
    optimiser=Optimiser(
        momentum=0.9, nesterov=True, weight_decay=5e-4, muon_rate=0.05, later_rate=0.3
    ),
    schedule=Schedule(kind="triangle", warmup=0.2),
    augmentation=Augmentation(crop_padding=2, crop_fill="mirror", flip=True),
)

# CIFAR-100 in an hour on two CPU cores with native bfloat16.
BEST = Recipe(
    name="best",
    backbone="wide+wide",
    epochs=16,
    first_epochs=24,
    batch_size=64,
    learning_rate=0.1,
    precision="quickest",
    optimiser=Optimiser(
        momentum=0.9,
        nesterov=True,
        weight_decay=5e-4,
        muon_rate=0.05,
        later_rate=0.3,
        later_muon=False,
    ),
    schedule=Schedule(kind="triangle", warmup=0.2),
    augmentation=Augmentation(crop_padding=4, crop_fill="mirror", flip=True),
)

# Thousands of drawn or printed characters, white on black: no flips, and black borders.
CHARACTERS = Recipe(
    name="characters",
    backbone="strokes",
    epochs=5,
    first_epochs=8,
    batch_size=64,
    learning_rate=0.1,
    optimiser=Optimiser(
        momentum=0.9, nesterov=True, weight_decay=5e-4, muon_rate=0.05, later_rate=0.3
    ),
    schedule=Schedule(kind="triangle", warmup=0.2),
    augmentation=Augmentation(crop_padding=2, crop_fill="black", flip=False),
)

# So little training that the bias towards new classes is visible even on easy data like digits.
DEMO = Recipe(
    name="demo",
    backbone="mlp",
    epochs=2,
    batch_size=32,
    learning_rate=0.15,
    optimiser=Optimiser(momentum=0.9, nesterov=True, weight_decay=5e-4),
    schedule=Schedule(kind="triangle", warmup=0.2),
)

VECTORS = Recipe(
    name="vectors",
    backbone="mlp",
    epochs=20,
    batch_size=64,
    learning_rate=0.05,
    optimiser=Optimiser(momentum=0.9, nesterov=True, weight_decay=5e-4),
    schedule=Schedule(kind="triangle", warmup=0.2),
)

# Photographs, on the features of a network that was trained on ImageNet.
PHOTOS = Recipe(
    name="photos",
    backbone="lite2",
    frozen=True,
    epochs=20,
    batch_size=64,
    learning_rate=0.1,
    precision="quickest",
    optimiser=Optimiser(momentum=0.9, nesterov=True, weight_decay=5e-4),
    schedule=Schedule(kind="triangle", warmup=0.2),
    augmentation=Augmentation(flip=True),
)

# The same network, which is trained too.
PHOTOS_TUNE = Recipe(
    name="photos-tune",
    backbone="lite2",
    epochs=6,
    batch_size=32,
    learning_rate=0.01,
    precision="quickest",
    optimiser=Optimiser(momentum=0.9, nesterov=True, weight_decay=1e-4, later_rate=0.3),
    schedule=Schedule(kind="triangle", warmup=0.2),
    augmentation=Augmentation(flip=True),
)

RECIPES = {
    recipe.name: recipe
    for recipe in (
        FAST,
        BEST,
        CHARACTERS,
        PHOTOS,
        PHOTOS_TUNE,
        PAPER_CIFAR100,
        PAPER_IMAGENET,
        DEMO,
        VECTORS,
    )
}

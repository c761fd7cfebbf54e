"""How many images a run will train on, and what an update costs."""

from bic.learn.methods.method import Method
from bic.learn.recipe import Recipe


def images_trained_on(
    recipe: Recipe, method: Method, *, num_images: int, num_exemplars: int, num_steps: int
) -> int:
    """Images over all epochs of all steps. An estimate for equal steps and a full memory."""
    first_epochs = recipe.first_epochs or recipe.epochs
    images_per_step = num_images // num_steps
    if method.sees_old_data == "network":  # every step trains afresh on all images seen
        return first_epochs * images_per_step * num_steps * (num_steps + 1) // 2
    exemplars = 0
    if method.keeps_exemplars:
        exemplars = min(num_exemplars, num_images) * (num_steps - 1)
    later_images = num_images - images_per_step + exemplars
    return first_epochs * images_per_step + recipe.epochs * later_images


def update_cost(method: Method) -> float:
    """Cost of an update relative to a student's forward and backward pass.

    The teacher's forward pass costs a third of that.
    """
    return 4 / 3 if method.uses_teacher else 1.0

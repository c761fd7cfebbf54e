"""Damped Newton steps for a convex loss with a few unknowns."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# point [n] → loss, gradient [n], Hessian [n, n]
Loss = Callable[[Array], tuple[float, Array, Array]]

MAX_ITERATIONS = 100


def minimise(loss: Loss, start: Array, *, num_images: int) -> tuple[Array, Array]:
    """The point where a convex loss is smallest, and the Hessian there.

    `num_images` is the number of images over which the loss is summed. It says how small a gradient
    counts as zero.
    """
    point = start
    value, gradient, hessian = loss(point)
    damping = 1.0  # bounds the step where there is no curvature; fades with the gradient
    for _ in range(MAX_ITERATIONS):
        size = float(np.linalg.norm(gradient))
        if size <= 1e-14 * num_images:
            break
        try:
            step = np.linalg.solve(hessian + damping * size * np.eye(len(point)), gradient)
        except np.linalg.LinAlgError:  # the damping is lost in rounding
            damping *= 10
            continue
        decrease = float(gradient @ step)
        trial = loss(point - step)
        # For smaller decreases, rounding dominates the loss, and only the gradient can decide.
        is_last = decrease <= 1e-13 * abs(value)
        has_decreased = trial[0] <= value - 0.25 * decrease
        if has_decreased or (is_last and np.linalg.norm(trial[1]) < size):
            point = point - step
            value, gradient, hessian = trial
            damping = max(damping / 10, 1e-9)
        elif is_last:
            break
        else:
            damping *= 10
    return point, hessian

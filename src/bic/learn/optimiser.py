"""Muon: SGD with orthogonalised updates of the backbone's kernels (Jordan et al., 2024)."""

from typing import Any

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Jordan et al.'s quintic: steep at 0, near 1 above it
SMALLEST_NORM = 1e-30  # so that a gradient or a kernel of zeros gives no NaN


class Muon(torch.optim.SGD):
    """Muon for kernels, the backbone's weights of two or more dimensions; SGD for all others.

    A kernel is seen as a matrix with a row for each output. An update moves it along the orthogonal
    matrix that is nearest to its momentum, whatever the size of the gradient. The norm of a kernel
    does not change, because a batch-norm after it cancels its scale; so `muon_rate` is a relative
    change. The momentum is stored under the same name as in SGD.
    """

    def __init__(self, module: nn.Module, *, muon_rate: float, **options: Any) -> None:
        backbone = getattr(module, "backbone", nn.Module())  # a head alone has no kernels
        kernel_ids = {id(weight) for weight in backbone.parameters() if weight.ndim >= 2}
        kernels = [weight for weight in module.parameters() if id(weight) in kernel_ids]
        others = [weight for weight in module.parameters() if id(weight) not in kernel_ids]
        groups: list[dict[str, Any]] = []
        if others:
            groups.append({"params": others, "kernels": False})
        if kernels:
            groups.append({"params": kernels, "kernels": True})
        super().__init__(groups, **options, foreach=True)
        self.muon_rate = muon_rate

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            if not group["kernels"]:
                continue
            for kernel in group["params"]:
                if kernel.grad is not None:
                    self._update(kernel, kernel.grad, group)
                    kernel.grad = None  # so that SGD does not update it
        return super().step(closure)

    def _update(self, kernel: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[kernel]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(kernel)
        momentum = state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
        nesterov = gradient.add(momentum, alpha=group["momentum"])
        direction = orthogonalised(nesterov.flatten(1)).view_as(kernel)
        norm = kernel.norm()
        rate = group["lr"] * self.muon_rate / self.defaults["lr"]
        kernel.sub_(direction * (rate * norm / direction.norm().clamp_min(SMALLEST_NORM)))
        kernel.mul_(norm / kernel.norm().clamp_min(SMALLEST_NORM))


def orthogonalised(matrix: Tensor, iterations: int = 3) -> Tensor:
    """The matrix with its singular values moved near 1 by Newton-Schulz iterations.

    Every iterate is a polynomial of the Gram matrix times the matrix. So only the first and the
    last product involve the matrix itself; the others have the size of its shorter side.
    """
    is_tall = len(matrix) > matrix.shape[1]
    rows = matrix.T if is_tall else matrix
    rows = rows / rows.norm().clamp_min(1e-12)
    gram = rows @ rows.T
    total = _quintic(gram)
    factor = total
    for _ in range(iterations - 1):
        gram = factor @ gram @ factor
        factor = _quintic(gram)
        total = factor @ total
    result: Tensor = total @ rows
    return result.T if is_tall else result


def _quintic(gram: Tensor) -> Tensor:
    """a + b·G + c·G²: the factor of one iteration for a matrix with the Gram matrix G."""
    a, b, c = NEWTON_SCHULZ
    factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)
    factor.diagonal().add_(a)
    return factor

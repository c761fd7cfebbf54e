"""Muon: stochastic gradient descent whose updates of the backbone's kernels are orthogonalised."""

from typing import Any

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # the quintic of Jordan et al. (2024): steep at 0, and near 1 above it


class Muon(torch.optim.SGD):
    """SGD but for kernels, the backbone's weights of two and more dimensions.

    A kernel, as a matrix with a row for each output, moves by the nearest orthogonal matrix to its momentum (Jordan et
    al., 2024), whatever the gradient's size. It keeps its norm, so that `kernel_rate` is a relative change: what comes
    before a batch-norm has no scale of its own. Momentum is kept under the names that SGD has for it.
    """

    def __init__(self, module: nn.Module, *, kernel_rate: float, **options: Any) -> None:
        backbone = getattr(module, "backbone", nn.Module())  # a head alone has no kernels
        kernels = {id(each) for each in backbone.parameters() if each.ndim >= 2}
        parts: dict[bool, list[nn.Parameter]] = {False: [], True: []}
        for parameter in module.parameters():
            parts[id(parameter) in kernels].append(parameter)
        groups = [{"params": params, "kernels": own} for own, params in parts.items() if params]
        super().__init__(groups, **options, foreach=True)
        self.kernel_rate = kernel_rate

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for kernel in group["params"] if group["kernels"] else ():
                if kernel.grad is not None:
                    self._turn(kernel, kernel.grad, group)
                    kernel.grad = None  # so that SGD leaves it alone
        return super().step(closure)

    def _turn(self, kernel: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[kernel]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(kernel)
        momentum = state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
        direction = orthogonalised(gradient.add(momentum, alpha=group["momentum"]).flatten(1)).view_as(kernel)
        norm = kernel.norm()
        step = group["lr"] * self.kernel_rate / self.defaults["lr"]
        kernel.sub_(direction * (step * norm / direction.norm()))
        kernel.mul_(norm / kernel.norm())


def orthogonalised(matrix: Tensor, iterations: int = 3) -> Tensor:
    """The matrix with its singular values brought near 1 by Newton-Schulz iterations of odd quintic polynomials.

    Every iterate is a polynomial of the Gram matrix times the matrix itself, so that only the first and the last
    product are with the matrix; those between are of the size of its shorter side.
    """
    tall = len(matrix) > matrix.shape[1]
    rows = matrix.T if tall else matrix
    rows = rows / rows.norm().clamp_min(1e-12)
    gram = rows @ rows.T
    total = _quintic(gram)
    factor = total
    for _ in range(iterations - 1):
        gram = factor @ gram @ factor
        factor = _quintic(gram)
        total = factor @ total
    result: Tensor = total @ rows
    return result.T if tall else result


def _quintic(gram: Tensor) -> Tensor:
    """a + b·G + c·G², by which an iteration multiplies the matrix whose Gram matrix is G."""
    a, b, c = NEWTON_SCHULZ
    factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)
    factor.diagonal().add_(a)
    return factor

"""Adam over one flat tensor: a network's parameters as views of it.

One tensor to zero, clip, step and copy instead of one for each layer: twice the
updates per second for small networks.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def flatten_parameters(module: nn.Module) -> Tensor:
    """Make a module's parameters views of one flat tensor, and return that tensor."""
    parameters = list(module.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    for parameter, view in zip(parameters, _views(flat, parameters), strict=True):
        parameter.data = view
    return flat


def _views(flat: Tensor, like: list[nn.Parameter]) -> list[Tensor]:
    parts = torch.split(flat, [parameter.numel() for parameter in like])
    return [part.view_as(p) for part, p in zip(parts, like, strict=True)]


class FlatAdam:
    """Adam with gradients clipped by their norm; skips what is not finite.

    Attributes:
        parameters: the module's, flat.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        learning_rate: float,
        epsilon: float,
        max_grad_norm: float,
    ) -> None:
        self.parameters = flatten_parameters(module)
        self._leaf = nn.Parameter(self.parameters)
        self._gradient = torch.zeros_like(self.parameters)
        self._leaf.grad = self._gradient
        leaves = list(module.parameters())
        for leaf, view in zip(leaves, _views(self._gradient, leaves), strict=True):
            leaf.grad = view  # autograd adds into it in place
        self._max_grad_norm = max_grad_norm
        self._adam = torch.optim.Adam(
            [self._leaf], learning_rate, eps=epsilon, fused=True
        )

    def step(self, loss: Tensor) -> float:
        """Descend from a scalar loss; return the gradient's norm before clipping.

        When the norm is not finite nothing is changed.
        """
        self._gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = float(torch.linalg.vector_norm(self._gradient))
        if not norm < float("inf"):  # NaN too
            return norm
        if norm > self._max_grad_norm:
            self._gradient.mul_(self._max_grad_norm / norm)
        self._adam.step()
        return norm

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of the moments and the step count; empty before the first."""
        state = self._adam.state[self._leaf]
        return {name: value.detach().clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over moments and step count."""
        own = self._adam.state[self._leaf]
        own.clear()
        own.update({name: value.clone() for name, value in state.items()})

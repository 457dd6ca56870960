"""bfloat16 copies of a network's weights: one kernel per step refreshes them, another brings their gradients back.

Autocast casts every weight at every step, and every gradient back: some sixty kernels and a tenth of a small network's
step. The numbers are the same: the copies are the casts, and master weights and gradients are float32.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call


class BFloat16Weights:
    """Copies of the weights and biases of convolutions and linear layers; BatchNorm stays in float32."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        layers = {name for name, module in network.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
        # a weight that two layers share has one name here, the first: functional_call gives its copy to both
        self.masters = {
            name: parameter for name, parameter in network.named_parameters() if name.rpartition(".")[0] in layers
        }
        self.copies = {  # of a frozen layer, whose weight needs no gradient, the copy needs none either
            name: parameter.detach().to(torch.bfloat16).requires_grad_(parameter.requires_grad)
            for name, parameter in self.masters.items()
        }
        self.gradients = {name: torch.zeros_like(parameter) for name, parameter in self.masters.items()}

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the weights."""
        torch._foreach_copy_([copy.detach() for copy in self.copies.values()], list(self.masters.values()))

    def __call__(self, x: Tensor) -> Tensor:
        """The network's output, computed with the copies."""
        return cast(Tensor, functional_call(self.network, self.copies, (x,)))

    @torch.no_grad()
    def bring_back(self) -> None:
        """Gradients of the copies to the masters, in float32."""
        found = {name: copy.grad for name, copy in self.copies.items() if copy.grad is not None}
        torch._foreach_copy_([self.gradients[name] for name in found], list(found.values()))
        for name in found:
            self.masters[name].grad = self.gradients[name]
            self.copies[name].grad = None

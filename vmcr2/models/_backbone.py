"""Networks of two parts: a backbone, and after it a head. The backbone can be frozen, or filled from a file."""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from .._shared import UserError


class HasBackbone(nn.Module):
    """A network whose last part is called ``head``. Everything before it is the backbone.

    Whoever trains it asks for :meth:`backbone_parameters`, to give them their own learning rate, or freezes them.
    """

    _frozen: tuple[str, ...] | None = None
    """Names of the parameters that :meth:`freeze_backbone` took the gradients from; None if it is not frozen."""

    @property
    def has_head(self) -> bool:
        """Whether there is one: a network of one's own may make its features without."""
        return any(name == "head" for name, _ in self.named_children())

    def backbone_parameters(self) -> dict[str, nn.Parameter]:
        """The backbone's parameters by their names in this network."""
        return {name: value for name, value in self.named_parameters() if not _in_head(name)}

    def backbone_state(self) -> dict[str, Tensor]:
        """Parameters and buffers of the backbone, by the names that a file of weights has for them.

        They share memory with the network's: a copy into them changes it.
        """
        return {name: value for name, value in self.state_dict().items() if not _in_head(name)}

    def freeze_backbone(self) -> None:
        """The backbone stays as it is while the head trains: no gradients, and evaluation mode also in training.

        So BatchNorm uses its running statistics and does not change them, and dropout is off.
        """
        if not self.has_head:
            raise UserError(
                "backbone_rate is 0, but the network makes its dim features without a head, so that nothing would be "
                "trained: set backbone_rate above 0, or choose another dim than the network's own width"
            )
        if self._frozen is None:
            own = self.backbone_parameters()
            self._frozen = tuple(name for name, value in own.items() if value.requires_grad)
            for value in own.values():
                value.requires_grad_(False)
        self.train(self.training)

    def thaw_backbone(self) -> None:
        """The backbone trains again."""
        for name in self._frozen or ():
            self.get_parameter(name).requires_grad_(True)
        self._frozen = None
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Training mode, or evaluation mode. A frozen backbone stays in evaluation mode, whoever calls this."""
        super().train(mode)
        if self._frozen is not None:
            for name, part in self.named_children():
                if name != "head":
                    part.eval()
        return self


def _in_head(name: str) -> bool:
    return name.startswith("head.")

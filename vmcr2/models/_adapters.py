"""Makes a featurizer of any network: its output, the reshaping head, unit rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .._shared import UserError
from ..functional import check_count
from ._backbone import HasBackbone
from ._head import reshaping_head, unit_rows


class Featurizer(HasBackbone):
    """A network from elsewhere, then the reshaping layers of Architecture 2; (n, …) -> (n, dim), unit rows.

    A factory of one's own may return this itself. Then it alone decides what is the backbone and what is the head.

    Args:
        backbone: any module, (n, …) -> (n, width) or a shape that is flattened to it.
        dim: d, the number of features.
        width: numbers per sample in the backbone's output; None if these are the ``dim`` features, and need no head.
        input_shape: one sample's shape; inputs of another shape are then refused.
        repeat_grey: repeat pictures of one channel to three, for networks that take colours only.

    >>> import torch
    >>> from torch import nn
    >>> net = Featurizer(nn.Conv2d(1, 2, 3), 5, 2 * 6 * 6)
    >>> z = net(torch.rand(4, 1, 8, 8))
    >>> z.shape, torch.allclose(z.norm(dim=1), torch.ones(4))
    (torch.Size([4, 5]), True)
    """

    def __init__(
        self,
        backbone: nn.Module,
        dim: int,
        width: int | None,
        *,
        input_shape: tuple[int, ...] | None = None,
        repeat_grey: bool = False,
    ) -> None:
        super().__init__()
        check_count(dim, "dim")
        self.dim = dim
        self.input_shape = None if input_shape is None else tuple(input_shape)
        self.repeat_grey = repeat_grey
        self.backbone = backbone
        self.head: nn.Sequential | None = None
        if width is not None:
            check_count(width, "width")
            self.head = reshaping_head(dim, width)

    def forward(self, x: Tensor) -> Tensor:
        """Unit rows (n, dim) of samples (n, …)."""
        if self.input_shape is not None and x.shape[1:] != self.input_shape:
            raise ValueError(
                f"this network was built for samples of shape {self.input_shape}, one per row; got {tuple(x.shape)}"
            )
        features = flat_rows(self.backbone(colours(x) if self.repeat_grey else x), x.shape[0], "the backbone")
        return unit_rows(features if self.head is None else self.head(features))

    def backbone_state(self) -> dict[str, Tensor]:
        """As a file has it: by the backbone's own names."""
        return dict(self.backbone.state_dict())


def colours(pictures: Tensor) -> Tensor:
    """Pictures of one channel as three equal ones; others as they are."""
    return pictures.expand(-1, 3, -1, -1) if pictures.shape[1] == 1 else pictures


def flat_rows(output: object, samples: int, maker: str) -> Tensor:
    """The output (samples, …) as rows, (samples, width); a :class:`UserError` if it is something else.

    ``maker`` is the network's name in errors.
    """
    if not isinstance(output, Tensor):
        raise UserError(
            f"{maker} must return one tensor of features, but returns a {type(output).__name__}: "
            "wrap it in a module that picks the tensor"
        )
    if not output.is_floating_point():
        raise UserError(f"{maker} must return floating-point features, but returns {output.dtype}")
    if output.ndim < 2 or output.shape[0] != samples:  # not len: an exported network has any batch size
        raise UserError(
            f"{maker} must return one row of features per sample, but of {samples} samples it makes the shape "
            f"{tuple(output.shape)}: keep the batch as the first dimension"
        )
    return output.flatten(1)


def feature_width(network: nn.Module, input_shape: tuple[int, ...], maker: str) -> int:
    """Numbers per sample in the network's output, found by a trial on two samples.

    Weights, buffers, modes and random numbers are the same afterwards, so that a run does not depend on the trial.
    Layers that learn their size from their first input (``nn.LazyLinear``) get it here.
    """
    parameter = next(iter(network.parameters()), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    # drawn, because some networks divide by the spread of their input; by its own generator, which is nobody else's
    pair = torch.rand(2, *input_shape, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.no_grad(), _in_eval_mode(network):
        if any(is_lazy(part) for part in (*network.parameters(), *network.buffers())):
            _tried(network, pair, maker)  # draws first weights, which is part of building it
        with _restoring_buffers(network), torch.random.fork_rng([device] if device.type == "cuda" else []):
            rows = flat_rows(_tried(network, pair, maker), len(pair), maker)
    if not torch.isfinite(rows).all():
        raise UserError(
            f"{maker} makes features that are not finite (NaN or infinite) of two samples with numbers from 0 to 1: "
            "look for a division by zero, or weights that were never filled"
        )
    return rows.shape[1]


def _tried(network: nn.Module, pair: Tensor, maker: str) -> object:
    try:
        return network(pair)
    except Exception as error:
        remedy = "change the network, or set another image_size" if pair.ndim == 4 else "change the network"
        raise UserError(
            f"{maker} cannot take samples of shape {tuple(pair.shape[1:])} ({in_short(error)}): {remedy}"
        ) from error


def in_short(error: BaseException) -> str:
    """An error's type and the first line of its message."""
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def _in_eval_mode(network: nn.Module) -> Iterator[None]:
    """Evaluation mode. On exit every part has its own mode again: a factory may have set some apart."""
    modes = [(part, part.training) for part in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def _restoring_buffers(network: nn.Module) -> Iterator[None]:
    """Buffers have their old values on exit: some networks count their calls."""
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in network.named_buffers():
            if name in before and before[name].shape == buffer.shape:
                buffer.copy_(before[name])

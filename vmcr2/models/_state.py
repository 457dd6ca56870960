"""Copies weights from one state to another by name: whole and checked, or what fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from .._shared import UserError, listed
from ._backbone import HasBackbone


def check_fit(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], *, names: str, shapes: str) -> None:
    """A ``ValueError`` that begins with ``names`` or ``shapes`` if the given state is not exactly the wanted one.

    ``num_batches_tracked`` may be missing: old files do not have it.
    """
    missing = [name for name in wanted if name not in given and not _counts(name)]
    unexpected = [name for name in given if name not in wanted]
    if missing or unexpected:
        raise ValueError(f"{names}: missing {first_few(missing)}; unexpected {first_few(unexpected)}")
    misshapen = [
        f"{name} {tuple(value.shape)} instead of {tuple(wanted[name].shape)}"
        for name, value in given.items()
        if value.shape != wanted[name].shape
    ]
    if misshapen:
        raise ValueError(f"{shapes}: {first_few(misshapen)}")


@torch.no_grad()
def copy_state(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """The given values into the tensors of the same names."""
    for name, value in given.items():
        wanted[name].copy_(value)


def load_into(network: nn.Module, state_dict: Mapping[str, Tensor], *, partial: bool) -> list[str]:
    """Copy a saved network's state into this network; returns the names that were left at their first values.

    The whole backbone must fit. With ``partial``, the rest is copied where name and shape are the same: with another
    ``dim`` the head's last layer is left as it is. Of a network without a backbone, at least something must fit.
    Without ``partial``, everything must fit. Where that fails it is a :class:`UserError`, and nothing is copied.

    >>> from vmcr2.models import MLP
    >>> load_into(MLP(4, 3, (8,)), MLP(4, 2, (8,)).state_dict(), partial=True)
    ['layers.2.weight', 'layers.2.bias']
    """
    wanted = network.state_dict()
    if not partial:
        required, given = wanted, dict(state_dict)
    else:
        given = {name: value for name, value in state_dict.items() if _same_shape(wanted.get(name), value)}
        head = {name for name in wanted if name.startswith("head.")}
        required = {name: value for name, value in wanted.items() if name not in head}
        if not isinstance(network, HasBackbone):
            required = {} if given else wanted
    saved = {name: value for name, value in state_dict.items() if name in required or not partial}
    try:
        check_fit(
            required,
            saved,
            names="the saved weights are of another network, so start from a run of the same model",
            shapes="the saved weights have other shapes, so start from a run of the same model and input",
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    copy_state(wanted, given)
    return [name for name in wanted if name not in given]


def first_few(names: Iterable[str], most: int = 8) -> str:
    """The first few names: another network's state would list a hundred."""
    return listed(names, most) or "nothing"


def _same_shape(tensor: Tensor | None, value: Tensor) -> bool:
    return tensor is not None and tensor.shape == value.shape


def _counts(name: str) -> bool:
    return name.endswith("num_batches_tracked")

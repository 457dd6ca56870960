"""The reshaping head is a sequence of layers, whatever is made of it; also where kernels take the place of two."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from vmcr2.models import _head
from vmcr2.models._head import ReshapingHead, reshaping_head


def with_gelu(head: ReshapingHead) -> nn.Module:
    head[2] = nn.GELU()
    return head


CHANGES: dict[str, Callable[[ReshapingHead], nn.Module]] = {
    "none": lambda head: head,
    "a slice": lambda head: head[:2],
    "the end": lambda head: head[2:],
    "one more": lambda head: head.append(nn.Tanh()),
    "another activation": with_gelu,
}


@pytest.mark.parametrize("fuses", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_it_calls_its_layers(change: str, fuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if fuses:  # as on a GPU; a CPU then takes torch's BatchNorm and ReLU
        monkeypatch.setattr(_head, "fusable", lambda norm, x: True)
    head = CHANGES[change](reshaping_head(16, width=8))
    x = torch.randn(9, 512 if change == "the end" else 8)
    plain = nn.Sequential(*copy.deepcopy(head).children())
    assert torch.equal(head(x), plain(x))
    for name, buffer in head.named_buffers():
        assert torch.equal(buffer, plain.get_buffer(name))

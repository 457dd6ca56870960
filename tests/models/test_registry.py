"""Names to networks."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from vmcr2.models import MLP, MODELS, MNISTNet, PreActResNet18, ResNet18, build

KINDS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "mnist-cnn": (MNISTNet, (1, 32, 32)),
    "resnet18": (ResNet18, (3, 32, 32)),
    "preact18": (PreActResNet18, (3, 32, 32)),
    "mlp": (MLP, (64,)),
}


def test_the_table_is_complete() -> None:
    assert tuple(KINDS) == MODELS


@pytest.mark.parametrize("name", MODELS)
def test_a_name_gives_its_network(name: str) -> None:
    kind, shape = KINDS[name]
    net = build(name, dim=9, input_shape=shape).eval()
    assert type(net) is kind
    assert net.dim == 9
    assert net(torch.rand(2, *shape)).shape == (2, 9)


@pytest.mark.parametrize(("name", "shape"), [("resnet18", (1, 28, 28)), ("preact18", (2, 8, 8)), ("mlp", (3, 4, 5))])
def test_the_network_fits_the_input_shape(name: str, shape: tuple[int, ...]) -> None:
    assert build(name, dim=4, input_shape=shape).eval()(torch.rand(2, *shape)).shape == (2, 4)


def test_hidden_reaches_the_mlp() -> None:
    net = build("mlp", dim=4, input_shape=(10,), hidden=(3, 2))
    assert [tuple(p.shape) for p in net.parameters() if p.ndim == 2] == [(3, 10), (2, 3), (4, 2)]
    default = build("mlp", dim=4, input_shape=(10,))
    assert [tuple(p.shape) for p in default.parameters() if p.ndim == 2] == [(256, 10), (256, 256), (4, 256)]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("resnet-18", "resnet18"), ("preact", "preact18"), ("mnist", "mnist-cnn"), ("MLP", "mlp")],
)
def test_an_unknown_name_offers_the_nearest_and_lists_all(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"there is no model '{name}': did you mean {nearest}( or \w+)?\? ") as error:
        build(name, dim=4, input_shape=(3, 32, 32))
    assert str(error.value).endswith(f"? The models are {', '.join(MODELS)}")


def test_a_name_unlike_all_models_lists_them() -> None:
    with pytest.raises(ValueError, match=f"there is no model 'xyzzy'. The models are {', '.join(MODELS)}"):
        build("xyzzy", dim=4, input_shape=(3, 32, 32))


@pytest.mark.parametrize(
    ("name", "shape", "needed"),
    [
        ("mnist-cnn", (1, 28, 28), "needs input_shape (1, 32, 32), got (1, 28, 28)"),
        ("mnist-cnn", (3, 32, 32), "needs input_shape (1, 32, 32), got (3, 32, 32)"),
        ("mnist-cnn", (1024,), "needs input_shape (1, 32, 32), got (1024,)"),
        ("resnet18", (64,), "resnet18 needs images, input_shape (channels, height, width), got (64,)"),
        ("preact18", (32, 32), "preact18 needs images, input_shape (channels, height, width), got (32, 32)"),
        ("mlp", (), "input_shape is empty"),
        ("mlp", (3, 0), "every entry of input_shape must be at least 1 and whole, got 0"),
        ("resnet18", (3, 32, 32.0), "every entry of input_shape must be at least 1 and whole, got 32.0"),
    ],
)
def test_an_input_the_network_cannot_take_is_refused(name: str, shape: tuple[int, ...], needed: str) -> None:
    with pytest.raises(ValueError, match=re.escape(needed)):
        build(name, dim=4, input_shape=shape)


@pytest.mark.parametrize("name", MODELS)
def test_a_bad_dim_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="dim must be at least 1 and whole, got 0"):
        build(name, dim=0, input_shape=KINDS[name][1])

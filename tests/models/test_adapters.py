"""Any network as a featurizer, and the trial that finds its width without a trace."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from seeds import SEED
from torch import Tensor, nn

from vmcr2._shared import UserError
from vmcr2.models import Featurizer, ResNet18
from vmcr2.models._adapters import feature_width


class Restless(nn.Module):
    """Draws random numbers, counts its calls and keeps statistics, in every mode."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.norm = nn.BatchNorm2d(2)
        self.drop = nn.Dropout(0.5)
        self.norm.eval()  # a mode of its own, which must be as it was afterwards

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        noise = torch.rand_like(x[:, :1])
        return self.drop(self.norm(x)) + noise


class Returning(nn.Module):
    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


@pytest.mark.parametrize(
    ("network", "shape", "width"),
    [
        (nn.Conv2d(3, 5, 3), (3, 8, 8), 5 * 36),
        (nn.Linear(7, 4), (7,), 4),
        (nn.Sequential(nn.Flatten(), nn.Linear(12, 9)), (3, 2, 2), 9),
        (nn.Identity(), (6,), 6),
        (nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8)), (3,), 8),
    ],
)
def test_the_trial_finds_the_width(network: nn.Module, shape: tuple[int, ...], width: int) -> None:
    assert feature_width(network, shape, "it") == width


def test_the_trial_leaves_no_trace() -> None:
    network = Restless()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(SEED)
    expected = torch.rand(3)
    torch.manual_seed(SEED)
    assert feature_width(network, (2, 4, 4), "it") == 2 * 16
    assert torch.equal(torch.rand(3), expected), "the trial drew from the run's random numbers"
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [network.training, network.norm.training, network.drop.training] == [True, False, True]


def test_the_trial_leaves_no_trace_when_it_fails() -> None:
    network = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(5, 2))
    state = torch.random.get_rng_state()
    with pytest.raises(UserError):
        feature_width(network, (4,), "it")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(part.training for part in network.modules())


def test_lazy_layers_get_their_size_and_other_weights_than_the_head() -> None:
    network = nn.Sequential(nn.Flatten(), nn.LazyLinear(512, bias=False), nn.LazyBatchNorm1d())
    assert feature_width(network, (3, 4, 4), "it") == 512
    made = Featurizer(network, 6, 512)
    assert network[1].weight.shape == (512, 48)
    assert made.head is not None
    # both are drawn uniformly: from one stream they would be equal but for their scale
    first, second = (layer.weight.flatten()[:1000] for layer in (network[1], made.head[0]))
    assert torch.corrcoef(torch.stack([first, second]))[0, 1].abs() < 0.3  # 0.03 is usual of 1000 numbers
    assert made(torch.rand(4, 3, 4, 4)).shape == (4, 6)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda x: (x, x), "it must return one tensor of features, but returns a tuple: wrap it in a module that"),
        (lambda x: {"logits": x}, "it must return one tensor of features, but returns a dict: wrap"),
        (lambda x: x.long(), "it must return floating-point features, but returns torch.int64"),
        (lambda x: x.sum(1), "it must return one row of features per sample, but of 2 samples it makes the shape (2,)"),
        (lambda x: x[:1], "of 2 samples it makes the shape (1, 3): keep the batch as the first dimension"),
        (lambda x: x.sum(), "of 2 samples it makes the shape ()"),
        (lambda x: x / 0, "it makes features that are not finite (NaN or infinite) of two samples"),
        (lambda x: x * math.nan, "it makes features that are not finite"),
        (lambda x: x @ x, "it cannot take samples of shape (3,) (RuntimeError: "),
        (lambda x: {}["key"], "it cannot take samples of shape (3,) (KeyError: 'key'): change the network"),
    ],
)
def test_what_is_wrong_with_a_network_is_one_sentence(make: Callable[[Tensor], Any], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)) as error:
        feature_width(Returning(make), (3,), "it")
    assert "\n" not in str(error.value)


def test_a_network_of_another_size_is_told_of_image_size() -> None:
    with pytest.raises(UserError, match=r"shape \(3, 8, 8\) \(RuntimeError: .*\): change .* set another image_size$"):
        feature_width(nn.Sequential(nn.Flatten(), nn.Linear(10, 2)), (3, 8, 8), "it")


def test_values_are_backbone_head_and_unit_rows() -> None:
    made = Featurizer(nn.Conv2d(1, 2, 3), 5, 2 * 36).eval()
    assert made.head is not None
    x = torch.rand(4, 1, 8, 8)
    z = made.head(made.backbone(x).flatten(1))
    assert torch.allclose(made(x), z / z.norm(dim=1, keepdim=True), atol=1e-6)
    assert [type(part) for part in made.head] == [type(part) for part in ResNet18(5).head]
    alone = Featurizer(nn.Linear(3, 5), 5, None)
    rows = torch.rand(4, 3)
    assert torch.allclose(alone(rows), alone.backbone(rows) / alone.backbone(rows).norm(dim=1, keepdim=True))
    assert alone.head is None
    assert set(alone.state_dict()) == {"backbone.weight", "backbone.bias"}


def test_grey_pictures_are_repeated() -> None:
    made = Featurizer(nn.Conv2d(3, 4, 3), 5, 4 * 36, input_shape=(1, 8, 8), repeat_grey=True).eval()
    coloured = Featurizer(made.backbone, 5, 4 * 36).eval()
    coloured.load_state_dict(made.state_dict())
    x = torch.rand(2, 1, 8, 8)
    assert torch.allclose(made(x), coloured(x.repeat(1, 3, 1, 1)), atol=1e-6)


def test_inputs_of_another_shape_are_refused() -> None:
    made = Featurizer(nn.Conv2d(1, 2, 3), 5, 2 * 36, input_shape=(1, 8, 8))
    with pytest.raises(ValueError, match=r"built for samples of shape \(1, 8, 8\), one per row; got \(2, 1, 9, 8\)"):
        made(torch.rand(2, 1, 9, 8))


def test_an_output_that_changes_in_training_is_refused_there() -> None:
    class Helped(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return (x, x) if self.training else x

    made = Featurizer(Helped(), 5, feature_width(Helped(), (6,), "it"))
    with pytest.raises(UserError, match=r"^the backbone must return one tensor of features, but returns a tuple"):
        made(torch.rand(3, 6))


@pytest.mark.parametrize("width", [0, 2.5])
def test_a_bad_width_is_named(width: Any) -> None:
    with pytest.raises(ValueError, match="width must be at least 1 and whole"):
        Featurizer(nn.Identity(), 5, width)

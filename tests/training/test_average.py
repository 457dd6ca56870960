"""The running mean of the weights: what it is, and that it is in place only while the run is measured."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from digits_trainer import TOTAL, prepared, train, weights_of
from seeds import SEED
from torch import Tensor, nn

from vmcr2.runs import Trainer
from vmcr2.training import epoch_order
from vmcr2.training._average import remake_statistics

CROPS = {"augmentation": "crop", "crop_padding": 1}


def trainer(steps: int = 0, **changes: Any) -> Trainer:
    """On digits, after some steps."""
    settings = {"epochs": 4, "average": 0.6, "hidden": (48, 48), "seed": SEED, **CROPS}
    made = prepared("ce", **settings | changes)
    for draw in range(steps):
        train(made, draw)
    return made


def state_of(made: Trainer) -> dict[str, Tensor]:
    return {
        f"{part}.{name}": value.clone()
        for part, module in (("model", made.network), ("objective", made.objective.module))
        for name, value in module.state_dict().items()
    }


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


def norms(network: nn.Module) -> list[nn.BatchNorm1d]:
    return [part for part in network.modules() if isinstance(part, nn.BatchNorm1d)]


# ---- the mean


def test_it_is_the_running_mean_with_a_decay_that_warms_up() -> None:
    """2/11 and 3/12 of the mean are kept after the first two steps, then 0.3: less than 4/13."""
    made = trainer(average=0.3)
    wanted = [weight.double() for weight in weights_of(made)]
    for draw, kept in enumerate([2 / 11, 3 / 12, 0.3, 0.3, 0.3]):
        train(made, draw)
        wanted = [kept * mean + (1 - kept) * now for mean, now in zip(wanted, weights_of(made), strict=True)]
        assert made.step.average is not None
        for mean, value in zip(made.step.average.means.values(), wanted, strict=True):
            torch.testing.assert_close(mean.double(), value, rtol=1e-5, atol=1e-6)
    assert made.step.average.steps == 5


def test_without_one_there_is_nothing_to_keep() -> None:
    made = trainer(average=0.0, steps=1)
    assert made.step.average is None
    before = state_of(made)
    with made.step.measured():
        assert_same(state_of(made), before)
    made.step.settle()
    assert_same(state_of(made), before)


# ---- put in place, and back


def test_it_is_in_place_only_while_it_is_measured() -> None:
    made = trainer(steps=3)
    assert made.step.average is not None
    before, addresses = state_of(made), [value.data_ptr() for value in made.network.state_dict().values()]
    with made.step.measured():
        for name, mean in made.step.average.means.items():
            assert torch.equal(state_of(made)[name], mean), name
            assert not torch.equal(before[name], mean), name
        assert [value.data_ptr() for value in made.network.state_dict().values()] == addresses
    assert_same(state_of(made), before)
    assert made.network.training
    assert [norm.momentum for norm in norms(made.network)] == [0.1, 0.1]


def test_an_error_while_measuring_puts_it_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(steps=2)
    made.network.eval()
    before = state_of(made)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), made.step.measured():
        fail()
    assert_same(state_of(made), before)
    monkeypatch.setattr(made.step, "featurize", fail)  # in the middle of the pass for BatchNorm
    with pytest.raises(KeyboardInterrupt), made.step.measured():
        pass
    assert_same(state_of(made), before)
    assert not made.network.training
    assert [norm.momentum for norm in norms(made.network)] == [0.1, 0.1]


def test_the_run_keeps_it_when_it_settles() -> None:
    made = trainer(steps=3)
    assert made.step.average is not None
    made.step.settle()
    for name, mean in made.step.average.means.items():
        assert torch.equal(state_of(made)[name], mean), name


# ---- BatchNorm's statistics for it


def test_the_statistics_are_means_over_augmented_batches() -> None:
    made = trainer(steps=3)
    assert made.step.average is not None
    twin = copy.deepcopy(made.network).train()
    with torch.no_grad():
        for parameter, mean in zip(twin.parameters(), made.step.average.means.values(), strict=False):
            parameter.copy_(mean)
    inputs: list[list[Tensor]] = [[], []]
    for norm, kept in zip(norms(twin), inputs, strict=True):
        norm.register_forward_pre_hook(lambda _, arguments, kept=kept: kept.append(arguments[0].double()))
    epochs = made.config.optim.epochs
    order = epoch_order(TOTAL, SEED, epochs)
    with torch.no_grad():
        for i in range(3):
            index = order[431 * i : 431 * (i + 1)]
            twin(made.step.samples.training_batch(index, torch.tensor(epochs)))
    with made.step.measured():
        for norm, seen in zip(norms(made.network), inputs, strict=True):
            assert norm.running_mean is not None
            assert norm.running_var is not None
            mean = torch.stack([x.mean(0) for x in seen]).mean(0)
            variance = torch.stack([x.var(0) for x in seen]).mean(0)
            torch.testing.assert_close(norm.running_mean.double(), mean, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(norm.running_var.double(), variance, rtol=1e-4, atol=1e-9)
            assert norm.num_batches_tracked == 3


def test_a_small_variance_keeps_its_digits() -> None:
    norm = nn.BatchNorm1d(1)
    x = 1e-5 * torch.randn(100, 1)
    remake_statistics(norm, lambda index: norm(x[index]), [torch.arange(50), torch.arange(50, 100)])
    assert norm.running_var is not None
    wanted = (x[:50].double().var() + x[50:].double().var()) / 2
    assert norm.running_var.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_a_network_without_batch_norm_sees_no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(steps=2, batch_norm=False)
    monkeypatch.setattr(made.step, "featurize", lambda *_: pytest.fail("a pass that nothing needs"))
    with made.step.measured():
        assert made.step.average is not None
        assert torch.equal(next(made.network.parameters()), made.step.average.means["model.layers.0.weight"])

"""Algorithm 1 over epochs: which samples a step sees, when the objective latches, when it stops, what is said."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from digits_trainer import CPU
from seeds import SEED
from torch import Tensor, nn

from vmcr2.objectives import CESettings, Objective, VMCR2Settings
from vmcr2.training import (
    Engine,
    Loop,
    Numerics,
    OptimSettings,
    Rows,
    Step,
    TrainingError,
    batch_figures,
    epoch_order,
)
from vmcr2.training._schedule import learning_rate

TOTAL, SIZE, DIM, CLASSES = 34, 10, 6, 3  # 3 batches an epoch, 4 samples left over


class Unit(nn.Module):
    """A linear layer and unit features."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(self.layer(x), dim=1)


class Watched(Rows):
    """Rows that write down which of them were trained on, and under which draw."""

    def __init__(self, x: Tensor, labels: Tensor) -> None:
        super().__init__(x, labels)
        self.batches: list[tuple[int, list[int]]] = []

    def training_batch(self, index: Tensor, draw: Tensor, others: Tensor | None = None) -> Tensor:
        self.batches.append((int(draw), index.tolist()))
        return super().training_batch(index, draw)


class Plain(Objective):
    """The mean of the features' first entry. It writes down what is asked of it."""

    def __init__(self, due: tuple[int, ...] = ()) -> None:
        module = nn.Module()
        module.register_buffer("state", torch.ones(2))
        super().__init__(CESettings(), module, num_classes=CLASSES, capacity=None)
        self.due = due
        self.said: list[Any] = []

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        return z[:, 0].mean()

    def surrogate(self, z: Tensor, labels: Tensor, ahead: Any = None, weights: Tensor | None = None) -> Tensor:
        self.said.append("step")
        return self.loss(z, labels)

    def latch_due(self, steps: int, steps_per_epoch: int) -> bool:
        assert steps_per_epoch == TOTAL // SIZE
        return steps in self.due

    def latch(self, features: Tensor, labels: Tensor) -> None:
        assert features.shape == (TOTAL, DIM)  # the whole training set, also what is left over in an epoch
        assert len(labels) == TOTAL
        self.said.append("latch")


def loop_of(objective: Objective, order: Callable[[int], Tensor] | None = None, **optim: Any) -> Loop:
    torch.manual_seed(SEED)
    samples = Watched(torch.randn(TOTAL, 5), torch.arange(TOTAL) % CLASSES)
    settings = OptimSettings(**{"epochs": 4, "lr": 0.1} | optim)
    step = Step(Unit(), objective, samples, settings, batch_size=SIZE, dim=DIM, seed=SEED, numerics=Numerics(CPU))
    return Loop(step, Engine(step), order or (lambda epoch: epoch_order(TOTAL, SEED, epoch)))


def batches(loop: Loop) -> list[tuple[int, list[int]]]:
    assert isinstance(loop.step.samples, Watched)
    return loop.step.samples.batches


# ---- order


def test_an_epoch_is_its_order_in_whole_batches() -> None:
    loop = loop_of(Plain(), epochs=3)
    assert (loop.batch_size, loop.steps_per_epoch) == (SIZE, 3)
    loop.run(0)
    orders = [epoch_order(TOTAL, SEED, epoch).tolist() for epoch in range(3)]
    expected = [(epoch, orders[epoch][i : i + SIZE]) for epoch in range(3) for i in (0, 10, 20)]
    assert batches(loop) == expected
    left = [set(order[30:]) for order in orders]
    assert all(len(rest) == 4 for rest in left)
    trained = {sample for _, batch in batches(loop) for sample in batch}
    assert trained == set(range(TOTAL)) - (left[0] & left[1] & left[2])


def test_every_order_is_asked_for_once() -> None:
    asked: list[int] = []

    def order(epoch: int) -> Tensor:
        asked.append(epoch)
        return epoch_order(TOTAL, SEED, epoch)

    loop = loop_of(Plain(), order, epochs=3)
    loop.run(0)
    assert asked == [0, 1, 2, 3]  # the next is made while the device is busy


def test_the_learning_rate_is_set_for_every_step() -> None:
    loop = loop_of(Plain(), schedule="linear", lr=0.2, epochs=3)
    rates: list[float] = []
    engine = loop.engine
    loop.engine = lambda: (rates.append(loop.step.rate.item()), engine())  # type: ignore[assignment]
    loop.run(0)
    assert rates == pytest.approx([learning_rate(loop.step.optim, i, 3) for i in range(9)], rel=1e-6)
    assert len(set(rates)) == 9


# ---- latching


def steps_before_each_latching(said: list[Any]) -> list[int]:
    return [said[:i].count("step") for i, what in enumerate(said) if what == "latch"]


@pytest.mark.parametrize(
    ("every", "unit", "epochs", "expected"),
    [
        (1, "epochs", 4, [0, 3, 6, 9]),  # 3 steps an epoch; not after the last, when nothing trains any more
        (2, "epochs", 5, [0, 6, 12]),
        (7, "epochs", 4, [0]),
        (1, "steps", 2, [0, 1, 2, 3, 4, 5]),
        (2, "steps", 3, [0, 2, 4, 6, 8]),
        (3, "steps", 4, [0, 3, 6, 9]),  # between two epochs, and once there
        (5, "steps", 5, [0, 5, 10]),
    ],
)
def test_vmcr2_latches_when_its_settings_say(
    every: int, unit: Any, epochs: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = VMCR2Settings(atoms_per_class=2, latch_every=every, latch_unit=unit)
    objective = settings.build(CLASSES, DIM, torch.arange(TOTAL) % CLASSES, SIZE)
    said: list[Any] = []
    latch, surrogate = objective.latch, objective.surrogate
    monkeypatch.setattr(objective, "latch", lambda *given: (said.append("latch"), latch(*given))[1])
    monkeypatch.setattr(objective, "surrogate", lambda *given: (said.append("step"), surrogate(*given))[1])
    loop_of(objective, epochs=epochs).run(0)
    assert steps_before_each_latching(said) == expected
    assert said.count("step") == 3 * epochs


def test_figures_come_before_latching_and_the_end_of_the_epoch_after_it() -> None:
    objective = Plain(due=(0, 3))
    loop = loop_of(objective, epochs=2)
    loop.run(
        0,
        trained=lambda epoch, seconds: objective.said.append(("trained", epoch)),
        ended=lambda epoch: objective.said.append(("ended", epoch)) or False,
    )
    steps = ["step"] * 3
    expected = ["latch", *steps, ("trained", 0), "latch", ("ended", 0), *steps, ("trained", 1), ("ended", 1)]
    assert objective.said == expected


def test_latching_is_in_evaluation_mode_and_leaves_the_mode() -> None:
    objective = Plain(due=(1,))
    loop = loop_of(objective, epochs=1)
    modes: list[bool] = []
    loop.step.network.register_forward_hook(lambda network, *_: modes.append(network.training))
    loop.run(0)
    assert objective.said == ["step", "latch", "step", "step"]
    assert modes == [True, False, True, True]


def test_a_run_that_goes_on_latches_where_one_without_a_stop_does() -> None:
    """A checkpoint is written after latching: what fell due before it is not done again."""
    whole, parts = Plain(due=(0, 6, 10)), Plain(due=(0, 6, 10))
    loop_of(whole).run(0)
    loop = loop_of(parts)
    loop.run(0, ended=lambda epoch: epoch == 1)
    before = list(parts.said)
    assert before == ["latch", *["step"] * 6, "latch"]
    loop.run(2)
    assert parts.said == whole.said
    assert steps_before_each_latching(whole.said) == [0, 6, 10]


# ---- the end


def test_ended_stops_the_run() -> None:
    loop = loop_of(Plain())
    seen: list[int] = []
    loop.run(0, trained=lambda epoch, _: seen.append(epoch), ended=lambda epoch: epoch == 1)
    assert seen == [0, 1]
    assert len(batches(loop)) == 6


def test_the_seconds_are_those_of_steps_and_latching() -> None:
    loop = loop_of(Plain(due=(0, 3)))
    spent: list[float] = []
    totals: list[float] = []
    loop.run(0, trained=lambda _, seconds: (spent.append(seconds), totals.append(loop.seconds)))  # type: ignore[arg-type]
    assert all(seconds > 0 for seconds in spent)
    assert all(later > earlier for earlier, later in itertools.pairwise(totals))
    assert loop.seconds >= sum(spent)


def test_batch_figures_are_the_objective_s_terms_on_the_latest_batch() -> None:
    loop = loop_of(Plain(), epochs=1, lr=1e-9)
    loop.run(0)
    figures = batch_figures(loop.step)
    last = torch.tensor(batches(loop)[-1][1])
    assert torch.equal(loop.step.seen, last % CLASSES)
    with torch.no_grad():
        z = loop.step.network(loop.step.samples.plain_batch(last))
        wanted = loop.step.objective.terms(z, last % CLASSES)
    assert figures == pytest.approx({name: value.item() for name, value in wanted.items()}, rel=1e-4, abs=1e-4)


# ---- what breaks


class NoGradient(torch.autograd.Function):
    """A finite value with a gradient that is not."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        return z.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return torch.full((SIZE, DIM), torch.nan)


class Breaks(Plain):
    """Breaks in a chosen way in its fifth step: the second of the second epoch."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.flag = torch.zeros((), dtype=torch.bool)

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        return z[:, 0].mean() * (torch.nan if self.way == "loss" and self.said.count("step") >= 5 else 1.0)

    def surrogate(self, z: Tensor, labels: Tensor, ahead: Any = None, weights: Tensor | None = None) -> Tensor:
        value = super().surrogate(z, labels)
        if self.said.count("step") == 5:
            if self.way == "gradient":
                return value + NoGradient.apply(z)
            if self.way == "state":
                self.module.state.fill_(torch.inf)  # type: ignore[operator, union-attr]
            self.flag.fill_(self.way in ("fault", "state"))
        return value

    @property
    def fault(self) -> Tensor:
        return self.flag


@pytest.mark.parametrize(
    ("way", "named"),
    [
        ("loss", "loss"),
        ("state", "state"),
        ("gradient", "the gradient of the loss, or a factorisation in it; the terms themselves are finite"),
        ("fault", "the gradient of the loss, or a factorisation in it; the terms themselves are finite"),
    ],
)
def test_what_broke_is_named(way: str, named: str) -> None:
    loop = loop_of(Breaks(way))
    seen: list[int] = []
    with pytest.raises(TrainingError) as caught:
        loop.run(0, trained=lambda epoch, _: seen.append(epoch))
    assert str(caught.value) == f"training broke in epoch 2, not finite: {named}. Lower lr or loss_scale"
    assert seen == [0], "an epoch that broke has no figures"


def test_a_network_that_overflows_is_named() -> None:
    loop = loop_of(Plain())

    def overflow(epoch: int) -> bool:
        with torch.no_grad():
            loop.step.network.layer.weight.fill_(torch.inf)  # type: ignore[union-attr, operator]
        return False

    with pytest.raises(TrainingError, match="broke in epoch 2, not finite: the features: the network's weights"):
        loop.run(0, ended=overflow)


def test_the_batch_that_broke_first_is_kept() -> None:
    loop = loop_of(Breaks("fault"))
    with pytest.raises(TrainingError):
        loop.run(0)
    assert len(batches(loop)) == 6, "the epoch ends: there is one look at the device in it"
    fifth = torch.tensor(batches(loop)[4][1])
    assert torch.equal(loop.step.seen, fifth % CLASSES)
    assert loop.step.broken


# ---- a stop between two steps


@pytest.mark.parametrize("stop", [1, 2, 4, 5, 8])
def test_a_run_goes_on_in_the_middle_of_an_epoch(stop: int) -> None:
    """With the batches, rates and latchings of a run without a stop."""
    due = (0, 2, 6, 7)
    whole, parts = loop_of(Plain(due), epochs=3, schedule="cosine"), loop_of(Plain(due), epochs=3, schedule="cosine")
    trained: list[int] = []
    assert whole.run(0) == 9
    seen = parts.step.objective.said  # type: ignore[attr-defined]
    done = parts.run(
        0, trained=lambda epoch, _: trained.append(epoch), asked_to_stop=lambda: seen.count("step") == stop
    )
    assert (done, seen.count("step")) == (stop, stop)
    assert trained == list(range(stop // 3)), "an epoch that is not done has no figures"
    assert parts.run(stop // 3, first_step=stop % 3, trained=lambda epoch, _: trained.append(epoch)) == 9
    assert trained == [0, 1, 2]
    assert batches(parts) == batches(whole)
    assert seen == whole.step.objective.said  # type: ignore[attr-defined]
    for mine, theirs in zip(parts.step.parameters, whole.step.parameters, strict=True):
        assert torch.equal(mine, theirs)


def test_after_an_epoch_s_last_step_the_epoch_ends_first() -> None:
    loop = loop_of(Plain(), epochs=2)
    seen: list[int] = []
    asked: list[int] = []
    loop.run(
        0,
        trained=lambda epoch, _: seen.append(epoch),
        ended=lambda epoch: True,
        asked_to_stop=lambda: bool(asked.append(len(batches(loop)))),  # type: ignore[func-returns-value]
    )
    assert asked == [1, 2], "between steps, and not after the last"
    assert seen == [0]


def test_an_epoch_in_two_parts_has_the_seconds_of_both() -> None:
    loop = loop_of(Plain(), epochs=1)
    loop.run(0, asked_to_stop=lambda: True)
    assert 0 < loop.spent == loop.seconds
    loop.spent, loop.seconds = 5.0, 7.0  # as a checkpoint says
    spent: list[float] = []
    loop.run(0, first_step=1, trained=lambda _, seconds: spent.append(seconds))
    assert 5 < spent[0] < loop.seconds - 1.9
    assert loop.spent == 0


def test_what_broke_before_a_stop_is_found() -> None:
    loop = loop_of(Breaks("fault"))
    with pytest.raises(TrainingError, match="broke in epoch 2"):
        loop.run(0, asked_to_stop=lambda: len(batches(loop)) == 5)

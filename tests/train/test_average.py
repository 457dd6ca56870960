"""The running mean of the weights: what it is, that steps do not feel it, and that a run is measured by it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from digits_training import CPU, prepared, train, weights_of
from safetensors.torch import load_file
from torch import Tensor, nn

import vmcr2
from vmcr2.functional import rate_reduction
from vmcr2.train import UserError, evaluate_run, fit, recipe
from vmcr2.train._average import remake_statistics
from vmcr2.train._checkpoint import Position, load_checkpoint, save_checkpoint
from vmcr2.train._evaluate import embed
from vmcr2.train._loop import Trainer
from vmcr2.train._split import epoch_order
from vmcr2.train._step import augmented

CROPS = {"augmentation": "crop", "crop_padding": 1}


def trainer(objective: str = "ce", steps: int = 0, **changes: Any) -> Trainer:
    """On digits, after some steps."""
    made = prepared(objective, **{"epochs": 4, "average": 0.6, **CROPS} | changes)
    for draw in range(steps):
        train(made, draw)
    return made


def state_of(made: Trainer) -> dict[str, Tensor]:
    return {
        f"{part}.{name}": value.clone()
        for part, module in (("model", made.network), ("objective", made.objective))
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
            torch.testing.assert_close(mean.double(), value, rtol=1e-5, atol=1e-7)
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
    order = epoch_order(1437, made.config.seed, made.config.epochs)
    with torch.no_grad():
        for i in range(3):
            index = order[479 * i : 479 * (i + 1)]
            twin(augmented(made.config, made.step.images, index, torch.tensor(made.config.epochs)))
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


# ---- a run with it


def with_dropout(*_: Any, **__: Any) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.Dropout(0.5), vmcr2.models.MLP(64, 128, (32,), batch_norm=True)
    )


@pytest.mark.parametrize("objective", ["vmcr2", "ce"])
def test_the_steps_do_not_feel_it(objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmcr2.train._load.build", with_dropout)
    config = recipe("digits", objective=objective, epochs=4, latch_every=2, eval_every=1, device="cpu", **CROPS)
    checkpoints = []
    for average in (0.0, 0.9):
        run = fit(config.replace(average=average), out=tmp_path / str(average))
        checkpoints.append(load_file(run.folder / "checkpoint" / "last.safetensors"))
    without, averaged = checkpoints
    assert not [name for name in without if name.startswith("average.")]
    assert_same(without, {name: value for name, value in averaged.items() if not name.startswith("average.")})
    assert averaged["average.steps"] == 12


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce"])
def test_a_run_keeps_and_reports_the_mean(objective: str, tmp_path: Path) -> None:
    config = recipe("digits", objective=objective, epochs=60, average=0.95, schedule="constant", device="cpu", **CROPS)
    run = fit(config, out=tmp_path / "run")
    checkpoint = load_file(run.folder / "checkpoint" / "last.safetensors")
    kept = {f"model.{name}": value for name, value in load_file(run.folder / "model.safetensors").items()}
    if objective == "ce":
        learned = load_file(run.folder / "objective.safetensors")
        kept |= {f"objective.{name}": value for name, value in learned.items()}
    means = [
        name.removeprefix("average.") for name in checkpoint if name.startswith("average.") and "steps" not in name
    ]
    assert ("objective.head.weight" in means) == (objective == "ce")
    for name in means:
        assert torch.equal(kept[name], checkpoint[f"average.{name}"]), name
        assert not torch.equal(kept[name], checkpoint[name]), name
    in_memory = {f"model.{name}": value for name, value in run.model.state_dict().items()}
    assert_same(in_memory, {name: value for name, value in kept.items() if name.startswith("model.")})
    again = evaluate_run(run.folder, device="cpu")
    assert again == {name: run.summary[name] for name in again}
    assert run.summary["test_accuracy"] > 0.9


def test_figures_on_the_way_are_of_the_mean() -> None:
    made = trainer("vmcr2", steps=6, average=0.9, eval_every=1)

    def delta_r() -> float:
        features = embed(made.config, made.network, made.train_split.images, CPU)
        return rate_reduction(features.double(), made.step.labels, 10, eps_sq=made.config.eps_sq).delta.item()

    record = made.record(Position(2, 6, 1.0), 1.0)
    with made.step.measured():
        assert record["train_delta_r"] == delta_r()
    assert record["train_delta_r"] != pytest.approx(delta_r(), rel=1e-6)


def test_a_run_killed_before_its_evaluation_ends_the_same(tmp_path: Path) -> None:
    """Then no epoch is left to train, and nothing of one lies in the step's buffers."""
    config = recipe("digits", epochs=3, average=0.8, device="cpu", **CROPS)
    whole = fit(config, out=tmp_path / "run")
    kept = load_file(whole.folder / "model.safetensors")
    (whole.folder / "summary.json").unlink()
    (whole.folder / "model.safetensors").unlink()
    resumed = fit(config, out=tmp_path / "run", resume=True)
    assert_same(load_file(whole.folder / "model.safetensors"), kept)
    assert json.dumps(resumed.summary) == json.dumps(whole.summary)


def test_a_checkpoint_has_the_mean_and_needs_it_only_with_one(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    made, other = trainer(steps=4), trainer()
    save_checkpoint(path, made.step, Position(1, 4, 1.0))
    load_checkpoint(path, other.step)
    assert made.step.average is not None
    assert other.step.average is not None
    assert_same(other.step.average.state_dict(), made.step.average.state_dict())
    plain = trainer(average=0.0, steps=1)
    save_checkpoint(path, plain.step, Position(1, 1, 1.0))
    assert load_checkpoint(path, trainer(average=0.0).step).epoch == 1
    with pytest.raises(UserError, match="holds no mean of the weights"):
        load_checkpoint(path, other.step)

"""Runs on data and settings at the edge: each trains, or stops with the reason. No saved file has a NaN."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import in_process
from safetensors.torch import load_file
from seeds import SEED

from vmcr2.data import from_arrays
from vmcr2.objectives import OBJECTIVES
from vmcr2.runs import Run, TrainingError, UserError, fit, recipe

LABELS = np.arange(60) % 3


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(SEED).integers(0, 256, shape, dtype=np.uint8)


def trained(folder: Path, inputs: np.ndarray, labels: np.ndarray, **settings: Any) -> Run:
    source = from_arrays(inputs, labels)
    return fit(recipe("auto", data=source, epochs=2, device="cpu", **settings), out=folder / "run", source=source)


def assert_no_nan(folder: Path) -> None:
    """In no tensor of any file, and in no figure of the summary."""
    for path in folder.rglob("*.safetensors"):
        for name, tensor in load_file(path).items():
            assert bool(torch.isfinite(tensor.double()).all()), f"{name} in {path.name}"
    for path in folder.rglob("summary.json"):
        for name, figure in json.loads(path.read_text()).items():
            assert not isinstance(figure, float) or math.isfinite(figure), name


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    ("inputs", "labels", "settings"),
    [
        pytest.param(np.full((60, 8, 8), 7, np.uint8), LABELS, {}, id="identical pictures"),
        pytest.param(np.zeros((60, 8, 8), np.uint8), LABELS, {}, id="black pictures"),
        pytest.param(noise(60, 8, 8), np.arange(60) % 30, {"batch_size": 8}, id="more classes than a batch has rows"),
        pytest.param(noise(60, 8, 8), LABELS, {"eps_sq": 1e-4}, id="eps_sq 1e-4"),
        pytest.param(noise(60, 8, 8), LABELS, {"eps_sq": 1e-12}, id="eps_sq 1e-12"),
        pytest.param(np.where(noise(60, 5) > 200, np.nan, noise(60, 5)), LABELS, {}, id="gaps in a table"),
    ],
)
def test_it_trains(
    objective: str, inputs: np.ndarray, labels: np.ndarray, settings: dict[str, Any], tmp_path: Path
) -> None:
    run = trained(tmp_path, inputs, labels, objective=objective, **settings)
    assert 0 <= run.summary["test_accuracy"] <= 1
    assert_no_nan(tmp_path)


@pytest.mark.parametrize(
    ("inputs", "labels", "said"),
    [
        pytest.param(noise(60, 8, 8), np.zeros(60, int), "training needs at least two classes", id="one class"),
        pytest.param(np.full((60, 8, 8), np.nan), LABELS, "pictures are uint8", id="NaN pictures"),
        pytest.param(np.full((60, 5), np.nan), LABELS, "no column to learn from", id="a table of gaps"),
        pytest.param(np.zeros((60, 5)), LABELS, "no column to learn from", id="a table of zeros"),
        pytest.param(np.full((60, 5), np.inf), LABELS, "an infinite number", id="an infinite table"),
    ],
)
def test_it_is_refused(inputs: np.ndarray, labels: np.ndarray, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        trained(tmp_path, inputs, labels)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("lr", [1e3, 1e10, 1e30])
def test_a_learning_rate_far_too_high(objective: str, lr: float, tmp_path: Path) -> None:
    """Where it ends depends on the CPU's rounding; that it says so, and saves no NaN, does not."""
    ended = ""
    try:
        trained(tmp_path, noise(60, 8, 8), LABELS, objective=objective, lr=lr)
    except TrainingError as error:
        ended = str(error)
    assert_no_nan(tmp_path)
    if lr == 1e3 and not ended:
        return
    assert ended.startswith("training broke")
    assert "Lower lr" in ended
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lr": 1e300}, r"lr must be at most 1e\+30, got 1e\+300"),
        ({"eps_sq": 1e-300}, "eps_sq must be at least 1e-12, got 1e-300"),
        ({"eps_sq": 0.0}, "eps_sq must be above 0, got 0"),
        ({"objective": "vmcr2", "batch_expansion": 1e300}, r"batch_expansion must be at most 1e\+12"),
        ({"objective": "vmcr2", "weight": 1e300}, r"weight must be at most 1e\+12"),
        ({"loss_scale": 1e300}, r"loss_scale must be at most 1e\+12"),
        ({"weight_decay": 1e300}, r"weight_decay must be at most 1e\+30"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        recipe("digits", **settings)


def test_the_command_says_it_in_one_sentence(tmp_path: Path) -> None:
    settings = ["--set", "lr=1e30", "--epochs", "1", "--device", "cpu"]
    done = in_process("train", *settings, "--out", str(tmp_path / "run"))
    assert done.code != 0
    assert "training broke" in done.err
    assert "Traceback" not in done.err
    assert_no_nan(tmp_path)


NETWORKS = """
import torch
from torch import nn

class Constant(nn.Module):
    def __init__(self, dim, value):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.value = value
    def forward(self, x):
        # two samples are tried before training: they must look sound
        bad = self.value if len(x) > 2 else 1.0
        return self.weight + bad * torch.ones(len(x), len(self.weight))

def zeros(dim): return Constant(dim, 0.0)
def nans(dim): return Constant(dim, float("nan"))
"""


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_network_whose_features_are_zero_or_nan(
    objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets_extreme.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nets_extreme", raising=False)
    out = tmp_path / "out"
    run = trained(out, noise(60, 8, 8), LABELS, objective=objective, model="nets_extreme:zeros")
    assert run.summary["train_delta_r"] == pytest.approx(0.0, abs=1e-3) or objective.startswith("ce")
    assert_no_nan(out)
    with pytest.raises(TrainingError, match="training broke"):
        trained(tmp_path / "nan", noise(60, 8, 8), LABELS, objective=objective, model="nets_extreme:nans")
    assert_no_nan(tmp_path / "nan")

"""What calibration promises: temperatures that are found again, and false alarms that stay below the stated rate."""

from __future__ import annotations

import pytest
import torch
from seeds import SEED
from torch import nn

from vmcr2._shared import UserError
from vmcr2.inference import Confidence, Readout, calibration_error


def known(novelties: torch.Tensor) -> Confidence:
    return Confidence("a test", {"subspace": 0.1}, {"subspace": novelties.double().sort().values})


@pytest.mark.parametrize("true", [0.3, 2.0])
def test_the_temperature_of_the_labels_is_found_again(true: float) -> None:
    """Of 20 seeds: the ratio to the true one is 0.92 to 1.05, the error at most 0.029, and 0.13 at least at T/4."""
    generator = torch.Generator().manual_seed(SEED)
    z = torch.nn.functional.normalize(torch.randn(3000, 10, generator=generator), dim=1)
    head = nn.Linear(10, 5)
    nn.init.normal_(head.weight, generator=generator)
    nn.init.zeros_(head.bias)
    with torch.no_grad():
        labels = torch.multinomial(torch.softmax(head(z) / true, dim=1), 1, generator=generator)[:, 0]
    bases = torch.eye(10)[None, :, :1].expand(5, 10, 1)
    found = Confidence.learn([Readout(bases, head, by="head", novelty_by="head")], z, labels, "a test")
    assert 0.8 < found.temperatures["head"] / true < 1.25
    assert found.samples == 3000
    calibrated = Readout(bases, head, by="head", novelty_by="head", temperature=found.temperatures["head"])
    off = Readout(bases, head, by="head", novelty_by="head", temperature=found.temperatures["head"] / 4)
    error = calibration_error(calibrated.in_blocks(z).probabilities, labels)
    assert error < 0.06
    assert calibration_error(off.in_blocks(z).probabilities, labels) > 0.09


@pytest.mark.parametrize(("samples", "rate"), [(99, 0.05), (143, 0.05), (1000, 0.01), (20, 0.1)])
def test_false_alarms_are_as_rare_as_stated(samples: int, rate: float) -> None:
    """The mean over draws is (n + 1 − rank)/(n + 1), which is at most the rate; of 10 seeds within 0.006."""
    generator = torch.Generator().manual_seed(SEED)
    shares = []
    for _ in range(400):
        drawn = torch.rand(samples, generator=generator)
        shares.append(1 - known(drawn).threshold("subspace", rate))  # of uniform numbers, so many lie above it
    mean = sum(shares) / len(shares)
    assert rate - 1 / (samples + 1) - 0.012 < mean < rate + 0.012


def test_what_cannot_be_promised_is_said() -> None:
    few = known(torch.rand(30))
    few.threshold("subspace", 0.05)
    with pytest.raises(UserError, match=r"0\.01 needs at least 99 calibration samples, and there are 30"):
        few.threshold("subspace", 0.01)
    for rate in (0.0, 1.0, -1.0, 5.0):
        with pytest.raises(UserError, match="must lie between 0 and 1"):
            few.threshold("subspace", rate)


def test_it_is_written_and_read_without_loss() -> None:
    one = Confidence("x", {"head": 0.7, "subspace": 0.1}, {"head": torch.rand(5).double(), "subspace": torch.rand(5)})
    again = Confidence.from_tensors(one.tensors(), "x")
    assert again.temperatures == one.temperatures
    assert all(torch.equal(again.novelties[by], one.novelties[by]) for by in one.novelties)


def test_the_calibration_error_by_hand() -> None:
    sure = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]])
    # two at 0.9, one right: |0.5 − 0.9|; two at 0.6, both right: |1 − 0.6|
    assert calibration_error(sure, torch.tensor([0, 1, 0, 1])) == pytest.approx(0.4)
    assert calibration_error(torch.eye(3), torch.arange(3)) == 0

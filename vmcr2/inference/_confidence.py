"""What samples that were not trained on say about a run: how sure it may be, and what is foreign to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._shared import UserError
from ..functional import SCORE_BUDGET
from ._calibration import fit_calibration
from ._readout import SUBSPACE, Readout
from ._top_answers import top_answers

_BINS = 15
_LEAST_RATE = 1e-9  # no run has that many samples
_MOST_FEATURES = 1000
_MOST_SCORES = 2**25  # of samples in classes, in float64: 256 MiB


@dataclass(frozen=True)
class Confidence:
    """Temperatures of the read-outs, and how foreign known samples look."""

    origin: str
    """where the samples came from, in words: "set aside from training", "the hold-out", …"""
    temperatures: dict[str, float]
    """by read-out, "head" and "subspace" """
    novelties: dict[str, Tensor]
    """by what novelty goes by, "head" or "subspace": that of every sample, ascending"""
    features: Tensor | None = None
    """(n, d), at most 1,000, of samples that the trained subspaces had right: how many would an added class take?"""

    @classmethod
    def learn(
        cls, readouts: list[Readout], features: Tensor, labels: Tensor, origin: str, known: Tensor | None = None
    ) -> Confidence:
        """From features and classes of samples that were not trained on. One read-out for each way to predict.

        ``known`` are the features to keep; all by default. With many classes the temperature rests on evenly spaced
        samples, 2²⁵ scores at most: all 1,000 up to 33,000 classes, 335 with 100,000. The novelties rest on all.
        """
        temperatures, novelties = {}, {}
        for readout in readouts:
            some = slice(None, None, max(1, -(-len(labels) * len(readout.bases) // _MOST_SCORES)))
            parts = torch.split(features[some], max(1, SCORE_BUDGET // readout.bases[:, 0].numel()))
            scores = torch.cat(
                [readout.scores(part, readout.residuals(part)).detach().double().cpu() for part in parts]
            )
            found = fit_calibration(scores.numpy(), labels[some].cpu().numpy())
            temperatures[readout.by] = found.temperature
            novelty = top_answers(readout.at(found.temperature), features, 1).novelty
            novelties[readout.novelty_by] = novelty.double().sort().values.cpu()
        kept = features if known is None else known
        few = kept[:: -(-len(kept) // _MOST_FEATURES) or 1]  # a hold-out may have any size
        return cls(origin, temperatures, novelties, few.float().cpu())

    @property
    def samples(self) -> int:
        """How many samples it rests on."""
        return len(next(iter(self.novelties.values())))

    def threshold(self, novelty_by: str, false_alarms: float) -> float:
        """The novelty above which a sample is refused.

        At most this share of new samples of the known classes lies above it, if they are drawn like the samples here:
        the rank is ⌈(n + 1)(1 − share)⌉ of n, as in conformal prediction.
        """
        if not _LEAST_RATE <= false_alarms < 1:
            raise UserError(f"a false-alarm rate must lie between 0 and 1, got {false_alarms}: 0.05 refuses one in 20")
        known = self.novelties[novelty_by]
        rank = math.ceil((len(known) + 1) * (1 - false_alarms))
        if rank > len(known):
            needed = math.ceil(1 / false_alarms) - 1
            raise UserError(
                f"a false-alarm rate of {false_alarms:g} needs at least {needed} calibration samples, and there are "
                f"{len(known)}: use a larger rate, or run.calibrate with more samples"
            )
        return float(known[rank - 1])

    def without_head(self) -> Confidence:
        """For subspaces alone, where the head does not know all classes."""
        return replace(self, novelties={SUBSPACE: self.novelties[SUBSPACE]})

    def tensors(self) -> dict[str, Tensor]:
        """To be written into a file."""
        numbers = {
            f"temperature.{by}": torch.tensor(value, dtype=torch.float64) for by, value in self.temperatures.items()
        }
        kept = {} if self.features is None else {"features": self.features}
        return numbers | {f"novelty.{by}": values for by, values in self.novelties.items()} | kept

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], origin: str) -> Confidence:
        """What :meth:`tensors` gave."""
        parts: dict[str, dict[str, Tensor]] = {"temperature": {}, "novelty": {}}
        for name, value in tensors.items():
            kind, _, by = name.partition(".")
            if kind in parts:
                parts[kind][by] = value
        temperatures = {by: value.item() for by, value in parts["temperature"].items()}
        return cls(origin, temperatures, parts["novelty"], tensors.get("features"))


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = _BINS) -> float:
    """The expected calibration error: mean |accuracy − confidence| over bins of the largest probability.

    >>> round(calibration_error(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 3)
    0.3
    """
    sure, predicted = probabilities.double().max(1)
    return confidence_error(sure, predicted == labels, bins)


def confidence_error(sure: Tensor, right: Tensor, bins: int = _BINS) -> float:
    """The same from the largest probability of each sample and whether its class is right, (n,) both."""
    sure = sure.double()
    place = (sure * bins).long().clamp_max(bins - 1)
    gaps = torch.zeros(bins, dtype=torch.float64, device=sure.device).index_add_(0, place, right.double() - sure)
    return float(gaps.abs().sum() / len(right))

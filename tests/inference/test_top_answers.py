"""The likeliest classes in blocks: the same answers as from all classes at once."""

from __future__ import annotations

import pytest
import torch
from seeds import SEED
from torch import Tensor, nn

from vmcr2.inference import Confidence, Readout, _confidence, _top_answers, confidence_error, top_answers


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED + seed))


def readouts(k: int, d: int, r: int) -> dict[str, Readout]:
    """By the subspaces, by the head, and with an added class."""
    bases = torch.linalg.qr(drawn(k, d, r, seed=0)).Q
    bases[k // 2] = 0  # a class that has none
    head = nn.Linear(d, k)
    ones = torch.ones(k)
    scales, gains = torch.cat([ones[1:], torch.tensor([0.7])]), torch.cat([ones[1:], torch.tensor([1.3])])
    return {
        "subspace": Readout(bases, None, by="subspace", novelty_by="subspace", temperature=0.05),
        "head": Readout(bases, head, by="head", novelty_by="head", temperature=0.3),
        "head, novelty by subspaces": Readout(bases, head, by="head", novelty_by="subspace"),
        "added": Readout(
            bases, None, by="subspace", novelty_by="subspace", temperature=0.1, scales=scales, gains=gains
        ),
    }


@pytest.mark.parametrize("budget", [1, 3000, 2**24])
@pytest.mark.parametrize("kind", readouts(3, 4, 1))
def test_they_are_the_answers_of_the_readout(kind: str, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_top_answers, "SCORE_BUDGET", budget)
    monkeypatch.setattr(_top_answers, "ROWS", 30)
    k, n = 41, 50
    readout = readouts(k, 12, 2)[kind]
    z = nn.functional.normalize(drawn(n, 12, seed=1), dim=1)
    whole, found = readout.in_blocks(z), top_answers(readout, z, 4)
    assert torch.equal(found.labels[:, 0], whole.labels)
    probabilities, order = whole.probabilities.sort(dim=1, descending=True)
    assert torch.equal(found.labels, order[:, :4])
    assert torch.allclose(found.probabilities, probabilities[:, :4], atol=1e-6)
    assert torch.allclose(found.residuals, whole.residuals.gather(1, order[:, :4]), atol=1e-6)
    assert torch.allclose(found.novelty, whole.novelty, atol=1e-6)
    assert top_answers(readout, z, 100).labels.shape == (n, k)  # there are no more
    assert torch.allclose(top_answers(readout, z, k).probabilities.sum(1), torch.ones(n), atol=1e-5)


def test_a_temperature_of_many_classes_rests_on_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    readout = readouts(7, 12, 2)["subspace"]
    labels = torch.arange(700) % 7
    z = nn.functional.normalize(readout.bases[labels, :, 0] + 0.6 * drawn(700, 12, seed=2) / 12**0.5, dim=1)
    kept = labels != 3  # has no subspace
    every = Confidence.learn([readout], z[kept], labels[kept], "all")
    scores = []
    fit = _confidence.fit_calibration
    monkeypatch.setattr(_confidence, "fit_calibration", lambda own, truth: scores.append(own) or fit(own, truth))
    monkeypatch.setattr(_confidence, "_MOST_SCORES", 2100)
    some = Confidence.learn([readout], z[kept], labels[kept], "some")
    assert scores[0].shape == (300, 7)
    assert some.samples == every.samples == 600  # the novelties are of all
    assert 0.7 < some.temperatures["subspace"] / every.temperatures["subspace"] < 1.4
    top = top_answers(readout.at(some.temperatures["subspace"]), z[kept], 1)
    assert confidence_error(top.probabilities[:, 0], top.labels[:, 0] == labels[kept]) < 0.1

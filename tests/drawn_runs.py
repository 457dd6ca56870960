"""Whole runs without training: weights, statistics and subspaces are drawn. Any network, data and objective."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from seeds import SEED
from torch import Tensor, nn

from vmcr2.data import Preparation
from vmcr2.inference import Confidence
from vmcr2.runs import Config, Run
from vmcr2.runs._inputs import InputForm
from vmcr2.runs._parts import built, classifier_from

CLASSES, DIM = 4, 12


def drawn_run(
    folder: Path,
    shape: tuple[int, ...],
    *,
    calibrated: bool = True,
    preparation: Preparation | None = None,
    **settings: Any,
) -> Run:
    """A run for samples of this shape; ``settings`` have flat names."""
    torch.manual_seed(SEED)
    kind = "given-pictures" if len(shape) == 3 else "given-rows"
    config = Config().replace(data=kind, dim=DIM, device="cpu", **settings)
    network, objective = built(config, shape, CLASSES, torch.device("cpu"))
    torch.manual_seed(SEED + 1)
    for part in (*network.modules(), *objective.module.modules()):
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, std=0.1)  # type: ignore[arg-type]
            nn.init.uniform_(part.running_var, 0.5, 1.5)  # type: ignore[arg-type]
    bases = torch.linalg.qr(torch.randn(CLASSES, DIM, 3)).Q
    classifier = classifier_from(config, bases, torch.rand(CLASSES, 3))
    summary = {"readout": "head" if objective.head is not None else "subspace", "test_images": 10, "test_accuracy": 0.5}
    names = tuple(f"class {j}" for j in range(CLASSES))
    form = InputForm(shape, "crop", preparation)
    parts = (objective.module, objective.head, names, form)
    run = Run(folder, config, summary, network.eval(), classifier, *parts)
    if not calibrated:
        return run
    known = samples(shape, 60)
    bare = replace(run, form=replace(form, preparation=None))  # these rows are prepared already
    labels = bare.predict(known, labels=True)
    labels[::7] = (labels[::7] + 1) % CLASSES  # some mistakes, so that it is not quite sure
    return replace(run, confidence=bare.calibrate(known, labels).confidence)


def samples(shape: tuple[int, ...], count: int, seed: int = 0) -> Tensor:
    """uint8 pictures, or rows."""
    generator = torch.Generator().manual_seed(seed)
    if len(shape) == 1:
        return torch.randn(count, *shape, generator=generator)
    return torch.randint(0, 256, (count, *shape), generator=generator, dtype=torch.uint8)


def answers_of(run: Run, x: Tensor) -> tuple[Tensor, ...]:
    """What an exported file answers, by the run itself."""
    features = run.features(x)
    answers = run.answers_of(features)
    return answers.labels, answers.probabilities, answers.novelty, features


def furthest(found: Any, expected: Any) -> float:
    """The largest difference of any answer."""
    return max((a.double() - b.double()).abs().max().item() for a, b in zip(found, expected, strict=True))


def allowed(run: Run) -> float:
    """float32: sums in another order differ by some 1e-7, and a temperature divides what scores differ by."""
    temperature = 1.0 if run.confidence is None else run.confidence.temperatures[run.readout]
    return max(1e-5, 2e-6 / temperature)


def same_confidence(one: Confidence | None, two: Confidence | None) -> bool:
    """Whether both were learned from the same samples."""
    if one is None or two is None:
        return one is two
    a, b = one.tensors(), two.tensors()
    return one.origin == two.origin and a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)

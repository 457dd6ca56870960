"""A run as a notebook shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._shared import facts_html, listed
from ..functional import maximal_rate_reduction

if TYPE_CHECKING:
    from ._run import Run


def run_html(run: Run) -> str:
    """What it was trained on, how good it is, and what to call next."""
    config = run.config
    own = len(run.class_names) - len(run.added)
    facts = [
        ("data", f"{config.data.title}, {own:,} classes: {listed(run.class_names[:own], most=8)}"),
        ("added classes", listed(run.added, most=8)),
        ("objective", config.objective.title),
        ("network", f"{config.model.name}, {config.model.dim} features"),
        ("accuracy", _accuracy(run)),
        ("ΔR", _reduction(run, own)),
        ("training", _training(run)),
        ("probabilities", _probabilities(run)),
        ("warning", str(run.summary.get("warning", ""))),
        ("folder", str(run.folder)),
    ]
    return facts_html("vmcr2 run", facts, "run.predict(x), run.plot.convergence(), run.plot.feature_map()")


def _accuracy(run: Run) -> str:
    for unseen, words in (("test", "test"), ("holdout", "held-out")):
        if (subspace := run.summary.get(f"{unseen}_accuracy")) is None:
            continue
        head = run.summary.get("head_accuracy")
        by_head = run.readout == "head" and head is not None
        text = f"{head if by_head else subspace:.4f} by {'its head' if by_head else 'nearest subspace'}"
        count = run.summary.get(f"{unseen}_images")
        return text + (f", on {count:,} {words} samples" if count else f", on {words} samples")
    return ""


def _reduction(run: Run, num_classes: int) -> str:
    found = run.summary.get("train_delta_r")
    if found is None:
        return ""
    most = maximal_rate_reduction(run.config.model.dim, num_classes, eps_sq=run.config.objective.eps_sq)
    return f"{found:.2f} of at most {most:.2f} nats, over the whole training set"


def _training(run: Run) -> str:
    epochs, seconds = run.summary.get("epochs"), run.summary.get("seconds")
    if epochs is None or seconds is None:
        return ""
    return f"{epochs} epochs in {seconds:.1f} s, seed {run.config.run.seed}"


def _probabilities(run: Run) -> str:
    if run.confidence is None:
        return "not calibrated: run.calibrate(inputs, labels) does it"
    return f"calibrated on {run.confidence.samples:,} samples ({run.confidence.origin})"

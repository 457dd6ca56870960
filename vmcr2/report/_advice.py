"""What to try next, from what a run shows. Each piece names the page of the documentation that has the measurements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ._read import RunRecord
from ._series import read_series

_MOST = 4
_LEVEL = 0.015
"""two accuracies that differ by less are level (docs/tuning.md)"""
_GAP = 0.1
_RISE = 0.03
"""of the largest ΔR, over the last fifth of a run"""
_LEAST_POINTS = 20
_MANY_ATOMS = 5
"""for each dimension that a class has room for: recipes have up to five, ten cost accuracy at d 100"""
_BATCHES_ONLY = 1.5
"""ΔR of batches divided by that of the training set: the paper's exact MCR² on CIFAR-100 has almost 4"""


def advice(run: RunRecord) -> list[str]:
    """At most four sentences with settings between backticks; of a run that did not finish, none."""
    if run.summary is None:
        return []
    rules = (_small_batch, _batches_only, _no_expansion, _dropout, _atoms, _still_rising, _gap, _components)
    return [text for rule in rules for text in rule(run)][:_MOST]


def _small_batch(run: RunRecord) -> Iterator[str]:
    """R_c of too few samples says little about a class."""
    room, batch, k = room_of(run), run.config.get("batch_size"), run.num_classes
    if "mcr2" not in run.objective.split("+") or not room or not batch or not k or run.config.get("memory"):
        return
    each = float(run.config.get("samples_per_class") or min(batch, run.figure("train_images") or np.inf) / k)
    if each < room:
        yield (
            f"Another objective, or larger batches: a batch has {each:.1f} samples of a class on average, and a class "
            f"has room for {room} dimensions. Exact MCR² of so few samples says little about a class. Try "
            f"`--objective {run.objective.replace('mcr2', 'vmcr2')}` (docs/defaults.md, «Which objective»)."
        )


def _batches_only(run: RunRecord) -> Iterator[str]:
    """Exact MCR² alone can reach a high ΔR in every batch by pushing samples apart."""
    of_batches, of_all = run.figure("batch_delta_r"), run.figure("train_delta_r")
    if run.objective != "mcr2" or run.config.get("memory") or of_batches is None or of_all is None:
        return
    if of_batches > _BATCHES_ONLY * of_all:
        yield (
            f"`--set memory=20000`: ΔR is {of_batches:.0f} in batches but {of_all:.0f} over the training set. With a "
            "memory exact MCR² sees more samples of each class at once (docs/tuning.md, «Exact MCR²»)."
        )


def _no_expansion(run: RunRecord) -> Iterator[str]:
    if "vmcr2" in run.objective.split("+") and run.config.get("batch_expansion") == 0:
        yield (
            "`--set batch_expansion=0.1`: without β nothing in the network's gradient tells the classes apart "
            "(docs/tuning.md, «β, the weight of R»)."
        )


def _dropout(run: RunRecord) -> Iterator[str]:
    if "vmcr2" in run.objective.split("+") and run.config.get("dropout_until") == 1.0:
        yield (
            "`--set dropout_until=0.8`: ΔR cannot tell dropout's noise from spread, so switch dropout off for the last "
            "fifth of the run (docs/tuning.md, «Dropout»)."
        )


def _atoms(run: RunRecord) -> Iterator[str]:
    atoms, room = run.config.get("atoms_per_class"), room_of(run)
    if "vmcr2" in run.objective.split("+") and atoms and room and atoms > _MANY_ATOMS * room:
        fewer = "1" if room == 1 else f"{room} to {2 * room}"
        flat = " with `--set codes=flat`" if room == 1 else ""
        yield (
            f"`--set atoms_per_class=…`: {fewer} instead of {atoms}{flat}. A class has room for {room} "
            f"dimension{'s' if room > 1 else ''} (docs/tuning.md, «Which to change first»)."
        )


def _still_rising(run: RunRecord) -> Iterator[str]:
    rise, most, epochs = rise_at_the_end(run), run.most_delta, run.config.get("epochs")
    if run.objective != "ce" and rise is not None and most and epochs and rise > _RISE * most:
        yield (
            f"More epochs: ΔR of the batches still rose by {rise:.1f} over the last fifth of the run. Start a run with "
            f"`--epochs {2 * int(epochs)}`: the learning rate falls over the whole run, so set its length at the start "
            "(docs/tuning.md, «Epochs»)."
        )


def _gap(run: RunRecord) -> Iterator[str]:
    """Learned by heart."""
    seen, new = run.figure("train_accuracy"), run.figure(f"{run.unseen}_accuracy")
    if seen is None or new is None or seen - new <= _GAP:
        return
    found = f"It is right on {seen:.0%} of the training samples, and on {new:.0%} of the {run.unseen_words} samples. "
    if run.config.get("input_noise") == 0:
        yield found + "Add noise to the rows: `--set input_noise=0.5` (docs/defaults.md, «The rule»)."
    elif run.config.get("augmentation") == "none":
        yield (
            found + "Change the pictures at random while training: `--set augmentation=crop` "
            "(docs/tuning.md, «Settings that hardly matter», has its effect)."
        )
    elif run.config.get("flip") is False:
        yield (
            found + "If a mirrored picture still belongs to its class, `--set flip=true` shows the network more of "
            "them (docs/defaults.md, «The rule»)."
        )
    else:
        yield (
            found + "More weight decay may help: try `weight_decay` and `lr` three times larger and smaller "
            "(docs/tuning.md, «Learning rate and weight decay»)."
        )


def _components(run: RunRecord) -> Iterator[str]:
    found = run.summary.get("holdout_accuracy_by_components") if run.summary else None
    now = run.figure("holdout_accuracy")
    if not isinstance(found, dict) or not found or now is None:
        return
    best = max(found, key=lambda count: (float(found[count]), -int(count)))
    if float(found[best]) > now + _LEVEL:
        yield (
            f"`--set components={int(best)}`: with so many directions of each class the nearest subspace is right on "
            f"{float(found[best]):.1%} instead of {now:.1%} of the hold-out "
            "(docs/tuning.md, «Components of the classifier»)."
        )


def rise_at_the_end(run: RunRecord) -> float | None:
    """By how much ΔR of the batches rose over the last fifth of the run; None if there are too few points to say."""
    series = read_series(run, "batch_delta_r", limit=10**9)
    if series is None or len(series.values) < _LEAST_POINTS:
        return None
    epochs, values = np.array(series.epochs), np.array(series.values)
    at = epochs / epochs[-1]
    before, end = values[(at > 0.75) & (at <= 0.8)], values[at > 0.95]
    return float(end.mean() - before.mean()) if len(before) and len(end) else None


def room_of(run: RunRecord) -> int | None:
    """⌊d/k⌋, at least 1: the dimensions that a class has room for."""
    dim, k = run.config.get("dim"), run.num_classes
    return max(1, int(dim) // k) if dim and k else None

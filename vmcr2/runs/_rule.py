"""The rule from a training set to every setting, for data that nobody has searched for: ``recipe("auto", data=…)``.

It looks at numbers of samples, classes and pixels, never at the name of a data set. docs/defaults.md says how each
value was found, and how far a search gets beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .._shared import UserError
from ..data import Shape, Source, calibration_count, describe
from ..objectives import INPUT_NOISE, OBJECTIVES, ROWS_BATCH, choose_objective, default_dim, rows_rule
from ..training import even_batch
from ._origins import Given, Values

_SMALL = 16  # pixels: below it a ResNet has nothing to pool
_STEPS_IN_EPOCH = 8
_EPOCHS = 200
# what two cores of a CPU do in about ten minutes: images of 32×32 through a ResNet-18, and through an MLP
_CPU_IMAGES = {"resnet18": 400_000, "mlp": 5_000_000}
_FEWEST_EPOCHS = 3
_ADAMW = {"lr": 1e-3, "weight_decay": 0.05}


class Facts(NamedTuple):
    """What the rule knows of a training set."""

    class_sizes: tuple[int, ...]
    shape: Shape
    """(channels, height, width) of pictures, (columns,) of rows"""

    @property
    def samples(self) -> int:
        """N."""
        return sum(self.class_sizes)

    @property
    def num_classes(self) -> int:
        """k."""
        return len(self.class_sizes)


def facts_of(data: str | Source, held_out: int = 0, *, calibration_share: float = 0.0) -> Facts:
    """Of an opened data set, whose training labels are read; or of a name, as published, in even classes.

    Without a hold-out, what is set aside for calibration is not trained on either.
    """
    labels = data.train_labels if isinstance(data, Source) else None  # once: it may read the images too
    total = len(labels) if labels is not None else describe(str(data)).train_size
    if not 0 <= held_out < total:
        raise UserError(f"holdout must be below {total}, the number of training images, got {held_out}")
    held_out = held_out or calibration_count(total, calibration_share)
    if isinstance(data, Source) and labels is not None:
        if total - held_out < max(2, data.num_classes):
            raise UserError(
                f"holdout {held_out} leaves {total - held_out} of {total} training samples for {data.num_classes} "
                "classes: hold out fewer"
            )
        kept = labels.bincount(minlength=data.num_classes).double() * (1 - held_out / total)
        return Facts(tuple(kept.round().int().clamp_min(1).tolist()), data.sample_shape)
    info = describe(str(data))
    return Facts(((info.train_size - held_out) // info.classes,) * info.classes, info.image_shape)


def rule(facts: Facts, objective: str = "auto", *, on_gpu: bool, **given: Any) -> Values:
    """Every setting that the rule decides, with its reason. ``given`` are settings that a person has fixed.

    Later values follow from earlier ones: a given batch size decides the objective, the epochs and the averaging.
    """
    rows = len(facts.shape) == 1
    choices = _Choices(given)
    return _for_rows(choices, facts, objective) if rows else _for_pictures(choices, facts, objective, on_gpu)


class _Choices:
    """The values that were decided so far. What a person has given comes first."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.values: Values = {}

    def decide(self, name: str, value: Any, why: str) -> Any:
        own = name in self.given
        self.values[name] = Given(self.given[name] if own else value, "given" if own else f"the rule: {why}")
        return self.values[name].value

    def objective(self, asked: str, facts: Facts, batch: int, dim: int) -> str:
        """The one that was asked for, or the rule's."""
        if asked != "auto":
            self.values["objective"] = Given(asked, "given")
            return asked
        chosen = choose_objective(facts.class_sizes, batch, dim)
        self.values["objective"] = Given(chosen, "the rule: exact where a batch holds, on average, enough of a class")
        return chosen

    def optimised(self, values: Mapping[str, Any]) -> None:
        """Values that were searched for SGD; AdamW has its own rate and decay."""
        adamw = self.decide("optimizer", "sgd", "docs/tuning.md") == "adamw"
        for name, value in values.items():
            if adamw and name in _ADAMW:
                self.decide(name, _ADAMW[name], "usual for AdamW, not searched")
            else:
                self.decide(name, value, "docs/defaults.md")


def _for_pictures(choices: _Choices, facts: Facts, objective: str, on_gpu: bool) -> Values:
    decide, k = choices.decide, facts.num_classes
    model, size = _network(facts.shape)
    model = decide("model", model, "a ResNet-18 from 16 pixels on, an MLP below")
    size = decide("image_size", size, "32, or 64 for pictures above 64 pixels: a step costs its square")
    if model == "mlp":
        decide("augmentation", "none", "too few pixels to move")
    else:
        if max(facts.shape[1:]) > size:
            decide("augmentation", "resized-crop", "the picture is made smaller anyway")
            decide("least_area", 0.5, "half of a picture still shows its class")
        else:
            decide("augmentation", "crop", "small shifts change no class that we know of")
            # a border of an eighth, or as much as a smaller picture needs
            border = max(size // 8, -(-(size - min(facts.shape[1:])) // 2))
            decide("crop_padding", border, "an eighth of the picture, or what a small one needs")
        decide("flip", False, "a mirrored picture may show another class: ask for it with flip=true")
    dim = decide("dim", default_dim(k), "13 for each class up to 128, at least 5 for each, at most 512")
    most = 1000 if k <= 50 else 2000
    batch = decide("batch_size", max(32, min(most, facts.samples // _STEPS_IN_EPOCH)), "1000, or 2000 above 50 classes")
    objective = choices.objective(objective, facts, batch, dim)
    choices.optimised(OBJECTIVES[objective].rule(k, dim, batch))
    epochs = decide("epochs", _epochs(facts.samples, model, size, on_gpu), "200 on a GPU; on a CPU about ten minutes")
    decide("momentum", 0.9, "docs/tuning.md")
    decide("nesterov", True, "docs/tuning.md")
    decide("schedule", "linear", "docs/tuning.md")
    steps = epochs * max(1, facts.samples // batch)
    decide(
        "average", round(min(0.999, max(0.0, 1 - 10 / steps)), 4), "about the last tenth of the run, 1000 steps at most"
    )
    decide("decay_all", False, "decay on BatchNorm and biases is most of V-MCR²'s sensitivity to it")
    return choices.values


def _for_rows(choices: _Choices, facts: Facts, objective: str) -> Values:
    """The estimators' settings, which were searched on tables (docs/sklearn.md)."""
    decide, k = choices.decide, facts.num_classes
    if decide("model", "mlp", "rows of numbers") == "mlp":
        decide("hidden", (256, 256), "the estimators' network")
    decide("input_noise", INPUT_NOISE, "docs/sklearn.md")
    dim = decide("dim", default_dim(k), "13 for each class up to 128, at least 5 for each, at most 512")
    batch = decide("batch_size", even_batch(facts.samples, ROWS_BATCH), "even batches of at most 500")
    objective = choices.objective(objective, facts, batch, dim)
    choices.optimised(rows_rule(objective, k, dim, facts.samples, batch))
    decide("decay_all", False, "as the estimators do")
    return choices.values


def _network(shape: Shape) -> tuple[str, int]:
    """The network's name, and the size of the square pictures that it sees."""
    low, high = sorted(shape[1:])
    if high < _SMALL:
        return "mlp", high
    size = 32 if high <= 64 else 64
    if not low < size < high:
        return "resnet18", size
    # one side inside the square and the other outside: a larger square to pad to, or a smaller one to resize to
    if high <= 64:
        return "resnet18", high
    if low < _SMALL:
        raise UserError(
            f"pictures of {shape[1]}×{shape[2]} are too narrow for the rule: make squares of them; for a folder, "
            "--image-size N does it"
        )
    return "resnet18", low


def _epochs(samples: int, model: str, size: int, on_gpu: bool) -> int:
    if on_gpu:
        return _EPOCHS
    images = _CPU_IMAGES["mlp"] if model == "mlp" else _CPU_IMAGES["resnet18"] * 32**2 // size**2
    return max(_FEWEST_EPOCHS, min(_EPOCHS, images // max(1, samples)))

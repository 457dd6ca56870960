"""Everything that decides a run, in one flat and immutable record."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .._shared import UserError
from ._texts import nearest, parse, wanted
from ._values import of_kind

Objective = Literal["vmcr2", "mcr2", "ce"]
OBJECTIVES: tuple[str, ...] = typing.get_args(Objective)
Augmentation = Literal["none", "crop", "flip", "resized-crop"]


@dataclass(frozen=True)
class Config:
    """One run. A later entry of the same name in ``--set key=value`` wins."""

    recipe: str = ""
    """The recipe it came from; empty for one's own."""

    data: str = "digits"
    """Name of the data set."""
    data_path: str | None = None
    """Where it lies: a packed file, or a folder. None looks in the usual places."""
    holdout: int = 0
    """Training images set aside to choose by, stratified, the same for every seed; the test set is then not read."""
    augmentation: Augmentation = "none"
    """"crop" (pad, random crop, flip), "flip" (resize, flip), "resized-crop" (of random area and shape), "none"."""
    crop_padding: int = 8
    """Black border that "crop" adds before cropping."""
    flip: bool = True
    """Whether the augmentation mirrors every other image."""
    image_size: int = 8
    """Height and width that the network sees."""
    mean: tuple[float, ...] = ()
    """Per channel, subtracted; empty for none, as in Table 2 of the paper."""
    std: tuple[float, ...] = ()
    """Per channel, divided by."""

    model: str = "mlp"
    """"mlp", "mnist-cnn", "resnet18" or "preact18"."""
    hidden: tuple[int, ...] = (256, 256)
    """Layers of the MLP."""
    batch_norm: bool = True
    """Whether they have BatchNorm: without it a rate-reduction objective starts, and may stay, collapsed."""
    dim: int = 128
    """d, the features' dimension."""

    objective: Objective = "vmcr2"
    """"vmcr2", "mcr2" (exact) or "ce" (cross-entropy on a linear layer over the normalised feature)."""
    eps_sq: float = 0.5
    """ε², the squared precision."""
    loss_scale: float = 1.0
    """Factor of the whole loss before it is differentiated for the network."""
    mu: float | None = None
    """The paper's μ; or"""
    weight: float | None = 20.0
    """μm/2, the weight of the class-normalised mismatch. V-MCR² needs one of the two; setting one unsets the other."""
    batch_expansion: float = 0.1
    """β, the weight of the batch's exact rate. 0 is the paper's Eq. 7."""
    nu_dictionary: float = 5.0
    """ν_Γ."""
    nu_codes: float = 5.0
    """ν_A."""
    mu_end: float | None = None
    """Where μ ends, along a straight line over the run; None keeps it."""
    weight_end: float | None = None
    """Where the weight ends."""
    batch_expansion_end: float | None = None
    """Where β ends."""
    nu_dictionary_end: float | None = None
    """Where ν_Γ ends."""
    nu_codes_end: float | None = None
    """Where ν_A ends."""
    debias: bool = False
    """Leave the pairs of a sample with itself out of M."""
    focus: float = 0.0
    """φ, by which samples far from their class's atoms are pulled harder; 0 is Eq. 7."""
    atoms_per_class: int = 20
    """q/k."""
    memory: int = 0
    """Rows of past features that exact MCR² takes its class statistics from; 0 for the batch alone."""
    codes: Literal["free", "simplex", "rescaled", "flat"] = "free"
    """The set the codes are kept in: not negative, with a fixed trace too, or that trace evenly on own atoms."""
    codes_trace: float = 1.0
    """That trace."""
    keep_trace: bool = False
    """Latching leaves the trace of free codes where the steps have brought it."""
    multiplier_rate: float = 0.0
    """ρ, the step of an augmented Lagrangian's multipliers; 0 is the plain penalty."""
    cap_codes_step: bool = True
    """Keep the codes' step out of divergence."""
    latch_every: int = 50
    """Latch anew on the whole training set after so many …"""
    latch_unit: Literal["epochs", "steps"] = "epochs"
    """… of these. It is always done once before the first step."""
    components: int = 0
    """Dimensions per class of the nearest-subspace classifier; 0 is ⌊d/k⌋."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    """The network's optimiser."""
    lr: float = 0.1
    """Its learning rate, at the schedule's top."""
    momentum: float = 0.9
    """Of SGD."""
    nesterov: bool = False
    """Of SGD."""
    weight_decay: float = 0.0
    """On every parameter."""
    schedule: Literal["constant", "step", "cosine", "linear"] = "constant"
    """"step" divides by 10 at each of ``milestones``; "cosine" and "linear" fall to 0."""
    milestones: tuple[float, ...] = (0.5, 0.75)
    """Parts of the run after which "step" divides."""
    decay_power: float = 1.0
    """Power of the cosine or line: above 1 the rate falls earlier and rests longer at the end."""
    warmup_epochs: float = 0.0
    """Epochs over which the rate rises from 0 in a straight line, before the schedule."""
    sharpness: float = 0.0
    """ρ of sharpness-aware steps, which take their gradient so far uphill and two passes each; 0 for plain ones."""
    dropout_until: float = 1.0
    """Part of the run after which the network's dropout rests: features are measured without it, and without the
    spread that it makes."""
    fresh_statistics: bool = False
    """Make BatchNorm's statistics anew, by a pass over augmented training images, wherever the dictionary is latched or
    the run is measured: the running ones lag behind weights that move fast. ``average`` measures by fresh ones."""
    average: float = 0.0
    """Decay per step of a running mean of the network's weights (and cross-entropy's head), by which a run is measured
    and which it keeps; 0 for none. BatchNorm's statistics are made anew for it."""

    epochs: int = 100
    """Passes over the training set."""
    batch_size: int = 1000
    """m. What is left over in a pass is not used in it (the next is shuffled anew); a smaller set is one batch."""
    seed: int = 0
    """Of the network's start, the order of samples, augmentation and dropout."""
    device: str = "auto"
    """"cpu", "cuda", or "auto": cuda where there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the network; objectives stay in float32. "auto" is bfloat16 on a GPU, float32 elsewhere."""
    engine: Literal["auto", "eager", "captured"] = "auto"
    """"captured" replays the step as one CUDA graph; "auto" does so on a GPU, if it can."""
    compile: Literal["auto", "yes", "no"] = "auto"
    """torch.compile of the network; "auto" where the run is long enough to win the compile time back."""
    log_every: int = 0
    """Epochs between lines of metrics. 0: about 100 lines over the run."""
    eval_every: int = 0
    """Epochs between measurements on the whole training set and the hold-out. 0: at the end only, and with a hold-out
    ten times on the way."""
    checkpoint_seconds: float = 20.0
    """Least time between checkpoints; 0 makes one after every epoch."""

    def __post_init__(self) -> None:
        for name, kind in FIELDS.items():
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, of_kind(kind, value))  # frozen for everybody else
            except (TypeError, OverflowError):
                raise UserError(f"{name} takes {wanted(kind)}, got {value!r}") from None
        _check(self)

    def replace(self, **changes: Any) -> Config:
        """The same with other values; unknown names are a :class:`UserError` that offers the nearest."""
        for name in changes:
            if name not in FIELDS:
                raise UserError(f"there is no setting {name!r}{nearest(name, FIELDS)}")
        for name, other in (("mu", "weight"), ("weight", "mu")):
            if changes.get(name) is not None:
                changes.setdefault(other, None)
        return dataclasses.replace(self, **changes)

    def with_settings(self, settings: list[str]) -> Config:
        """The same after ``key=value`` texts, read by the type of the setting; all must act with the objective."""
        changes: dict[str, Any] = {}
        for text in settings:
            name, equals, value = text.partition("=")
            if not equals:
                raise UserError(f"--set takes key=value, got {text!r}")
            if name not in FIELDS:
                raise UserError(f"there is no setting {name!r}{nearest(name, FIELDS)}")
            changes[name] = _read(name, value)
        if self.recipe and changes.get("objective", self.objective) != self.objective:
            raise UserError(f"the recipe {self.recipe} is for {self.objective}: choose another by --objective")
        config = self.replace(**changes)
        config.check_acting(changes)
        return config

    def check_acting(self, names: Iterable[str]) -> None:
        """What somebody has set for this run must do something in it."""
        for name in names:
            if name in ACTS_WITH and ACTS_WITH[name] != self.objective:
                raise UserError(_idle(name, self))

    def to_json(self) -> str:
        """As ``config.json`` holds it."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Back from ``config.json``."""
        try:
            return cls(**json.loads(text))
        except (TypeError, UserError, json.JSONDecodeError) as error:
            raise UserError(f"config.json is not one of this version of vmcr2: {error}") from error


FIELDS: dict[str, Any] = typing.get_type_hints(Config)

# settings of one objective; the others act with all three (eps_sq with cross-entropy too: ΔR is measured by it)
_OF_VMCR2 = (
    *("mu", "weight", "batch_expansion", "nu_dictionary", "nu_codes"),
    *("mu_end", "weight_end", "batch_expansion_end", "nu_dictionary_end", "nu_codes_end"),
    *("debias", "focus", "atoms_per_class", "codes", "codes_trace", "keep_trace", "multiplier_rate", "cap_codes_step"),
    *("latch_every", "latch_unit"),
)
ACTS_WITH = {"memory": "mcr2"} | dict.fromkeys(_OF_VMCR2, "vmcr2")


def _idle(name: str, config: Config) -> str:
    return f"{name} acts with {ACTS_WITH[name]} only, and the objective is {config.objective}: leave it out"


def _read(name: str, text: str) -> Any:
    kind = FIELDS[name]
    try:
        return parse(kind, text.strip())
    except ValueError:
        raise UserError(f"{name} takes {wanted(kind)}, got {text!r}") from None


_POSITIVE = ("eps_sq", "loss_scale", "lr", "decay_power", "mu", "weight", "mu_end", "weight_end", "codes_trace")
_NOT_NEGATIVE = (
    "batch_expansion",
    "nu_dictionary",
    "nu_codes",
    "batch_expansion_end",
    "nu_dictionary_end",
    "nu_codes_end",
    "multiplier_rate",
    "focus",
    "momentum",
    "weight_decay",
    "warmup_epochs",
    "average",
    "sharpness",
    "checkpoint_seconds",
)
_COUNTS = {"dim": 1, "atoms_per_class": 1, "latch_every": 1, "epochs": 1, "batch_size": 1, "image_size": 1}
_FROM_ZERO = {"holdout": 0, "crop_padding": 0, "memory": 0, "components": 0, "log_every": 0, "eval_every": 0, "seed": 0}


def _check(config: Config) -> None:
    for names, strict in ((_POSITIVE, True), (_NOT_NEGATIVE, False)):
        for name in names:
            value = getattr(config, name)
            if value is not None and (not math.isfinite(value) or value < 0 or (strict and value == 0)):
                raise UserError(f"{name} must be {'above' if strict else 'at least'} 0, got {value!r}")
    for name, smallest in (_COUNTS | _FROM_ZERO).items():
        if getattr(config, name) < smallest:
            raise UserError(f"{name} must be at least {smallest}, got {getattr(config, name)!r}")
    for name, kind in FIELDS.items():
        if typing.get_origin(kind) is Literal and getattr(config, name) not in typing.get_args(kind):
            raise UserError(f"{name} takes {wanted(kind)}, got {getattr(config, name)!r}")
    for wrong, message in _contradictions(config):
        if wrong:
            raise UserError(message)


def _contradictions(config: Config) -> list[tuple[bool, str]]:
    """What is wrong between settings, or with one in a way of its own."""
    parts = config.milestones
    return [
        (
            config.objective == "vmcr2" and (config.mu is None) == (config.weight is None),
            "V-MCR² takes mu or weight (weight = μm/2), one of them",
        ),
        (config.mu_end is not None and config.mu is None, "mu_end needs mu to start from"),
        (config.weight_end is not None and config.weight is None, "weight_end needs weight to start from"),
        (config.memory > 0 and config.objective != ACTS_WITH["memory"], _idle("memory", config)),
        (
            0 < config.memory < config.batch_size,
            f"memory must hold a whole batch: 0, or at least batch_size {config.batch_size}, got {config.memory!r}",
        ),
        (config.components > config.dim, f"components must be at most dim {config.dim}, got {config.components!r}"),
        (config.momentum >= 1, f"momentum must be below 1, got {config.momentum!r}"),
        (not 0 <= config.dropout_until <= 1, f"dropout_until must be in [0, 1], got {config.dropout_until!r}"),
        (config.average >= 1, f"average must be below 1, got {config.average!r}"),
        (config.nesterov and config.momentum == 0, "nesterov needs momentum above 0"),
        (
            not all(0 < part <= 1 for part in parts),
            f"milestones are parts of the run, between 0 and 1, got {parts!r}",
        ),
        (config.seed >= 2**63, f"seed must be below 2**63, got {config.seed!r}"),
        (len(config.mean) != len(config.std), "mean and std go together, one number per channel each"),
        (not all(map(math.isfinite, config.mean)), f"mean must be finite, got {config.mean!r}"),
        (
            not all(math.isfinite(part) and part > 0 for part in config.std),
            f"std must be finite and above 0, got {config.std!r}",
        ),
    ]

"""What was tried: named lists of runs. A run is known by its settings, so a list can be extended and run again.

Everything starts from the recipes that read the paper literally, which do not change, and says what is other: what a
run was must not depend on what the recipes have become since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vmcr2.sweep import Point
from vmcr2.train import Config, recipe

HOLDOUT = 5000


@dataclass(frozen=True)
class Try:
    """A run: a configuration, what it is called in its study, and the variant of the code it is made with, if any."""

    config: Config
    called: str
    variant: str = ""

    @property
    def id(self) -> str:
        """As in a sweep, with the variant's name behind it."""
        return Point(self.config).id + (f"-{self.variant}" if self.variant else "")


def _tries(base: Config, *settings: dict[str, Any], variant: str = "") -> list[Try]:
    """One run for each dictionary of changes."""
    made = []
    for changes in settings:
        called = " ".join(f"{name}={value}" for name, value in changes.items()) or "the start"
        made.append(Try(base.replace(**changes), called, variant))
    return made


def _base(name: str, **settings: Any) -> Config:
    """A literal recipe with other settings, and few lines of metrics: side by side on a GPU, a hundred cost seconds."""
    return recipe(f"{name}-paper", **({"holdout": HOLDOUT, "eval_every": 100, "log_every": 20} | settings))


_FALLING = {"schedule": "cosine", "nesterov": True}
_GENTLE: dict[str, Any] = _FALLING | {"loss_scale": 0.05, "weight_decay": 5e-4}
_PULLING = _GENTLE | {"weight": 20.0, "debias": True, "cap_codes_step": True}

START = _base("cifar100-vmcr2", epochs=200, lr=0.3, batch_expansion=0.1, **_PULLING)
"""FINDINGS §4b, row 5, with the paper's ν, atoms and latching: where the search began."""

SHORT = START.replace(epochs=100)

CE = _base("cifar100-ce", epochs=200, lr=1.0, **_FALLING)
MCR2 = _base("cifar100-mcr2", epochs=100)
MNIST = _base("mnist-vmcr2", epochs=100, lr=0.1, batch_expansion=0.3, **_PULLING)
MNIST_MCR2 = _base("mnist-mcr2", epochs=100, lr=0.01, **_FALLING)
MNIST_CE = _base("mnist-ce", epochs=100, lr=0.1, **_FALLING)


def _flat_for_mnist() -> list[dict[str, Any]]:
    """Less pull or more push than on digits, where trace 8 and β 0.3 were best: MNIST's network spreads less."""
    forces = ((2.0, 0.3), (4.0, 0.3), (4.0, 0.6), (4.0, 1.0))
    return [
        {"codes": "flat", "atoms_per_class": 12, "codes_trace": trace, "batch_expansion": beta, "warmup_epochs": 5.0}
        for trace, beta in forces
    ]


def studies() -> dict[str, list[Try]]:
    """All, by name."""
    found: dict[str, list[Try]] = {}
    # the scale-free network's learning rate and weight decay, and the loss's scale beside them
    found["rates"] = _tries(
        START,
        *({"lr": lr, "weight_decay": decay} for lr in (0.1, 0.3, 1.0) for decay in (5e-4, 2e-3, 5e-3)),
        *({"loss_scale": scale} for scale in (0.01, 0.2)),
        {"warmup_epochs": 10.0},
        {"lr": 0.3, "weight_decay": 5e-3, "loss_scale": 0.01},
    )
    found["forces"] = _tries(
        START,
        *({"batch_expansion": beta} for beta in (0.0, 0.03, 0.05, 0.2)),
        {"batch_expansion": 0.1, "batch_expansion_end": 0.3},
        {"batch_expansion": 0.1, "batch_expansion_end": 0.03},
        *({"weight": weight} for weight in (10.0, 40.0)),
        {"weight": 20.0, "weight_end": 60.0},
        {"weight": 20.0, "weight_end": 7.0},
    )
    found["rest"] = _tries(
        START,
        {"decay_power": 1.5},
        {"decay_power": 2.0},
        {"schedule": "linear"},
        {"average": 0.998},
        {"average": 0.998, "schedule": "constant", "lr": 0.1},
        {"momentum": 0.95},
    )
    found["lagrangian"] = _tries(
        START,
        {"multiplier_rate": 0.02},
        {"multiplier_rate": 0.02, "batch_expansion": 0.0},
        {"multiplier_rate": 0.1, "batch_expansion": 0.0},
        *({"multiplier_rate": rate} for rate in (0.002, 0.005)),
    )
    # shorter runs: levers that were small in earlier, uncontrolled tries
    found["details"] = _tries(
        SHORT,
        {},
        {"debias": False},
        *({"atoms_per_class": atoms} for atoms in (3, 5, 20)),
        {"nu_dictionary": 1.0, "nu_codes": 1.0},
        {"nu_dictionary": 0.0},
        {"latch_every": 10},
        {"latch_every": 1000},
        {"keep_trace": True},
        {"keep_trace": True, "latch_every": 5},
        {"augmentation": "none"},
        {"crop_padding": 4},
    )
    # what the trace of the codes does, and what the attraction alone does: tests of the explanation
    found["why"] = [
        *_tries(SHORT, {"codes": "simplex"}, {"codes": "rescaled"}),
        *_tries(SHORT, *({"codes": "rescaled", "codes_trace": trace} for trace in (2.0, 4.0, 8.0, 16.0))),
        *_tries(SHORT, {"codes": "rescaled", "weight": 160.0}),
        *_tries(SHORT, {"nu_dictionary": 0.0, "nu_codes": 0.0, "latch_every": 2}),
        *_tries(SHORT, {}, {"codes": "rescaled", "codes_trace": 8.0}, variant="attract"),
        *_tries(SHORT, {"batch_expansion": 0.0}),
    ]
    found["ce"] = _tries(
        CE, *({"lr": lr, "weight_decay": decay} for lr in (0.3, 1.0, 2.0) for decay in (5e-4, 1e-3, 2e-3))
    )
    tuned = MCR2.replace(lr=0.3, **_GENTLE)
    found["mcr2"] = [
        *_tries(MCR2, *({"seed": seed} for seed in range(5))),
        *_tries(tuned, {}, {"memory": 20000}, {"memory": 20000, "lr": 0.1}, {"memory": 10000}),
        *_tries(tuned, {"memory": 20000, "lr": 0.1, "epochs": 400}),
    ]
    found["mnist"] = [
        *_tries(
            MNIST,
            {},
            {"lr": 0.03},
            {"lr": 0.3},
            {"loss_scale": 0.2},
            {"loss_scale": 0.01},
            {"weight_decay": 2e-3},
            {"weight_decay": 0.0},
            {"batch_expansion": 0.1},
            {"batch_expansion": 1.0},
            {"weight": 60.0},
            {"augmentation": "none"},
        ),
        *_tries(MNIST_MCR2, {}, {"lr": 0.003}, {"lr": 0.03, "loss_scale": 0.1}, {"lr": 0.1, "loss_scale": 0.1}),
        *_tries(MNIST_CE, {}, {"lr": 0.3}, {"lr": 0.1, "weight_decay": 2e-3}),
    ]
    # without the paper's transforms, of which a mirrored digit is another digit: the appendix says both
    still = MNIST.replace(augmentation="none", weight_decay=0.0, epochs=300, eval_every=150)
    found["mnist-still"] = [
        *_tries(still, {}, {"lr": 0.3}, {"lr": 0.3, "weight": 60.0}, {"lr": 0.3, "weight_decay": 5e-4}),
        *_tries(MNIST_MCR2.replace(augmentation="none"), {"lr": 0.003}, {"lr": 0.003, "weight_decay": 0.0}),
        *_tries(MNIST_CE.replace(augmentation="none"), {}),
    ]
    # few long runs: products of rate and decay around the best short ones, with the β that was best
    long = START.replace(epochs=2000, batch_expansion=0.05, eval_every=200)
    found["long"] = _tries(
        long,
        {"lr": 1.0},
        {},
        {"weight_decay": 1e-3},
        {"lr": 0.1, "weight_decay": 2e-3, "schedule": "linear"},
    )
    found["ce-long"] = _tries(CE, {"lr": 2.0, "epochs": 600}, {"lr": 2.0, "weight_decay": 3e-4})
    # what the weights' mean does for cross-entropy, as it did much for V-MCR² in long runs
    found["ce-average"] = _tries(
        CE,
        *({"lr": 2.0, "weight_decay": decay, "average": 0.999} for decay in (5e-4, 1e-3)),
        *({"lr": 2.0, "weight_decay": decay, "average": 0.999, "epochs": 600} for decay in (5e-4, 1e-3)),
        {"lr": 0.5, "weight_decay": 3e-3, "average": 0.999, "schedule": "linear", "epochs": 600},
        # around the best of these
        *({"lr": lr, "weight_decay": 5e-4, "average": 0.999, "schedule": "linear"} for lr in (1.0, 2.0)),
        {"lr": 1.0, "weight_decay": 7e-4, "average": 0.999, "schedule": "linear", "epochs": 600},
        {"lr": 2.0, "weight_decay": 7e-4, "average": 0.999, "epochs": 400},
        {"lr": 0.5, "weight_decay": 5e-4, "average": 0.999, "schedule": "linear"},
        {"lr": 1.0, "weight_decay": 3e-4, "average": 0.999, "schedule": "linear"},
        {"lr": 1.0, "weight_decay": 5e-4, "average": 0.999, "schedule": "linear", "epochs": 400},
    )
    # the same rate all along, measured by averaged weights: how good each rate and decay can get, and how fast
    constant = START.replace(schedule="constant", average=0.998, epochs=400, eval_every=50)
    found["constant"] = _tries(
        constant,
        *({"lr": lr, "weight_decay": decay} for lr, decay in ((0.1, 5e-4), (0.3, 5e-4), (0.3, 1e-3), (0.1, 2e-3))),
        {"lr": 0.03, "weight_decay": 2e-3},
    )
    # samples weighted by their distance, for which more weight decay may be bearable; R at carried moments
    more = {"weight_decay": 1e-3}
    both = more | {"batch_expansion": 0.05}
    found["focus"] = [
        *_tries(START, *({"focus": 3.0} | other for other in ({}, more, both))),
        *_tries(START, {"focus": 10.0}, {"focus": 10.0} | more, more),
        *_tries(START, {}, variant="steady"),
    ]
    # even codes that do not move: on digits they do what free ones do, and better
    even: dict[str, Any] = {"codes": "flat", "codes_trace": 8.0, "atoms_per_class": 5}
    found["flat"] = _tries(
        START,
        *(even | other for other in ({}, {"codes_trace": 4.0}, {"codes_trace": 16.0}, {"atoms_per_class": 10})),
        even | {"batch_expansion": 0.05},
        *(even | {"focus": 3.0} | other for other in ({}, more, both)),
    )
    # what was better alone, taken together
    gentle: dict[str, Any] = {"lr": 0.1, "weight_decay": 2e-3, "schedule": "linear", "batch_expansion": 0.05}
    found["together"] = _tries(START, gentle, gentle | {"focus": 3.0}, gentle | even | {"focus": 3.0})
    # with focus and even codes the network learns its images fast, and bears more rate × decay
    keen: dict[str, Any] = even | {"focus": 3.0, "batch_expansion": 0.07}
    found["decay"] = _tries(
        START,
        *(
            keen | {"lr": lr, "weight_decay": decay}
            for lr, decay in ((0.3, 2e-3), (0.3, 4e-3), (1.0, 1e-3), (1.0, 2e-3), (2.0, 5e-4))
        ),
        keen | {"focus": 10.0, "weight_decay": 2e-3},
        keen | {"weight_decay": 2e-3, "schedule": "linear"},
        keen | {"weight_decay": 2e-3, "codes_trace": 16.0},
    )
    # gradients from uphill, where runs learn their own images far better than the others
    calm = keen | {"weight_decay": 2e-3}
    found["sharp"] = [
        *_tries(START, *(calm | {"sharpness": radius} for radius in (0.05, 0.1, 0.02))),
        *_tries(
            START, calm | {"codes_trace": 16.0, "sharpness": 0.05}, keen | {"weight_decay": 1e-3, "sharpness": 0.1}
        ),
        *_tries(CE, *({"lr": 2.0, "sharpness": radius} for radius in (0.05, 0.1))),
        *_tries(START, gentle | {"sharpness": 0.05}),
        *_tries(START.replace(epochs=1000), calm | {"sharpness": 0.2}),
    ]
    # 100 epochs are better latched every 10 than every 50: so are 200?
    found["latch"] = _tries(
        START,
        {"latch_every": 10},
        *(gentle | {"latch_every": every} for every in (10, 3)),
        calm | {"latch_every": 10},
        *(calm | {"latch_every": every, "batch_expansion": 0.1} for every in (10, 3)),
    )
    # the dictionary latched on, and the run measured by, statistics of the weights as they are
    new: dict[str, Any] = {"fresh_statistics": True}
    found["fresh"] = _tries(START, new, gentle | new, calm | new)
    # averaged as cross-entropy is, three times as long: rate, decay, codes, the mean's length
    mean = {"average": 0.999, "schedule": "linear"}
    found["average"] = _tries(
        START.replace(epochs=600, batch_expansion=0.07),
        mean | {"lr": 0.1, "weight_decay": 3e-3},
        mean | {"lr": 0.3, "weight_decay": 1e-3},
        mean | calm,
        mean | {"lr": 0.1, "weight_decay": 5e-3},
        mean | {"lr": 0.1, "weight_decay": 3e-3, "average": 0.9997},
    )
    # five times as long: how much decay is best then
    slow = START.replace(epochs=1000)
    found["longer"] = _tries(
        slow,
        *(keen | {"weight_decay": decay, "batch_expansion": 0.1} for decay in (2e-3, 3e-3)),
        {"focus": 3.0, "weight_decay": 2e-3, "batch_expansion": 0.07},
        keen | {"codes_trace": 16.0, "weight_decay": 3e-3, "batch_expansion": 0.15},
        keen | {"focus": 10.0, "weight_decay": 4e-3, "batch_expansion": 0.1},
    )
    # as long as the paper's
    keener = keen | {"batch_expansion": 0.1}
    slower = gentle | {"batch_expansion": 0.07}
    found["longest"] = _tries(
        long,
        keener | {"weight_decay": 2e-3},
        keener | {"weight_decay": 1.4e-3},
        keener | {"weight_decay": 2e-3, "decay_power": 2.0},
        slower,
        # around the best of these: more decay, with a longer rest or a mean; the mean of many steps in place of a rest
        slower | {"weight_decay": 3e-3, "average": 0.999},
        slower | {"weight_decay": 4e-3, "decay_power": 1.5},
        slower | {"schedule": "constant", "average": 0.9998},
        # around the best of these: without the mean; more push, for ΔR; a longer mean
        slower | {"weight_decay": 3e-3},
        slower | {"weight_decay": 3e-3, "average": 0.999, "batch_expansion": 0.1},
        slower | {"weight_decay": 3e-3, "average": 0.9997},
    )
    # β rising: MNIST's features lie in too few dimensions (R 50 of 70) where β is small, and collapse where it is large
    spread = MNIST.replace(augmentation="none", weight_decay=0.0, epochs=200, eval_every=200)
    found["mnist-spread"] = _tries(
        spread,
        {"batch_expansion": 0.3, "batch_expansion_end": 1.0},
        {"batch_expansion": 0.3, "batch_expansion_end": 3.0},
        {"batch_expansion": 0.6},
        {"batch_expansion": 0.6, "loss_scale": 0.02, "warmup_epochs": 5.0},
        {"batch_expansion": 1.0, "loss_scale": 0.02, "warmup_epochs": 5.0},
        {"batch_expansion": 0.3, "batch_expansion_end": 1.0, "weight_decay": 5e-4},
        *_flat_for_mnist(),
    )
    # the same with dropout off at the end: what the objective sees is then what is measured
    gently: dict[str, Any] = {"batch_expansion": 0.6, "loss_scale": 0.02, "warmup_epochs": 5.0}
    off = {"dropout_until": 0.8}
    found["mnist-rest"] = [
        *_tries(spread, *(gently | {"dropout_until": part} for part in (0.5, 0.8, 0.9))),
        *_tries(spread, gently | off | {"weight_decay": 5e-4}, off | {"lr": 0.3, "weight_decay": 5e-4}),
        *_tries(spread, off | {"codes": "flat", "atoms_per_class": 12, "codes_trace": 4.0, "warmup_epochs": 5.0}),
        *_tries(spread, gently | off | {"augmentation": "crop"}),
        *_tries(
            spread.replace(lr=0.3, weight_decay=5e-4, **off),
            *({"batch_expansion": beta} for beta in (0.2, 0.15)),
            {"batch_expansion": 0.2, "weight_decay": 2e-3},
            {"batch_expansion": 0.2, "weight_decay": 1e-3, "dropout_until": 0.9},
        ),
        *_tries(
            MNIST_MCR2.replace(augmentation="none", epochs=200, eval_every=200, lr=0.003),
            off | {"weight_decay": 0.0},
            off,
        ),
    ]
    return found

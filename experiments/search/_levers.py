"""V-MCR² on CIFAR-100, one lever at a time."""

from __future__ import annotations

from _tries import EVEN, SHORT, START, Try, tries


def levers() -> dict[str, list[Try]]:
    """By name."""
    found: dict[str, list[Try]] = {}
    # the scale-free network's learning rate and weight decay, and the loss's scale beside them
    found["rates"] = tries(
        START,
        *({"lr": lr, "weight_decay": decay} for lr in (0.1, 0.3, 1.0) for decay in (5e-4, 2e-3, 5e-3)),
        *({"loss_scale": scale} for scale in (0.01, 0.2)),
        {"warmup_epochs": 10.0},
        {"lr": 0.3, "weight_decay": 5e-3, "loss_scale": 0.01},
    )
    found["forces"] = tries(
        START,
        *({"batch_expansion": beta} for beta in (0.0, 0.03, 0.05, 0.2)),
        {"batch_expansion": 0.1, "batch_expansion_end": 0.3},
        {"batch_expansion": 0.1, "batch_expansion_end": 0.03},
        *({"weight": weight} for weight in (10.0, 40.0)),
        {"weight": 20.0, "weight_end": 60.0},
        {"weight": 20.0, "weight_end": 7.0},
    )
    found["rest"] = tries(
        START,
        {"decay_power": 1.5},
        {"decay_power": 2.0},
        {"schedule": "linear"},
        {"average": 0.998},
        {"average": 0.998, "schedule": "constant", "lr": 0.1},
        {"momentum": 0.95},
    )
    found["lagrangian"] = tries(
        START,
        {"multiplier_rate": 0.02},
        {"multiplier_rate": 0.02, "batch_expansion": 0.0},
        {"multiplier_rate": 0.1, "batch_expansion": 0.0},
        *({"multiplier_rate": rate} for rate in (0.002, 0.005)),
    )
    # shorter runs: levers that were small in earlier, uncontrolled tries
    found["details"] = tries(
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
        *tries(SHORT, {"codes": "simplex"}, {"codes": "rescaled"}),
        *tries(SHORT, *({"codes": "rescaled", "codes_trace": trace} for trace in (2.0, 4.0, 8.0, 16.0))),
        *tries(SHORT, {"codes": "rescaled", "weight": 160.0}),
        *tries(SHORT, {"nu_dictionary": 0.0, "nu_codes": 0.0, "latch_every": 2}),
        *tries(SHORT, {}, {"codes": "rescaled", "codes_trace": 8.0}, variant="attract"),
        *tries(SHORT, {"batch_expansion": 0.0}),
    ]
    # the same rate all along, measured by averaged weights: how good each rate and decay can get, and how fast
    constant = START.replace(schedule="constant", average=0.998, epochs=400, eval_every=50)
    found["constant"] = tries(
        constant,
        *({"lr": lr, "weight_decay": decay} for lr, decay in ((0.1, 5e-4), (0.3, 5e-4), (0.3, 1e-3), (0.1, 2e-3))),
        {"lr": 0.03, "weight_decay": 2e-3},
    )
    # samples weighted by their distance, for which more weight decay may be bearable; R at carried moments
    more = {"weight_decay": 1e-3}
    both = more | {"batch_expansion": 0.05}
    found["focus"] = [
        *tries(START, *({"focus": 3.0} | other for other in ({}, more, both))),
        *tries(START, {"focus": 10.0}, {"focus": 10.0} | more, more),
        *tries(START, {}, variant="steady"),
    ]
    # even codes that do not move: on digits they do what free ones do, and better
    found["flat"] = tries(
        START,
        *(EVEN | other for other in ({}, {"codes_trace": 4.0}, {"codes_trace": 16.0}, {"atoms_per_class": 10})),
        EVEN | {"batch_expansion": 0.05},
        *(EVEN | {"focus": 3.0} | other for other in ({}, more, both)),
    )
    return found

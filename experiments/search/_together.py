"""CIFAR-100: what was better alone taken together, and for longer; of V-MCR² but for two sharp runs."""

from __future__ import annotations

from typing import Any

from _tries import CE, EVEN, START, Try, tries


def together() -> dict[str, list[Try]]:
    """By name."""
    found: dict[str, list[Try]] = {}
    # what was better alone, taken together
    gentle: dict[str, Any] = {"lr": 0.1, "weight_decay": 2e-3, "schedule": "linear", "batch_expansion": 0.05}
    found["together"] = tries(START, gentle, gentle | {"focus": 3.0}, gentle | EVEN | {"focus": 3.0})
    # with focus and even codes the network learns its images fast, and bears more rate × decay
    keen: dict[str, Any] = EVEN | {"focus": 3.0, "batch_expansion": 0.07}
    found["decay"] = tries(
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
        *tries(START, *(calm | {"sharpness": radius} for radius in (0.05, 0.1, 0.02))),
        *tries(START, calm | {"codes_trace": 16.0, "sharpness": 0.05}, keen | {"weight_decay": 1e-3, "sharpness": 0.1}),
        *tries(CE, *({"lr": 2.0, "sharpness": radius} for radius in (0.05, 0.1))),
        *tries(START, gentle | {"sharpness": 0.05}),
        *tries(START.replace(epochs=1000), calm | {"sharpness": 0.2}),
    ]
    # 100 epochs are better latched every 10 than every 50: so are 200?
    found["latch"] = tries(
        START,
        {"latch_every": 10},
        *(gentle | {"latch_every": every} for every in (10, 3)),
        calm | {"latch_every": 10},
        *(calm | {"latch_every": every, "batch_expansion": 0.1} for every in (10, 3)),
    )
    # the dictionary latched on, and the run measured by, statistics of the weights as they are
    new: dict[str, Any] = {"fresh_statistics": True}
    found["fresh"] = tries(START, new, gentle | new, calm | new)
    # averaged as cross-entropy is, three times as long: rate, decay, codes, the mean's length
    mean = {"average": 0.999, "schedule": "linear"}
    found["average"] = tries(
        START.replace(epochs=600, batch_expansion=0.07),
        mean | {"lr": 0.1, "weight_decay": 3e-3},
        mean | {"lr": 0.3, "weight_decay": 1e-3},
        mean | calm,
        mean | {"lr": 0.1, "weight_decay": 5e-3},
        mean | {"lr": 0.1, "weight_decay": 3e-3, "average": 0.9997},
        # what fits sooner: less decay, a focus with free codes; more push, for ΔR
        mean | {"lr": 0.1, "weight_decay": 2e-3},
        *(mean | {"lr": 0.1, "weight_decay": 3e-3, "focus": focus} for focus in (1.0, 3.0)),
        mean | {"lr": 0.1, "weight_decay": 3e-3, "batch_expansion": 0.1},
    )
    # few long runs: products of rate and decay around the best short ones, with the β that was best
    long = START.replace(epochs=2000, batch_expansion=0.05, eval_every=200)
    found["long"] = tries(
        long,
        {"lr": 1.0},
        {},
        {"weight_decay": 1e-3},
        {"lr": 0.1, "weight_decay": 2e-3, "schedule": "linear"},
    )
    # five times as long: how much decay is best then
    slow = START.replace(epochs=1000)
    found["longer"] = tries(
        slow,
        *(keen | {"weight_decay": decay, "batch_expansion": 0.1} for decay in (2e-3, 3e-3)),
        {"focus": 3.0, "weight_decay": 2e-3, "batch_expansion": 0.07},
        keen | {"codes_trace": 16.0, "weight_decay": 3e-3, "batch_expansion": 0.15},
        keen | {"focus": 10.0, "weight_decay": 4e-3, "batch_expansion": 0.1},
    )
    # as long as the paper's
    keener = keen | {"batch_expansion": 0.1}
    slower = gentle | {"batch_expansion": 0.07}
    found["longest"] = tries(
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
        # what wins on the stand-in: even codes and focus, averaged
        keener | {"weight_decay": 2e-3, "average": 0.999, "schedule": "linear"},
    )
    return found

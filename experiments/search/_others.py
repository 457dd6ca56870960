"""Cross-entropy and exact MCR² on CIFAR-100."""

from __future__ import annotations

from _tries import CE, GENTLE, MCR2, Try, tries


def others() -> dict[str, list[Try]]:
    """By name."""
    found: dict[str, list[Try]] = {}
    found["ce"] = tries(
        CE, *({"lr": lr, "weight_decay": decay} for lr in (0.3, 1.0, 2.0) for decay in (5e-4, 1e-3, 2e-3))
    )
    found["ce-long"] = tries(CE, {"lr": 2.0, "epochs": 600}, {"lr": 2.0, "weight_decay": 3e-4})
    # what the weights' mean does for cross-entropy, as it did much for V-MCR² in long runs
    found["ce-average"] = tries(
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
    tuned = MCR2.replace(lr=0.3, **GENTLE)
    found["mcr2"] = [
        *tries(MCR2, *({"seed": seed} for seed in range(5))),
        *tries(tuned, {}, {"memory": 20000}, {"memory": 20000, "lr": 0.1}, {"memory": 10000}),
        *tries(tuned, {"memory": 20000, "lr": 0.1, "epochs": 400}),
    ]
    # what long runs of V-MCR² live by: averaged weights, a straight line, more decay; and a longer memory
    mean = tuned.replace(memory=20000, lr=0.1, epochs=400, average=0.999, schedule="linear")
    found["mcr2-average"] = tries(
        mean, *({"weight_decay": decay} for decay in (5e-4, 2e-3, 4e-3)), {"memory": 40000}, {"lr": 0.3}
    )
    return found

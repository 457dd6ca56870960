"""MNIST."""

from __future__ import annotations

from typing import Any

from _tries import FALLING, PULLING, Try, base, tries

MNIST = base("mnist-vmcr2", epochs=100, lr=0.1, batch_expansion=0.3, **PULLING)
MNIST_MCR2 = base("mnist-mcr2", epochs=100, lr=0.01, **FALLING)
MNIST_CE = base("mnist-ce", epochs=100, lr=0.1, **FALLING)


def _flat_for_mnist() -> list[dict[str, Any]]:
    """Less pull or more push than on digits, where trace 8 and β 0.3 were best: MNIST's network spreads less."""
    forces = ((2.0, 0.3), (4.0, 0.3), (4.0, 0.6), (4.0, 1.0))
    return [
        {"codes": "flat", "atoms_per_class": 12, "codes_trace": trace, "batch_expansion": beta, "warmup_epochs": 5.0}
        for trace, beta in forces
    ]


def mnist() -> dict[str, list[Try]]:
    """By name."""
    found: dict[str, list[Try]] = {}
    found["mnist"] = [
        *tries(
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
        *tries(MNIST_MCR2, {}, {"lr": 0.003}, {"lr": 0.03, "loss_scale": 0.1}, {"lr": 0.1, "loss_scale": 0.1}),
        *tries(MNIST_CE, {}, {"lr": 0.3}, {"lr": 0.1, "weight_decay": 2e-3}),
    ]
    # without the paper's transforms, of which a mirrored digit is another digit: the appendix says both
    still = MNIST.replace(augmentation="none", weight_decay=0.0, epochs=300, eval_every=150)
    found["mnist-still"] = [
        *tries(still, {}, {"lr": 0.3}, {"lr": 0.3, "weight": 60.0}, {"lr": 0.3, "weight_decay": 5e-4}),
        *tries(MNIST_MCR2.replace(augmentation="none"), {"lr": 0.003}, {"lr": 0.003, "weight_decay": 0.0}),
        *tries(MNIST_CE.replace(augmentation="none"), {}),
    ]
    # β rising: MNIST's features lie in too few dimensions (R 50 of 70) where β is small, and collapse where it is large
    spread = MNIST.replace(augmentation="none", weight_decay=0.0, epochs=200, eval_every=200)
    found["mnist-spread"] = tries(
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
        *tries(spread, *(gently | {"dropout_until": part} for part in (0.5, 0.8, 0.9))),
        *tries(spread, gently | off | {"weight_decay": 5e-4}, off | {"lr": 0.3, "weight_decay": 5e-4}),
        *tries(spread, off | {"codes": "flat", "atoms_per_class": 12, "codes_trace": 4.0, "warmup_epochs": 5.0}),
        *tries(spread, gently | off | {"augmentation": "crop"}),
        *tries(
            spread.replace(lr=0.3, weight_decay=5e-4, **off),
            *({"batch_expansion": beta} for beta in (0.2, 0.15)),
            {"batch_expansion": 0.2, "weight_decay": 2e-3},
            {"batch_expansion": 0.2, "weight_decay": 1e-3, "dropout_until": 0.9},
        ),
        *tries(
            MNIST_MCR2.replace(augmentation="none", epochs=200, eval_every=200, lr=0.003),
            off | {"weight_decay": 0.0},
            off,
        ),
    ]
    return found

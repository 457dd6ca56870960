"""More classes than dimensions: what V-MCR² in blocks makes of 64 classes in 16 dimensions, of which a batch has 16.

Free features, no network: 8 samples of each class around a random direction, one atom per class. Draws the eigenvalues
of T = Σ_j π_j Γ_j Diag(Â_j) Γ_jᵀ and the cosines between atoms of different classes, before and after 2,000 steps.

    python -m experiments.tight_frame        # writes docs/images/block-frame.png; a minute on a CPU
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from matplotlib import pyplot
from matplotlib.figure import Figure
from torch import Tensor, nn

from vmcr2 import VMCR2Loss

from ._drawing import BLUE, GREY, ORANGE, draw_all

CLASSES, DIM, EACH, IN_A_BATCH, STEPS, TRACE = 64, 16, 8, 16, 2000, 4.0
WELCH = math.sqrt((CLASSES - DIM) / (DIM * (CLASSES - 1)))


class Frame(NamedTuple):
    """What the atoms of all classes look like."""

    eigenvalues: Tensor
    """of T, divided by their mean"""
    cosines: Tensor
    """|γ_jᵀγ_l| of every two classes, once each"""


def frame_of(loss: VMCR2Loss) -> Frame:
    """Of the present atoms."""
    atoms = loss.dictionary[:, 0]
    above = torch.ones(CLASSES, CLASSES, dtype=torch.bool).triu(1)
    return Frame(torch.linalg.eigvalsh(loss.running_sum) * DIM / TRACE, (atoms @ atoms.T).abs()[above])


def trained(steps: int = STEPS, seed: int = 0) -> tuple[Frame, Frame]:
    """Before and after."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES * EACH) % CLASSES
    around = torch.randn(CLASSES, DIM, generator=generator)[labels]
    z = nn.Parameter(around + 0.3 * torch.randn(len(labels), DIM, generator=generator))
    loss = VMCR2Loss(CLASSES, DIM, atoms_per_class=1, block=True, codes="flat", codes_trace=TRACE, nu_dictionary=20.0)
    loss.latch(z.detach(), labels)
    before = frame_of(loss)
    optimizer = torch.optim.SGD([z], lr=10.0, momentum=0.9)
    for _ in range(steps):
        classes = torch.randperm(CLASSES, generator=generator)[:IN_A_BATCH]
        rows = (classes.unsqueeze(1) + CLASSES * torch.arange(EACH)).flatten()
        optimizer.zero_grad()
        torch.autograd.backward(loss.surrogate(z[rows], labels[rows]))
        optimizer.step()
    loss.refresh()
    return before, frame_of(loss)


def picture() -> Figure:
    """Two panels, and their figures in words."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for name, colour, frame in zip(("random start", f"after {STEPS} steps"), (GREY, BLUE), trained(), strict=True):
        size = frame.cosines.square().mean().sqrt()
        print(
            f"{name}: eigenvalues {frame.eigenvalues[0]:.3f} to {frame.eigenvalues[-1]:.3f} of the mean, "
            f"cosines {size:.4f} (root mean square), at most {frame.cosines.max():.3f}"
        )
        left.plot(range(1, DIM + 1), frame.eigenvalues.flip(0), color=colour, label=name, markersize=3)
        right.hist(
            frame.cosines.numpy(), bins=25, range=(0, 0.8), histtype="step", color=colour, label=f"{name}: {size:.3f}"
        )
    print(f"Welch's bound {WELCH:.4f}")
    left.set(title=f"Eigenvalues of T: {CLASSES} classes in {DIM} dimensions", xlabel="number", ylim=(0, None))
    left.set_ylabel("of their mean")
    right.axvline(WELCH, color=ORANGE, linewidth=1, marker="", label=f"Welch's bound: {WELCH:.3f}")
    right.set(title="|Cosines| between two classes, root mean square", xlabel="|cosine|", ylabel="pairs")
    for axes in (left, right):
        axes.legend()
    return figure


if __name__ == "__main__":
    draw_all(__doc__, {"block-frame": picture})

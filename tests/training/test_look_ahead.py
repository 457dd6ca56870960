"""The look-ahead to the next batch: what follows stays known where a recording fails."""

from __future__ import annotations

import torch
from torch import Tensor

from vmcr2.objectives import VMCR2Settings
from vmcr2.training._look_ahead import LookAhead

LABELS = torch.arange(24) % 3


def looking() -> LookAhead:
    objective = VMCR2Settings(atoms_per_class=2).build(3, 6, LABELS, 6)
    ahead = LookAhead(objective, LABELS, torch.zeros(6, dtype=torch.int64))
    ahead._early, ahead._keep = True, lambda new: setattr(ahead, "_now", new)  # type: ignore[method-assign]  # as a GPU
    return ahead


def of(ahead: LookAhead) -> Tensor:
    found: Tensor = ahead.take().classes.labels
    return found


def test_a_step_that_could_not_be_recorded_still_looks_at_what_follows() -> None:
    ahead, index = looking(), torch.tensor([0, 3, 6, 9, 12, 1])
    following = torch.tensor([1, 2, 4, 5, 7, 8])
    ahead.expect(following, foreseen=False)
    ahead.prepare(index)
    ahead.start()  # recorded in vain
    ahead.prepare(index)
    assert torch.equal(of(ahead), LABELS[index])
    ahead.start()
    ahead.join()
    ahead.expect(index, foreseen=True)
    ahead.prepare(following)
    assert torch.equal(of(ahead), LABELS[following])


def test_a_step_that_nobody_foresaw_prepares_its_own_batch() -> None:
    ahead = looking()
    for index in (torch.tensor([0, 3, 6, 9, 12, 1]), torch.tensor([1, 2, 4, 5, 7, 8])):
        ahead.prepare(index)
        assert torch.equal(of(ahead), LABELS[index])
        ahead.start()
        ahead.join()

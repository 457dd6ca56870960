"""What each process of the tests does: every case, in one start of the processes. Process 0 writes the results down."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from layers import layer_cases
from ranks import plain_loops
from runs_of_ranks import run_cases
from steps import step_cases

from vmcr2.distributed import leave_together


def work(rank: int, world: int, folder: str) -> None:
    """In a process that ``torch.multiprocessing`` started."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    results = {
        "plain": plain_loops(rank, world),
        "layers": layer_cases(rank, world),
        "steps": step_cases(),
        "runs": run_cases(rank, Path(folder)),
    }
    if rank == 0:
        torch.save(results, Path(folder) / "results.pt")
    leave_together()

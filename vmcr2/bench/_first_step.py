"""The first replayed step of a new process: seconds from `import torch` to its end, with the data ready.

They hold what a person waits for: importing vmcr2, starting CUDA, building the trainer, latching, the first steps and
the capture. The settings are the recipe's, so that its length decides whether cuDNN searches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data import DATASETS
from ..runs import Trainer, recipe
from ._epochs import CE, WITH_RATE, peak_mib, until_replayed, wait
from ._images import labelled, ready_source, shape_of
from ._measure import Say, silent

DATA = "cifar100"
CONTENDERS = (CE, WITH_RATE)
_PATIENCE = 300.0  # seconds: a first step on a new machine took 15
_PROCESS = """
import json, sys, time
import torch
given = json.loads(sys.argv[1])
pixels = torch.randint(0, 256, given.pop("shape"), dtype=torch.uint8)
begun = time.perf_counter()
from vmcr2.bench._first_step import report
report(begun, pixels, **given)
"""


def report(begun: float, pixels: Tensor, data: str, objective: str, device: str) -> None:
    """In the new process: train these images by the recipe to the first replayed step, and print the figures."""
    chosen = torch.device(device)
    source = ready_source(data, {"train": labelled(pixels, DATASETS[data].classes)})
    config = recipe(data, objective=objective, device=device)
    trainer = Trainer(config, source, chosen)
    images = config.optim.epochs * trainer.steps_per_epoch * trainer.batch_size
    loop = trainer.loop(images, say=lambda text: None)
    until_replayed(loop)
    wait(chosen)
    seconds = time.perf_counter() - begun
    print(json.dumps({"seconds": seconds, "captured": loop.engine.captured, "peak_mib": peak_mib(chosen)}))


def in_new_process(objective: str, device: torch.device, images: int | None, caches: Path) -> dict[str, Any]:
    """What :func:`report` says in a process that finds nothing compiled but what is in ``caches``."""
    given = {"data": DATA, "objective": objective, "device": device.type, "shape": shape_of(DATA, images)}
    path = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    command = [sys.executable, "-c", _PROCESS, json.dumps(given)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=True
        ).stdout
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines()
        raise RuntimeError(f"the new process failed: {lines[-1] if lines else error}") from error
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"the new process made no replayed step in {_PATIENCE:.0f} s") from error
    found: dict[str, Any] = json.loads(done.splitlines()[-1])
    return found


def run(device: torch.device, *, images: int | None = None, say: Say = silent) -> list[dict[str, Any]]:
    """Two new processes for each objective: the second one counts, the first one compiles."""
    rows = []
    for title, objective, _ in CONTENDERS:
        say(f"{DATA}, {title}: two new processes to their first replayed step")
        row: dict[str, Any] = {"data": DATA, "contender": title}
        try:
            with tempfile.TemporaryDirectory() as caches:
                first, second = (in_new_process(objective, device, images, Path(caches)) for _ in range(2))
            row |= second | {"seconds_on_a_new_machine": first["seconds"]}
        except RuntimeError as error:
            row["failed"] = str(error)
        rows.append(row)
    return rows

"""The figures of a finished run, recomputed from its weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..data import open_data
from ..training import choose_device, forked_random
from ._folder import RunFolder
from ._trainer import Trainer


def evaluate_run(
    path: Path | str,
    *,
    data_path: str | None = None,
    device: str = "auto",
    note: Callable[[str], None] = warnings.warn,
) -> dict[str, Any]:
    """The figures of a finished run on the test set, recomputed from its weights; writes nothing.

    ``note`` is called with a sentence if the training data are not those of the run.
    """
    folder = RunFolder(Path(path))
    config = folder.read_config()
    folder.read_summary()
    chosen = choose_device(device)
    source = open_data(config.data.name, data_path or config.data.path)
    with forked_random(chosen):
        trainer = Trainer(config, source, chosen)
        trainer.restore(folder, note)
        side = trainer.measure()
        _, result = trainer.measure_unseen(side, source.test(), "test")
    return result | side.figures

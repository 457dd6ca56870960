"""The manifest of a run: versions, hardware, commit, data and the recipe's values, to run it again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from .._version import __version__
from ..data import Source
from ._config import Config
from ._folder import FORMAT
from ._recipes import recipe_values


def manifest(config: Config, device: torch.device, source: Source, set_aside: int) -> dict[str, Any]:
    """What ``manifest.json`` holds. ``set_aside``: how many training samples are not trained on, for calibration."""
    return {
        "format": FORMAT,
        "vmcr2": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "git_commit": git_commit(),
        "command": " ".join(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": config.run.seed,
        # its values now: a later version may change them, and this run is compared with these
        "recipe": recipe_values(config, source),
        "weights_sha256": config.model.weights_sha256,
        "data": {
            "name": source.name,
            "train_checksum": source.train_checksum,  # of what is trained on: the test images are not read for it
            "path": str(source.path) if source.path else None,
            "title": source.title,
            "sample_shape": list(source.sample_shape),
            "class_names": list(source.class_names),
            "notes": list(source.notes),
            "set_aside": set_aside,
        },
    }


def git_commit() -> str | None:
    """The commit of the checkout that this code runs from; None for an installed package."""
    here = Path(__file__).resolve().parent
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()

"""The run folder: what is written where, and never over something that is there."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .._shared import UserError, atomic
from .._version import __version__
from ..data import Source
from ._config import Config

FORMAT = 1
_HALF = ".*.[0-9]*.tmp"  # NAME, and the process that wrote it


class RunFolder:
    """The files of one run, each written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.manifest = path / "manifest.json"
        self.metrics = path / "metrics.jsonl"
        self.summary = path / "summary.json"
        self.model = path / "model.safetensors"
        self.objective = path / "objective.safetensors"
        self.subspaces = path / "subspaces.safetensors"
        self.evaluation = path / "evaluation.safetensors"
        self.checkpoint = path / "checkpoint" / "last.safetensors"

    @property
    def finished(self) -> bool:
        """The summary is written last."""
        return self.summary.exists()

    def create(self, config: Config, manifest: dict[str, Any], *, resume: bool = False) -> None:
        """Make the folder and say what will run. A folder with anything in it is left alone.

        ``config.json`` is written last: with it a folder is a run. To ``resume``, one that a kill has left without it,
        and that holds nothing else, is begun anew.
        """
        if not self._free(resume):
            raise self._taken()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.checkpoint.parent.mkdir(exist_ok=resume)  # the claim: of two that find the folder free, one makes it
            self.remove_halves()
            write_text(self.manifest, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
            self.metrics.touch()
            write_text(self.config, config.to_json())
        except FileExistsError:
            raise self._taken() from None
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _free(self, resume: bool) -> bool:
        """Whether there is nothing, an empty folder, or, to resume, one that was left while it was made."""
        if not self.path.exists():
            return True
        ours = {self.checkpoint.parent, self.manifest, self.metrics} if resume else set()
        return self.path.is_dir() and all(
            part in ours or (resume and part.match(_HALF)) for part in self.path.rglob("*")
        )

    def _taken(self) -> UserError:
        on = ", or --resume to go on with it" if self.config.exists() or self._free(resume=True) else ""
        return UserError(f"{self.path} is already there: choose another --out{on}")

    def read_config(self) -> Config:
        """The configuration of an existing run."""
        if not self.config.exists():
            raise self.no_run()
        self.check_version()
        try:
            text = self.config.read_text()
            json.loads(text)
        except ValueError as error:  # not UTF-8, or not JSON
            raise UserError(f"{self.config} is damaged: {self.path} cannot be used") from error
        return Config.from_json(text)

    def no_run(self) -> UserError:
        """Says what the folder is instead, where that is known."""
        if (self.path / "runs").is_dir():
            return UserError(f"{self.path} is a folder of runs: name one of {self.path}/runs/*")
        return UserError(f"{self.path} is not a run folder: it has no config.json")

    def check_version(self) -> None:
        """A folder of another format is refused before anything is touched."""
        try:
            found = json.loads(self.manifest.read_text())["format"]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self.manifest} is missing or damaged: {self.path} cannot be used") from error
        if found != FORMAT:
            raise UserError(
                f"{self.path} is of run-folder format {found}, this vmcr2 ({__version__}) reads format {FORMAT}: "
                "use the version named in its manifest.json"
            )

    @property
    def data_checksum(self) -> str | None:
        """Of the training data that the run was begun with; None in a folder that does not say."""
        checksum: str | None = (json.loads(self.manifest.read_text()).get("data") or {}).get("train_checksum")
        return checksum

    def remove_halves(self) -> None:
        """Files that a killed process had begun to write: nothing reads them, and they are as large as a checkpoint."""
        for half in self.path.rglob(_HALF):
            half.unlink(missing_ok=True)

    def append(self, record: dict[str, Any]) -> None:
        """One line of metrics."""
        with self.metrics.open("a") as lines:
            lines.write(json.dumps(record) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All whole lines of metrics; a line cut off by a kill is passed over."""
        records = []
        for line in self.metrics.read_text().splitlines() if self.metrics.exists() else []:
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return records

    def keep_metrics(self, last_epoch: int) -> None:
        """Drop the lines of epochs that will be run again."""
        kept = [record for record in self.read_metrics() if record["epoch"] <= last_epoch]
        write_text(self.metrics, "".join(json.dumps(record) + "\n" for record in kept))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """The last thing a run writes."""
        write_text(self.summary, json.dumps(summary, indent=1, ensure_ascii=False) + "\n")

    def read_summary(self) -> dict[str, Any]:
        """The figures of a finished run."""
        if not self.finished:
            raise UserError(f"{self.path} has no summary.json: the run did not finish (--resume goes on with it)")
        try:
            summary: dict[str, Any] = json.loads(self.summary.read_text())
        except ValueError as error:
            raise UserError(f"{self.summary} is damaged: remove it, and --resume writes it anew") from error
        return summary


def default_folder(config: Config) -> Path:
    """``runs/RECIPE-SEED-TIME``, made here and now; with -2, -3 … where another run of the same second has the name."""
    name = f"{config.recipe or f'{config.data}-{config.objective}'}-seed{config.seed}"
    first = path = Path("runs") / f"{name}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    number = 1
    try:
        path.parent.mkdir(exist_ok=True)
        while not _made(path):
            number += 1
            path = first.with_name(f"{first.name}-{number}")
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def _made(path: Path) -> bool:
    """Whether the folder is new, and so nobody else's."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot write to {path}: {error.strerror or error}")


def write_text(path: Path, text: str) -> None:
    """Atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text)


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Atomically, as safetensors."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic(path) as temporary:
        save_file(whole, temporary, metadata)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Back from safetensors; a missing or damaged file is a :class:`UserError`."""
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except Exception as error:
        raise UserError(f"{path} is missing or damaged: {error}") from error
    return tensors


def manifest(config: Config, device: torch.device, source: Source) -> dict[str, Any]:
    """Versions, hardware, commit, seed and data, for whoever wants to run it again."""
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
        "seed": config.seed,
        "data": {
            "name": source.name,
            "train_checksum": source.train_checksum,  # of what is trained on: the test images are not read for it
            "path": str(source.path) if source.path else None,
        },
    }


def git_commit() -> str | None:
    """Of the checkout that this code runs from; None for an installed package."""
    here = Path(__file__).resolve().parent
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()

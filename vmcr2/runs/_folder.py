"""The run folder: what is written where. It never replaces another run or other files."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .._shared import LOCK, UserError, atomic, lock
from .._version import __version__
from ._config import Config

FORMAT = 1
MODEL_TYPE = "vmcr2"
"""What ``config.json`` says in a folder of :meth:`Run.save_pretrained`."""
_HALF = ".*.[0-9]*.tmp"  # NAME, and the process that wrote it
_PATIENCE = 5.0  # seconds: the workers of a killed sweep have ended by then


class RunFolder:
    """The files of one run, each written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.manifest = path / "manifest.json"
        self.metrics = path / "metrics.jsonl"
        self.summary = path / "summary.json"
        self.preparation = path / "preparation.json"
        self.model = path / "model.safetensors"
        self.objective = path / "objective.safetensors"
        self.subspaces = path / "subspaces.safetensors"
        self.evaluation = path / "evaluation.safetensors"
        self.confidence = path / "calibration.safetensors"
        self.kept_samples = path / "kept_samples.safetensors"
        self.checkpoint = path / "checkpoint" / "last.safetensors"
        self.best = path / "checkpoint" / "best.safetensors"

    @property
    def finished(self) -> bool:
        """The summary is written last."""
        return self.summary.exists()

    def held(self) -> AbstractContextManager[None]:
        """One process works in a run folder at a time: two would mix their checkpoints and metrics."""
        return lock(self.path, patience=_PATIENCE)

    def check_free(self, *, resume: bool = False) -> None:
        """A folder that is not empty is a :class:`UserError`, and is left alone."""
        if not self._free(resume):
            raise self._taken()

    def create(
        self,
        config: Config,
        manifest: dict[str, Any],
        *,
        preparation: Mapping[str, Any] | None = None,
        resume: bool = False,
    ) -> None:
        """Write down what will run, in a folder that this process holds. ``preparation`` is a table's.

        ``config.json`` is written last: a folder without it is not a run. With ``resume``, a folder that a killed
        process left before that, and that holds nothing else, is started again.
        """
        self.check_free(resume=resume)
        try:
            self.checkpoint.parent.mkdir(exist_ok=resume)
            self.remove_halves()
            write_text(self.manifest, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
            if preparation is not None:
                write_text(self.preparation, json.dumps(preparation, indent=1, ensure_ascii=False) + "\n")
            self.metrics.touch()
            write_text(self.config, config.to_json())
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def clear(self) -> None:
        """Remove everything except the lock."""
        for part in self.path.iterdir():
            if part.is_dir():
                shutil.rmtree(part)
            elif part.name != LOCK:
                part.unlink()

    def _free(self, resume: bool) -> bool:
        """Whether the folder is missing or empty; to resume, also if a killed process left it before it was a run."""
        if not self.path.exists():
            return True
        ours = {self.checkpoint.parent, self.manifest, self.preparation, self.metrics} if resume else set()
        return self.path.is_dir() and all(
            part in ours or part == self.path / LOCK or (resume and part.match(_HALF)) for part in self.path.rglob("*")
        )

    def _taken(self) -> UserError:
        on = ", or --resume to continue it" if self.config.exists() or self._free(resume=True) else ""
        return UserError(f"{self.path} already exists: choose another --out{on}")

    def read_manifest(self) -> dict[str, Any]:
        """Versions, hardware, data and the recipe's values."""
        manifest: dict[str, Any] = json.loads(self.manifest.read_text())
        return manifest

    def read_config(self) -> Config:
        """The configuration of an existing run."""
        if not self.config.exists() or self.is_pretrained:
            raise self.no_run()
        self.check_version()
        try:
            text = self.config.read_text()
            json.loads(text)
        except ValueError as error:  # not UTF-8, or not JSON
            raise UserError(f"{self.config} is damaged: {self.path} cannot be used") from error
        try:
            return Config.from_json(text)
        except UserError as error:
            version = self.read_manifest().get("vmcr2", __version__)
            other = "" if version == __version__ else f" (vmcr2 {version} wrote it, and this is {__version__})"
            raise UserError(f"{self.path}: {error}{other}") from error

    @property
    def is_pretrained(self) -> bool:
        """Whether it is a published model, not a run folder."""
        if self.manifest.exists() or not self.config.exists():
            return False
        try:
            kept = json.loads(self.config.read_text(encoding="utf-8"))
        except ValueError:
            return False
        return isinstance(kept, dict) and "model_type" in kept

    def no_run(self) -> UserError:
        """The error for a folder that is not a run. It says what the folder is, if that is known."""
        if (self.path / "runs").is_dir():
            return UserError(f"{self.path} is a folder of runs: name one of {self.path}/runs/*")
        if self.is_pretrained:
            return UserError(
                f"{self.path} was written by run.save_pretrained, to predict with: this needs the run's own folder"
            )
        if not self.path.is_dir():
            what = "it is a file" if self.path.exists() else "it does not exist"
            return UserError(f"{self.path} is not a run folder: {what}")
        return UserError(f"{self.path} is not a run folder: it has no config.json")

    def check_version(self) -> None:
        """A folder of another format is refused before anything is touched."""
        try:
            found = self.read_manifest()["format"]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self.manifest} is missing or damaged: {self.path} cannot be used") from error
        if found != FORMAT:
            raise UserError(
                f"{self.path} has run-folder format {found}, but this vmcr2 ({__version__}) reads format {FORMAT}: "
                "use the version named in its manifest.json"
            )

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of classes 0, 1, …; empty if the folder is of an earlier version."""
        return tuple((self.read_manifest().get("data") or {}).get("class_names") or ())

    @property
    def calibrates(self) -> bool | None:
        """Whether training samples were set aside when the run was started; None if the folder does not say."""
        found = (self.read_manifest().get("data") or {}).get("set_aside")
        return None if found is None else found > 0

    @property
    def data_checksum(self) -> str | None:
        """Of the training data that the run was started with; None if the folder does not say."""
        checksum: str | None = (self.read_manifest().get("data") or {}).get("train_checksum")
        return checksum

    def remove_halves(self) -> None:
        """Remove files that a killed process left half written: nothing reads them, and they can be large."""
        for half in self.path.rglob(_HALF):
            half.unlink(missing_ok=True)

    def append(self, record: dict[str, Any]) -> None:
        """One line of metrics."""
        with self.metrics.open("a") as lines:
            lines.write(json.dumps(record) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All whole lines of metrics. A line that a kill cut off is skipped."""
        records = []
        for line in self.metrics.read_text().splitlines() if self.metrics.exists() else []:
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return records

    def keep_metrics(self, last_epoch: int) -> None:
        """Remove the lines of epochs that will be trained again."""
        kept = [record for record in self.read_metrics() if record["epoch"] <= last_epoch]
        write_text(self.metrics, "".join(json.dumps(record) + "\n" for record in kept))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """The last thing a run writes."""
        write_text(self.summary, json.dumps(summary, indent=1, ensure_ascii=False) + "\n")

    def read_summary(self) -> dict[str, Any]:
        """The figures of a finished run."""
        if not self.finished:
            raise UserError(
                f"{self.path} has no summary.json: the run did not finish. `vmcr2 train --resume --out {self.path}` "
                "continues it; if its training broke, that says why"
            )
        try:
            summary: dict[str, Any] = json.loads(self.summary.read_text())
        except ValueError as error:
            raise UserError(f"{self.summary} is damaged: remove it, and --resume writes it again") from error
        return summary


def default_folder(config: Config) -> Path:
    """``runs/RECIPE-SEED-TIME``, created here; with -2, -3 … if another run of the same second has the name."""
    name = re.sub(r"[^\w.+-]+", "_", f"{config.title}-seed{config.run.seed}")  # people's folders have any name
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
    """Create the folder. False if it exists: then it belongs to another run."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot write to {path}: {error.strerror or error}")


def write_text(path: Path, text: str, encoding: str | None = None) -> None:
    """Write a text file atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding=encoding)


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic(path) as temporary:
        save_file(whole, temporary, metadata)


def tensors_under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin with ``prefix``, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file. A missing or damaged one is a :class:`UserError`."""
    return read_tensors_with_metadata(path)[0]


def read_tensors_with_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Through one handle, so that both are of one file, also where another process replaces it meanwhile."""
    with opened_tensors(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


@contextmanager
def opened_tensors(path: Path) -> Iterator[Any]:
    """A safetensors file to read from; a missing or damaged one is a :class:`UserError`."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} is missing or damaged: {error}") from error

"""The run folder: what is written where. It never replaces another run or other files."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from .._shared import LOCK, UserError, lock
from .._version import __version__
from ._config import Config
from ._records import DamagedError, line_of_record, read_lines, read_record, write_record, write_text

FORMAT = 1
MODEL_TYPE = "vmcr2"
"""What ``config.json`` says in a folder of :meth:`Run.save_pretrained`."""
_HALVES = (".*.[0-9]*.tmp", ".tmp??????")
"""NAME with the process that wrote it; what the safetensors library left of vmcr2 before 0.6."""
_TITLE = 50  # letters of up to 4 bytes each: a name has at most 255 bytes
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
        self.checkpoint_before = path / "checkpoint" / "before.safetensors"
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
            write_record(self.manifest, manifest)
            if preparation is not None:
                write_record(self.preparation, preparation)
            self.metrics.touch()
            self.write_config(config)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def write_config(self, config: Config) -> None:
        """The settings that act."""
        write_record(self.config, config.acting())

    def clear(self) -> None:
        """Remove everything except the lock."""
        for part in self.path.iterdir():
            if part.is_dir() and not part.is_symlink():
                shutil.rmtree(part)
            elif part.name != LOCK:
                part.unlink()

    def _free(self, resume: bool) -> bool:
        """Whether the folder is missing or empty; to resume, also if a killed process left it before it was a run."""
        if not self.path.exists():
            return True
        ours = {self.checkpoint.parent, self.manifest, self.preparation, self.metrics} if resume else set()
        return self.path.is_dir() and all(
            part in ours or part == self.path / LOCK or (resume and any(map(part.match, _HALVES)))
            for part in self.path.rglob("*")
        )

    def _taken(self) -> UserError:
        on = ", or --resume to continue it" if self.config.exists() or self._free(resume=True) else ""
        return UserError(f"{self.path} already exists: choose another --out{on}")

    def read_manifest(self) -> dict[str, Any]:
        """Versions, hardware, data and the recipe's values."""
        return read_record(self.manifest)

    def read_config(self) -> Config:
        """The configuration of an existing run."""
        if not self.config.exists() or self.is_pretrained:
            raise self.no_run()
        self.check_files()
        self.check_version()
        try:
            flat = read_record(self.config)
        except DamagedError as error:
            raise UserError(f"{error}: {self.path} cannot be used") from error
        try:
            return Config.from_json(json.dumps(flat))
        except UserError as error:
            version = self.read_manifest().get("vmcr2", __version__)
            other = "" if version == __version__ else f" (vmcr2 {version} wrote it, and this is {__version__})"
            raise UserError(f"{self.path}: {error}{other}") from error

    def check_files(self) -> None:
        """A file that is none, and a link that leads out of the folder, are a :class:`UserError`.

        A folder may come from a stranger. A pipe would be waited for, an endless device read for ever, and what is
        written would go through a link into a file of somebody else.
        """
        own = self.path.resolve()
        for part in (self.path / LOCK, self.checkpoint.parent, *self._files()):
            if part.is_symlink() and not part.resolve().is_relative_to(own):
                raise UserError(f"{part} is a link to {os.readlink(part)}, out of the run folder: copy the file there")
            if part.exists() and not (part.is_dir() if part == self.checkpoint.parent else part.is_file()):
                raise UserError(f"{part} is not a file: {self.path} cannot be used")

    def _files(self) -> Iterator[Path]:
        yield from (path for path in vars(self).values() if path != self.path)
        yield from self.path.glob("summary-*-epochs.json")

    @property
    def is_pretrained(self) -> bool:
        """Whether it is a published model, not a run folder."""
        if self.manifest.exists() or not self.config.exists():
            return False
        try:
            return self.config.is_file() and "model_type" in read_record(self.config)
        except DamagedError:
            with self.config.open("rb") as file:
                return b'"model_type"' in file.read(4096)

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
        except (DamagedError, KeyError) as error:
            raise UserError(f"{self.manifest} is missing or damaged: {self.path} cannot be used") from error
        if found != FORMAT:
            other = str(found)[:20] if str(found).isprintable() else "?"
            raise UserError(
                f"{self.path} has run-folder format {other}, but this vmcr2 ({__version__}) reads format {FORMAT}: "
                "use the version named in its manifest.json"
            )

    @property
    def about_data(self) -> dict[str, Any]:
        """What the manifest says of the data."""
        found = self.read_manifest().get("data")
        return found if isinstance(found, dict) else {}

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of classes 0, 1, …; empty if the folder is of an earlier version."""
        found = self.about_data.get("class_names")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    @property
    def calibrates(self) -> bool | None:
        """Whether training samples were set aside when the run was started; None if the folder does not say."""
        found = self.about_data.get("set_aside")
        return found > 0 if isinstance(found, int) else None

    @property
    def data_checksum(self) -> str | None:
        """Of the training data that the run was started with; None if the folder does not say."""
        found = self.about_data.get("train_checksum")
        return found if isinstance(found, str) else None

    def remove_halves(self) -> None:
        """Remove files that a killed process left half written: nothing reads them, and they can be large."""
        for pattern in _HALVES:
            for half in self.path.rglob(pattern):
                half.unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While a run writes: a full disk, or a folder that is gone or cannot be written to, is one sentence."""
        try:
            yield
        except OSError as error:
            on = (
                "What was saved before is whole: once it can be written to, "
                f"`vmcr2 train --resume --out {self.path}` continues from the last checkpoint"
            )
            if not self.config.exists():
                on = "The run's files are gone: start it again"
            raise UserError(f"cannot write to {self.path}: {error.strerror or error}. {on}") from error

    def append(self, record: dict[str, Any]) -> None:
        """One line of metrics."""
        with self.metrics.open("a", encoding="utf-8") as lines:
            lines.write(line_of_record(record))

    def read_metrics(self) -> list[dict[str, Any]]:
        """All whole lines of metrics. A line that a kill cut off, or that is damaged, is skipped."""
        return read_lines(self.metrics)[0]

    def keep_metrics(self, last_epoch: int) -> int:
        """Remove the lines of epochs that will be trained again, and damaged ones. Returns how many were damaged."""
        records, damaged = read_lines(self.metrics)
        kept = [record for record in records if record["epoch"] <= last_epoch]
        write_text(self.metrics, "".join(map(line_of_record, kept)))
        return damaged

    def write_summary(self, summary: dict[str, Any]) -> None:
        """The last thing a run writes."""
        write_record(self.summary, summary)

    def read_summary(self) -> dict[str, Any]:
        """The figures of a finished run."""
        if not self.finished:
            raise UserError(
                f"{self.path} has no summary.json: the run did not finish. `vmcr2 train --resume --out {self.path}` "
                "continues it; if its training broke, that says why"
            )
        try:
            return read_record(self.summary)
        except DamagedError as error:
            raise UserError(f"{self.summary} is damaged: remove it, and --resume writes it again") from error


def default_folder(config: Config) -> Path:
    """``runs/RECIPE-SEED-TIME``, created here; with -2, -3 … if another run of the same second has the name."""
    name = f"{config.title[:_TITLE]}-seed{config.run.seed}"
    name = re.sub(r"[^\w.+-]+", "_", name).lstrip(".")  # people's folders have any name
    first = path = Path("runs") / f"{name}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    number = 1
    try:
        path.parent.mkdir(exist_ok=True)
        while not _made(path):
            number += 1
            path = first.with_name(f"{first.name}-{number}")
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def _made(path: Path) -> bool:
    """Create the folder. False if it exists: then it belongs to another run."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def unwritable(path: Path, error: OSError) -> UserError:
    """A full disk, a folder that cannot be written to, a name that is too long: one sentence."""
    return UserError(f"cannot write to {path}: {error.strerror or error}")

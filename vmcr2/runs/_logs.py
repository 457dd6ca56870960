"""Logs of other tools, as callbacks: TensorBoard and Weights & Biases. They are written into the run folder."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from .._shared import UserError, did_you_mean
from ._callbacks import Callback
from ._config import Config
from ._records import write_text
from ._run import Run


def log_named(name: str) -> Callback:
    """The log of ``--log NAME``."""
    if name not in _LOGS:
        raise UserError(f"--log takes {' or '.join(_LOGS)}, got {name!r}{did_you_mean(name, list(_LOGS))}")
    return _LOGS[name]()


class TensorBoardLog(Callback):
    """Writes ``RUN/tensorboard``: the lines of metrics by epoch, the settings, the summary. A resumed run continues it.

    To look at it: ``tensorboard --logdir RUN``.
    """

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard", error) from error
        self._new_writer = SummaryWriter
        self._writer: Any = None

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        """Open the log. What it has of epochs that will be trained again is dropped."""
        again = first_epoch + 1 if first_epoch else None
        self._writer = self._new_writer(str(folder / "tensorboard"), purge_step=again)
        self._config = config

    def epoch(self, record: dict[str, Any]) -> None:
        """A point on every curve."""
        for name, value in _numbers(record).items():
            self._writer.add_scalar(name, value, record["epoch"])
        self._writer.flush()  # some hundred times in a run: it costs little, and a kill loses nothing

    def finished(self, run: Run) -> None:
        """The summary, also beside the settings in the table of runs."""
        figures = {f"summary/{name}": value for name, value in _numbers(run.summary).items()}
        settings = {name: value if _plain(value) else str(value) for name, value in self._config.acting().items()}
        self._writer.add_hparams(settings, figures, run_name=".", global_step=run.summary["epochs"])
        self._close()

    def failed(self, error: BaseException) -> None:
        """Close the log."""
        self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WandbLog(Callback):
    """A run of Weights & Biases: the lines of metrics by epoch, the settings, the summary. A resumed run continues it.

    Its files are in ``RUN/wandb``. wandb's environment variables act as usual: with ``WANDB_MODE=offline`` nothing is
    sent, and ``WANDB_PROJECT`` names the project, which else is "vmcr2".
    """

    def __init__(self) -> None:
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb", error) from error
        self._wandb = wandb
        self._run: Any = None

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        """Begin wandb's run, or continue it: its name is kept in the folder."""
        try:
            self._run = self._wandb.init(
                project=os.environ.get("WANDB_PROJECT", "vmcr2"),
                name=os.environ.get("WANDB_NAME", folder.name),
                id=_own_id(folder / "wandb" / "run-id.txt"),
                resume="allow",
                dir=str(folder),
                config=config.acting(),
                settings=self._wandb.Settings(console="off"),  # it would take over the display's lines
            )
        except self._wandb.errors.Error as error:
            text = str(error).strip().rstrip(".")
            raise UserError(f"wandb did not start: {text}; run `wandb login`, or set WANDB_MODE=offline") from error

    def epoch(self, record: dict[str, Any]) -> None:
        """A point on every curve."""
        # committed at once: else wandb would take the last line's figures into the summary, over the run's own
        self._run.log(_numbers(record), step=record["epoch"], commit=True)

    def finished(self, run: Run) -> None:
        """The summary."""
        self._run.summary.update(run.summary)
        self._close(0)

    def failed(self, error: BaseException) -> None:
        """Close wandb's run as one that did not end well."""
        self._close(1)

    def _close(self, code: int) -> None:
        if self._run is not None:
            self._run.finish(exit_code=code)
            self._run = None


_LOGS = {"tensorboard": TensorBoardLog, "wandb": WandbLog}


def _own_id(path: Path) -> str:
    """wandb's name for the run, the same whenever it goes on."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        write_text(path, secrets.token_hex(4) + "\n")
    return path.read_text(encoding="utf-8").strip()


def _numbers(figures: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if isinstance(value, int | float)}


def _plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def _missing(name: str, error: ImportError) -> UserError:
    return UserError(f"--log {name} needs {name} ({error}): pip install 'vmcr2[{name}]'")

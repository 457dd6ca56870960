"""Algorithm 1 over epochs: order, steps, latching, metrics, checkpoints; then the evaluation."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._shared import UserError
from ..data import Source, Split, open_data
from ..functional import rate_reduction
from ..losses import VMCR2Loss
from ._artifacts import evaluation_tensors
from ._checkpoint import Position, load_checkpoint, save_checkpoint
from ._config import Config
from ._engine import Engine
from ._evaluate import (
    TrainingSide,
    accuracy,
    classifier_of,
    embed,
    evaluate_choices,
    evaluate_training,
    evaluate_unseen,
)
from ._folder import RunFolder, default_folder, manifest, write_tensors
from ._load import network_of, read_subspaces, restored
from ._metrics import batch_rates, due, what_broke
from ._numerics import choose_device, forked_random, placed
from ._objective import CrossEntropy, build_objective, set_schedules
from ._run import Listener, Run, TrainingError
from ._schedule import learning_rate
from ._split import epoch_order, hold_out
from ._step import Step, augmented, unaugmented


def fit(
    config: Config,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    listener: Listener | None = None,
    source: Source | None = None,
    for_report: bool = True,
) -> Run:
    """Train by a configuration and evaluate; everything that came out lies in the run folder.

    Args:
        config: see :func:`recipe`.
        out: the run folder, which must not be there yet; by default ``runs/RECIPE-SEED-TIME``.
        resume: go on with the run in ``out`` from its last checkpoint, over the data that it was begun with, or start
            it if it is not there. A finished run is returned as it is.
        listener: is told of every epoch.
        source: the opened data, where many runs share them; by default ``config.data`` is opened.
        for_report: write ``evaluation.safetensors``, which a report reads and nothing else.
    """
    if not isinstance(config, Config):
        raise TypeError(f"fit takes a Config, got {config!r}: vmcr2.recipe('digits') makes one from a recipe's name")
    device = choose_device(config.device)
    folder = RunFolder(Path(out)) if out is not None else None
    begun = folder if resume and folder is not None and folder.config.exists() else None
    if begun is not None and begun.read_config() != config:
        raise UserError(f"{begun.path} was begun with other settings: --resume takes the run's own, without changes")
    source = source or open_data(config.data, config.data_path)
    with forked_random(device):
        trainer = Trainer(config, source, device)
        if begun is None:
            folder = folder or RunFolder(default_folder(config))
            folder.create(config, manifest(config, device, source), resume=resume)
            return trainer.run(folder, listener, for_report)
        if begun.finished:
            return trainer.restore(begun, listener.note if listener is not None else warnings.warn)
        if other := trainer.other_data(begun):
            raise UserError(f"{other}: put back those that it was begun with, or begin a new run with another --out")
        begun.remove_halves()
        return trainer.run(begun, listener, for_report)


class Trainer:
    """A configuration brought to life: data, network, objective, and the step over them."""

    def __init__(self, config: Config, source: Source, device: torch.device) -> None:
        self.config, self.source, self.device = config, source, device
        self.num_classes = source.num_classes
        self.train_split = source.train()
        self.held: Split | None = None
        if config.holdout:
            self.train_split, self.held = hold_out(self.train_split, config.holdout, self.num_classes)
        torch.manual_seed(config.seed)
        network = network_of(config, source.image_shape[0])
        self.network = placed(network, device)
        self.objective = build_objective(config, self.train_split.labels, self.num_classes).to(device)
        total = len(self.train_split.labels)
        self.batch_size = min(config.batch_size, total)
        self.steps_per_epoch = total // self.batch_size
        if self.batch_size == 1 and any(isinstance(part, nn.BatchNorm1d) for part in self.network.modules()):
            raise UserError("a batch of 1 cannot be normalised by BatchNorm: batch_size must be at least 2")
        self.step = Step(config, self.network, self.objective, self.train_split, self.batch_size, device)
        self._try_out()
        self._order = (-1, self.step.index)

    def _try_out(self) -> None:
        """Settings that cannot work are the user's mistake before anything is written."""
        try:
            with torch.no_grad():
                augmented(self.config, self.step.images, self.step.index[:2], self.step.draw)
                unaugmented(self.config, self.step.images, self.step.index[:2])
        except (ValueError, RuntimeError) as error:
            raise UserError(f"these settings do not fit the images of {self.source.name}: {error}") from error

    def run(self, folder: RunFolder, listener: Listener | None, for_report: bool = True) -> Run:
        """Train from the last checkpoint, or from the start."""
        config = self.config
        position = Position(0, 0, 0.0)
        if begun := folder.checkpoint.exists():
            position = load_checkpoint(folder.checkpoint, self.step)
        folder.keep_metrics(position.epoch)
        if listener is not None:
            listener.started(config, folder.path, position.epoch)
        if not begun:
            self.latch()
        remaining = (config.epochs - position.epoch) * self.steps_per_epoch * self.batch_size
        engine = Engine(self.step, remaining, listener.note if listener is not None else warnings.warn)
        saved = time.monotonic()
        for epoch in range(position.epoch, config.epochs):
            start = time.perf_counter()
            self.train_epoch(epoch, engine)
            spent = time.perf_counter() - start
            position = Position(epoch + 1, (epoch + 1) * self.steps_per_epoch, position.seconds + spent)
            if record := self.record(position, spent):
                folder.append(record)
                if listener is not None:
                    listener.epoch(record)
            if self.latches_after(epoch):  # behind the metrics, which are of the dictionary that the steps have made
                start = time.perf_counter()
                self.latch()
                position = position._replace(seconds=position.seconds + time.perf_counter() - start)
            if time.monotonic() - saved >= config.checkpoint_seconds or position.epoch == config.epochs:
                save_checkpoint(folder.checkpoint, self.step, position)
                saved = time.monotonic()
        return self.finish(folder, position, for_report)

    def train_epoch(self, epoch: int, engine: Engine) -> None:
        """One pass over the training set in whole batches.

        Ends with the only synchronisation of the epoch: whether anything in it was not finite.
        """
        config, step = self.config, self.step
        if step.begin(epoch):
            engine.renew()
        order = self.order(epoch)
        for i in range(self.steps_per_epoch):
            done = epoch * self.steps_per_epoch + i
            step.index.copy_(order[i * self.batch_size : (i + 1) * self.batch_size])
            step.rate.fill_(learning_rate(config, done, self.steps_per_epoch))
            set_schedules(self.objective, config, done / max(config.epochs * self.steps_per_epoch - 1, 1))
            engine()
            if config.latch_unit == "steps" and (done + 1) % config.latch_every == 0:
                self.latch()
        self.order(epoch + 1)  # while the device is still busy
        if step.broken:
            raise TrainingError(
                f"training broke in epoch {epoch + 1}, not finite: {what_broke(step, self.num_classes)}. Lower lr or "
                "loss_scale; the checkpoint, where there is one, is from an epoch before it"
            )

    def order(self, epoch: int) -> Tensor:
        """The epoch's order of samples, on the device."""
        if self._order[0] != epoch:
            self._order = epoch, epoch_order(len(self.train_split.labels), self.config.seed, epoch).to(self.device)
        return self._order[1]

    def latches_after(self, epoch: int) -> bool:
        """Whether latching falls due after an epoch, counted from 0; not after the last."""
        every = self.config.latch_every
        return self.config.latch_unit == "epochs" and (epoch + 1) % every == 0 and epoch + 1 < self.config.epochs

    def latch(self) -> None:
        """Algorithm 2 on the whole training set, un-augmented."""
        if isinstance(self.objective, VMCR2Loss):
            with self.step.fresh():
                features = embed(self.config, self.network, self.train_split.images, self.device)
            self.objective.latch(features, self.step.labels)

    def record(self, position: Position, spent: float) -> dict[str, Any]:
        """A line of metrics, where one is due."""
        config = self.config
        every = config.eval_every or (math.ceil(config.epochs / 10) if self.held is not None else 0)
        measured = every and position.epoch % every == 0 and position.epoch < config.epochs
        if not (measured or due(config, position.epoch)):
            return {}
        record: dict[str, Any] = {
            "epoch": position.epoch,
            "step": position.step,
            "seconds": position.seconds,
            "images_per_second": self.steps_per_epoch * self.batch_size / max(spent, 1e-9),
            "lr": self.step.rate.item(),
        }
        record |= batch_rates(self.step, self.num_classes)
        if measured:
            with self.step.measured():
                record |= self._progress()
        return record

    def _progress(self) -> dict[str, float]:
        """The two figures that are watched on the way; the whole evaluation comes at the end."""
        labels = self.step.labels
        features = embed(self.config, self.network, self.train_split.images, self.device)
        full = rate_reduction(features.double(), labels, self.num_classes, eps_sq=self.config.eps_sq)
        figures = {"train_delta_r": full.delta.item()}
        if self.held is not None:
            classifier = classifier_of(self.config, self.num_classes).fit(features, labels)
            held = embed(self.config, self.network, self.held.images, self.device)
            figures["holdout_accuracy"] = accuracy(classifier.predict(held).cpu(), self.held.labels)
        return figures

    def measure(self) -> TrainingSide:
        """The whole training set, un-augmented."""
        features = embed(self.config, self.network, self.train_split.images, self.device)
        return evaluate_training(self.config, features, self.step.labels, self.num_classes)

    def measure_unseen(self, side: TrainingSide, unseen: Split, name: str) -> tuple[Tensor, dict[str, Any]]:
        """Features of images that were not trained on, and the accuracies on them."""
        features = embed(self.config, self.network, unseen.images, self.device)
        labels = unseen.labels.to(self.device)
        found: dict[str, Any] = dict(evaluate_unseen(side, features, labels, self.num_classes))
        if name == "holdout":
            found |= evaluate_choices(side, features, labels, self.num_classes, self.objective)
        figures = {f"{name}_{key}": value for key, value in found.items()}
        if isinstance(self.objective, CrossEntropy):
            with torch.no_grad():
                figures["head_accuracy"] = accuracy(self.objective.predict(features), labels)
        return features, figures

    def finish(self, folder: RunFolder, position: Position, for_report: bool) -> Run:
        """Evaluate, write what came out, the summary last."""
        self.step.settle()
        side = self.measure()
        name, unseen = ("test", self.source.test()) if self.held is None else ("holdout", self.held)
        features, summary = self.measure_unseen(side, unseen, name)
        summary |= side.figures
        summary |= {
            "epochs": position.epoch,
            "seconds": position.seconds,
            "train_images": len(self.train_split.labels),
            f"{name}_images": len(unseen.labels),
            "parameters": sum(parameter.numel() for parameter in self.network.parameters()),
        }
        write_tensors(folder.model, dict(self.network.state_dict()))
        if learned := self.objective.state_dict():  # Γ and A, the head of cross-entropy, a memory
            write_tensors(folder.objective, learned)
        write_tensors(folder.subspaces, {"bases": side.classifier.bases, "energies": side.classifier.energies})
        if for_report:
            codes = self.objective.codes if isinstance(self.objective, VMCR2Loss) else None
            shown = evaluation_tensors(side, self.train_split, unseen, features, self.num_classes, codes)
            write_tensors(folder.evaluation, shown, {"class_names": json.dumps(self.source.class_names)})
        folder.write_summary(summary)
        return Run(folder.path, self.config, summary, self.network.eval(), side.classifier, self.objective)

    def other_data(self, folder: RunFolder) -> str:
        """That a run was begun with other training images than are read now, in a clause; or nothing."""
        if folder.data_checksum in (None, self.source.train_checksum):
            return ""
        return f"{folder.path} was begun with other training data than {self.source.path or self.source.name} holds now"

    def restore(self, folder: RunFolder, note: Callable[[str], None] = warnings.warn) -> Run:
        """A finished run from its folder."""
        if other := self.other_data(folder):
            note(f"{other}: figures made on these are not those of its summary.json")
        return restored(folder, self.config, self.network, self.objective, read_subspaces(folder))

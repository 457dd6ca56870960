"""Builds the data, network and objective of a configuration, trains into a run folder, and measures."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .._shared import UserError
from ..data import Source, Split, aside_rows, can_be_parted, held_out_rows, hold_out, parted, with_label_noise
from ..distributed import ALONE, Ranks, rows_are_whole
from ..functional import diagnose, rate_reduction
from ..training import Engine, Inputs, Loop, Numerics, Step, batch_figures, check_capture, embed
from ._callbacks import Callbacks
from ._checkpoint import Position
from ._config import Config
from ._early_stopping import longest_interval
from ._epoch_order import EpochOrder
from ._folder import RunFolder
from ._load import finished_run, read_subspaces, restored, start_from
from ._measure import (
    TrainingSide,
    accuracy,
    check_sound,
    choose_readout,
    classifier_of,
    evaluate_training,
    evaluate_unseen,
)
from ._ranks import check_batch, fast_way
from ._report_tensors import evaluation_tensors
from ._run import Run
from ._running import run_epochs
from ._samples import samples_of
from ._tensor_files import write_tensors
from ._use import CalibrationSamples, calibrated, write_use
from ._views import with_views

_LINES = 100
_ENOUGH_STEPS = 100  # a run of fewer is a trial: nobody expects it to have learned
ADVICE = "Try the recipe's rule (--objective auto), a network with BatchNorm, or another lr (docs/defaults.md)"


class Trainer:
    """Data, network, objective and training step. Nothing is written before :meth:`run`.

    ``fresh``: the network gets the first weights that the settings name. Where a run goes on, or is only measured, they
    come from its folder, and the files of the first ones may be gone. ``calibrates``: whether samples are set aside, as
    the folder of a run that goes on says; by default if there is memory for it. ``ranks``: the processes that train it.
    """

    def __init__(
        self,
        config: Config,
        source: Source,
        device: torch.device,
        *,
        fresh: bool = True,
        calibrates: bool | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.config, self.source, self.ranks = config, source, ranks
        self.num_classes = source.num_classes
        self.numerics = Numerics.choose(device, config.run.precision)
        self.train_split = source.train()
        self.places = torch.arange(len(self.train_split.labels))
        """Where the samples that are trained on are in the whole training set."""
        self.held: Split | None = None
        if config.data.holdout:
            held = held_out_rows(self.train_split.labels, config.data.holdout, self.num_classes)
            self.train_split, self.held = hold_out(self.train_split, config.data.holdout, self.num_classes)
            self.places = (~held).nonzero()[:, 0]
        elif config.data.validation:
            if not source.has_val:
                raise UserError(
                    f"validation is true, but {source.title or source.name} has no validation samples beside test "
                    "samples (a folder val without a folder test is the test set): leave it out, or use holdout"
                )
            self.held = source.val()
        self.aside: Split | None = None
        if self.held is None:
            self._set_aside(calibrates)
        if share := config.data.label_noise:  # the held-out images keep their labels
            self.train_split = with_label_noise(self.train_split, share, self.num_classes, seed=config.run.seed)
        torch.manual_seed(config.run.seed)
        network = config.model.build(config.data.input_shape(source.sample_shape), with_weights=fresh)
        self.left_as_drawn = start_from(network, config.run.start_from) if fresh and config.run.start_from else []
        self.network = self.numerics.place(network)
        labels = self.train_split.labels
        self.order = EpochOrder(labels, config.optim, config.run.seed)
        self.batch_size = self.order.batch_size
        check_batch(ranks, self.batch_size)
        with rows_are_whole():  # the step gathers them
            self.objective = config.objective.build(self.num_classes, config.model.dim, labels, self.batch_size)
        self.order.make_room(self.objective)
        self.objective.module.to(device)
        if config.run.readout == "head" and self.objective.head is None:
            raise UserError(f"readout is head, but {config.objective.name} has no head: leave it out")
        if self.batch_size == 1 and any(isinstance(part, nn.BatchNorm1d) for part in self.network.modules()):
            raise UserError("BatchNorm needs at least two samples: set batch_size to at least 2")
        self.step = Step(
            self.network,
            self.objective,
            samples_of(self.train_split, config, device, batch_size=ranks.sizes(self.batch_size)[ranks.rank]),
            config.optim,
            batch_size=self.batch_size,
            dim=config.model.dim,
            seed=config.run.seed,
            numerics=self.numerics,
            ranks=ranks,
        )
        self._try_out()

    def _set_aside(self, calibrates: bool | None) -> None:
        """Take the calibration samples out of the training samples."""
        held = aside_rows(self.train_split.labels, self.config.data.calibration_share, self.num_classes)
        if calibrates is None:
            calibrates = can_be_parted(self.train_split)
        if calibrates and held.any():
            self.train_split, self.aside = parted(self.train_split, held)
            self.places = (~held).nonzero()[:, 0]

    def _try_out(self) -> None:
        """Find settings that cannot work before anything is written: they are a :class:`UserError`."""
        check_capture(self.config.run.engine, self.numerics.device)
        try:
            with torch.no_grad():
                self.step.samples.training_batch(self.step.index[:2], self.step.draw)
                self.step.samples.plain_batch(self.step.index[:2])
        except (ValueError, RuntimeError) as error:
            called = self.source.title or self.source.name
            raise UserError(f"these settings do not fit the images of {called}: {error}") from error

    def loop(self, images: int, say: Callable[[str], None]) -> Loop:
        """The epochs of a run that will see this number of images; ``say`` is told if the fast way is not possible."""
        capture, compiled = fast_way(self.config, self.ranks, self.numerics.device, say)
        search = self.config.model.search_pays(images)
        engine = Engine(self.step, capture=capture, compiled=compiled, search=search, say=say)
        return Loop(self.step, engine, self.order, self.steps_per_epoch)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches of the training set."""
        return self.order.steps

    def run(self, folder: RunFolder, callbacks: Callbacks, for_report: bool = True) -> Run:
        """Train from the last checkpoint, or from the start, in a folder that this process holds."""
        return run_epochs(self, folder, callbacks, for_report)

    def problem(self, expansion: float, compression: float | None, epochs: int | None = None) -> str | None:
        """A sentence about features that collapsed or stalled, with what to do; None if they did not.

        ``epochs`` are those of a run that ended early.
        """
        steps = (epochs or self.config.optim.epochs) * self.steps_per_epoch
        if steps < _ENOUGH_STEPS or not self.config.objective.separates:
            return None
        found = diagnose(
            expansion,
            compression,
            num_classes=self.num_classes,
            dim=self.config.model.dim,
            eps_sq=self.config.objective.eps_sq,
            proportions=torch.bincount(self.train_split.labels, minlength=self.num_classes).tolist(),
        )
        return None if found is None else f"{found}. {ADVICE}"

    def record(self, position: Position, spent: float, loop: Loop) -> dict[str, Any]:
        """A line of metrics, if one is due: every ``log_every``-th epoch, the first and the last."""
        run, epochs = self.config.run, self.config.optim.epochs
        measured = self._measures(position.epoch)
        line_due = position.epoch % (run.log_every or math.ceil(epochs / _LINES)) == 0
        if not (measured or line_due or position.epoch in (1, epochs)):
            return {}
        record: dict[str, Any] = {
            "epoch": position.epoch,
            "step": position.step,
            "seconds": position.seconds,
            "images_per_second": loop.steps_per_epoch * self.batch_size / max(spent, 1e-9),
            "lr": self.step.rate.item(),
        }
        record |= batch_figures(self.step)
        if measured:
            with self.step.measured():
                record |= self._progress()
        return record

    def _measures(self, epoch: int) -> bool:
        """Whether whole sets are measured after this epoch. After the last, the evaluation of the run does so anyway,
        unless it must be known before whether the last is the best."""
        run, epochs = self.config.run, self.config.optim.epochs
        if epoch == epochs:
            return run.patience > 0
        every = run.eval_every or (math.ceil(epochs / 10) if self.held is not None else 0)
        if run.patience:
            every = min(every, longest_interval(run.patience))
        return every > 0 and epoch % every == 0

    def _progress(self) -> dict[str, float]:
        """The few figures that are measured during a run; the whole evaluation comes at the end.

        By the network alone: 18 views would take as long as several epochs, every time.
        """
        labels, eps_sq = self.step.samples.labels, self.config.objective.eps_sq
        features = self._features(self.network, self.step.samples)
        full = rate_reduction(features.double(), labels, self.num_classes, eps_sq=eps_sq)
        figures = {"train_delta_r": full.delta.item()}
        if self.held is not None:
            classifier = classifier_of(self.config, self.num_classes).fit(features, labels)
            held = self._features(self.network, self._inputs(self.held))
            figures["holdout_accuracy"] = accuracy(classifier.predict(held).cpu(), self.held.labels)
            with torch.no_grad():
                predicted = self.objective.predict(held)
            if predicted is not None:
                figures["holdout_head_accuracy"] = accuracy(predicted.cpu(), self.held.labels)
        return figures

    def _embed(self, samples: Inputs) -> Tensor:
        """By what the run predicts by, which may average views."""
        return self._features(with_views(self.config, self.network, self.source.sample_shape), samples)

    def _inputs(self, split: Split) -> Inputs:
        return samples_of(split, self.config, self.numerics.device)

    def _features(self, network: nn.Module, samples: Inputs) -> Tensor:
        return check_sound(embed(network, samples, self.numerics, self.ranks))

    def measure(self) -> TrainingSide:
        """The whole training set, un-augmented."""
        features = self._embed(self.step.samples)
        return evaluate_training(self.config, features, self.step.samples.labels, self.num_classes)

    def measure_unseen(self, side: TrainingSide, unseen: Split, name: str) -> tuple[Tensor, dict[str, Any]]:
        """Features of images that were not trained on, and the accuracies on them."""
        features = self._embed(self._inputs(unseen))
        labels = unseen.labels.to(self.numerics.device)
        return features, evaluate_unseen(side, features, labels, self.num_classes, self.objective, name)

    def finish(self, folder: RunFolder, seconds: float, for_report: bool, outcome: Mapping[str, Any]) -> Run:
        """Evaluate and write the results, the summary last. ``outcome`` is what it says about the end of training.

        Every process of the run evaluates, and has the run; rank 0 writes.
        """
        self.step.settle()
        side = self.measure()
        name, unseen = ("test", self.source.test()) if self.held is None else ("holdout", self.held)
        features, summary = self.measure_unseen(side, unseen, name)
        summary |= side.figures
        summary["readout"] = choose_readout(self.config.run.readout, summary)
        summary["readout_accuracy"] = summary["head_accuracy" if summary["readout"] == "head" else f"{name}_accuracy"]
        if problem := self.problem(summary["expansion"], summary["compression"], outcome.get("epochs")):
            summary["warning"] = problem
        summary |= {
            "epochs": self.config.optim.epochs,
            "seconds": seconds,
            "train_images": len(self.train_split.labels),
            f"{name}_images": len(unseen.labels),
            "parameters": sum(parameter.numel() for parameter in self.network.parameters()),
        }
        summary |= outcome
        run = finished_run(folder, self.config, summary, self.network, side.classifier, self.objective)
        run = calibrated(run, self._calibration_features(features), unseen_features=features, unseen=unseen)
        if self.ranks.leads:
            with folder.writing():
                self._write(folder, run, side, features, unseen, for_report)
        return run

    def _write(
        self, folder: RunFolder, run: Run, side: TrainingSide, features: Tensor, unseen: Split, for_report: bool
    ) -> None:
        """What a finished run leaves, the summary last; ``features`` are of ``unseen``."""
        write_tensors(folder.model, dict(self.network.state_dict()))
        if learned := self.objective.module.state_dict():
            write_tensors(folder.objective, learned)
        write_tensors(folder.subspaces, {"bases": side.classifier.bases, "energies": side.classifier.energies})
        write_use(folder, run, side, self.train_split, self.places)
        if for_report:
            tensors = evaluation_tensors(
                side, self.train_split, unseen, features, self.num_classes, self.objective.shown()
            )
            write_tensors(folder.evaluation, tensors, {"class_names": json.dumps(self.source.class_names)})
        folder.write_summary(run.summary)

    def _calibration_features(self, unseen_features: Tensor) -> CalibrationSamples | None:
        """What the run is calibrated on: the samples that were set aside, or those that it is measured on."""
        if self.held is not None:
            origin = "the hold-out" if self.config.data.holdout else "the validation samples"
            return CalibrationSamples(unseen_features, self.held.labels, origin)
        if self.aside is None:
            return None
        return CalibrationSamples(self._embed(self._inputs(self.aside)), self.aside.labels, "set aside from training")

    def other_data(self, folder: RunFolder) -> str:
        """A clause for errors if the run was started with other training images than are read now; else empty."""
        if folder.data_checksum in (None, self.source.train_checksum):
            return ""
        where = self.source.path or self.source.name
        return f"{folder.path} was started with other training data than {where} holds now"

    def restore(self, folder: RunFolder, note: Callable[[str], None] = warnings.warn) -> Run:
        """A finished run from its folder."""
        if other := self.other_data(folder):
            note(f"{other}: its summary.json has the figures of the old data")
        return restored(folder, self.config, self.network, self.objective, read_subspaces(folder, self.config))

"""A finished run as others see it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._shared import UserError
from ..classifiers import NearestSubspace
from ..functional import nearest_subspace, top_logits
from ..inference import (
    HEAD,
    SUBSPACE,
    Answers,
    Confidence,
    Exported,
    KeptSamples,
    Neighbors,
    Readout,
    TopAnswers,
    top_answers,
)
from ..training import Numerics
from ._checked import check_kept, readable
from ._config import Config
from ._folder import RunFolder
from ._inputs import InputForm, embedded
from ._new_class import check_new_name, fairness, with_class
from ._tensor_files import read_tensors

if TYPE_CHECKING:
    from ..report import Plots


@dataclass(frozen=True)
class Run:
    """A finished run: what it has learned, to use it.

    Wherever samples are taken, they are as people have them. Pictures: paths of files and folders, pictures of Pillow,
    arrays and tensors (uint8, or floats from 0 to 1), a list of these, or a ``DataLoader``. Rows of a table: the path
    of a file, a DataFrame, a mapping of columns, a list of dicts, an array or a tensor of numbers, or a ``DataLoader``
    of these.
    """

    folder: Path
    config: Config
    summary: dict[str, Any]
    model: nn.Module
    classifier: NearestSubspace
    objective: nn.Module = field(repr=False)
    """The loss with its state: the dictionary and codes of V-MCR², the head of cross-entropy, a memory."""
    head: nn.Linear | None = field(repr=False)
    """The objective's linear layer on the features, if it has one."""
    class_names: tuple[str, ...] = field(repr=False)
    """The names of classes 0, 1, …"""
    form: InputForm = field(repr=False)
    """What a sample must be, and how it becomes what the network sees."""
    confidence: Confidence | None = field(default=None, repr=False)
    """What it was calibrated on; None if nothing was set aside."""
    added: tuple[str, ...] = field(default=(), repr=False)
    """Names of classes that :meth:`add_class` has added: the network was not trained on them."""

    @property
    def readout(self) -> str:
        """What it predicts by, "head" or "subspace". Runs of 0.2, and with added classes, go by the subspaces."""
        by_head = self.summary.get("readout") == HEAD and self.head is not None and not self.added
        return HEAD if by_head else SUBSPACE

    def features(self, inputs: Any) -> Tensor:
        """Unit features (n, d), un-augmented and in evaluation mode."""
        return torch.cat([self.features_of(part) for part in self.form.tensors(inputs)])

    def features_of(self, samples: Tensor) -> Tensor:
        """The same for samples in the run's own form: uint8 pictures of its shape, or rows that are prepared."""
        device = next(self.model.parameters()).device
        return embedded(self.model, samples, self.config, Numerics.choose(device, self.config.run.precision))

    def prepare(self, rows: Any) -> Tensor:
        """Rows of a table as the network sees them, float32 (n, columns)."""
        return self.form.rows(rows)

    def answers(self, inputs: Any) -> Answers:
        """All that is known of each sample: class, probabilities and residuals of all k classes, novelty.

        Without calibration the probabilities are too sure or not sure enough: see :attr:`confidence`.
        """
        return self.answers_of(self.features(inputs))

    def answers_of(self, features: Tensor) -> Answers:
        """The same for features."""
        return self._readout_module.in_blocks(features)

    def top_answers(self, inputs: Any, count: int = 5) -> TopAnswers:
        """The same of the ``count`` likeliest classes alone, the likeliest first.

        Memory does not grow with the number of samples times that of classes: the way for thousands of classes.
        """
        return self.top_answers_of(self.features(inputs), count)

    def top_answers_of(self, features: Tensor, count: int) -> TopAnswers:
        """The same for features."""
        if count < 1:
            raise UserError(f"the number of classes to name must be at least 1, got {count}")
        return top_answers(self._readout_module, features, count)

    def predict(self, inputs: Any, *, labels: bool = False, refuse: float | None = None, top: int | None = None) -> Any:
        """The class of each sample: a list of names; with ``labels`` an int64 tensor of numbers.

        Args:
            inputs: see :class:`Run`.
            labels: numbers instead of names; :attr:`class_names` has their names.
            refuse: a false-alarm rate between 0 and 1. Samples that are more foreign than all but this share of known
                ones are refused: their name is None, their number −1.
            top: name so many classes of each sample, the likeliest first: lists of names, or numbers (n, top). Of a
                refused sample all are None, or −1. :meth:`top_answers` has their probabilities.
        """
        features = self.features(inputs)
        found = self._found(features, top)
        if refuse is not None:
            foreign = self.top_answers_of(features, 1).novelty.double() > self.threshold(refuse)
            found = torch.where(foreign if top is None else foreign[:, None], -1, found)
        if labels:
            return found
        return _named(found.tolist(), self.class_names)

    def _found(self, features: Tensor, top: int | None) -> Tensor:
        """Numbers (n,), or (n, top)."""
        if top is not None:
            return self.top_answers_of(features, top).labels
        if self.added:
            return self.top_answers_of(features, 1).labels[:, 0]
        if self.readout == SUBSPACE or self.head is None:
            return self.classifier.predict(features)
        return top_logits(features, self.head.weight, self.head.bias).labels[:, 0]

    def predict_proba(self, inputs: Any) -> Tensor:
        """Calibrated probabilities, (n, k) float32, classes in the order of :attr:`class_names`."""
        self._calibrated()
        return self.answers(inputs).probabilities

    def novelty(self, inputs: Any) -> Tensor:
        """How foreign each sample is, (n,) in [0, 1]: the share of its feature outside the nearest class subspace.

        Of cross-entropy alone, whose features have no subspaces of their own: 1 − the largest probability.
        """
        if not self.has_novelty:
            self._calibrated()  # raises
        return self.top_answers(inputs, 1).novelty

    @property
    def has_novelty(self) -> bool:
        """Whether the novelty means something: where it is a probability, only after a calibration."""
        return self.confidence is not None or self._novelty_by == SUBSPACE

    def threshold(self, false_alarms: float) -> float:
        """The novelty above which :meth:`predict` refuses: at most this share of known samples lies above it."""
        return self._calibrated().threshold(self._novelty_by, false_alarms)

    def neighbors(self, inputs: Any, count: int = 5) -> Neighbors:
        """The nearest training samples of each sample, among those that the run has kept."""
        return self.kept.nearest(self.features(inputs), count, self.class_names)

    @cached_property
    def kept(self) -> KeptSamples:
        """The training samples that the run has kept."""
        if not self.has_kept:
            raise UserError(f"{self.folder} keeps no training samples (kept_samples): there is nothing to compare with")
        path = RunFolder(self.folder).kept_samples
        with readable(path):
            found = KeptSamples.from_tensors(read_tensors(path))
        check_kept(path, found, self.config.model.dim, len(self.class_names))
        return found

    @property
    def has_kept(self) -> bool:
        """Whether the run has kept training samples."""
        return RunFolder(self.folder).kept_samples.exists()

    def calibrate(self, inputs: Any, labels: Iterable[Any]) -> Run:
        """The same run, calibrated on other samples, which must not be training samples.

        ``labels`` are class names or numbers. Nothing is written.
        """
        numbers = self._numbers(labels)
        features = self.features(inputs)
        if len(features) != len(numbers):
            raise UserError(f"there are {len(features)} samples but {len(numbers)} labels: give one for each")
        return replace(self, confidence=learned_confidence(self, features, numbers, "given samples"))

    def add_class(self, name: str, inputs: Any) -> Run:
        """The same run with one class more, which the network has not seen: a subspace is fitted to these samples.

        From then on the run predicts by the nearest subspace, and the residuals of added classes count less, so that a
        class of few samples is found too: all of them together take at most about 3 % of the known samples that were
        right. A run that is not calibrated cannot say how much less, and compares bare residuals: then a class of few
        samples is hardly ever found, and a warning says so. Nothing is written. docs/new-classes.md has figures.
        """
        check_new_name(self, name)
        if self.confidence is None:
            warnings.warn("the run is not calibrated: an added class of few samples is hardly ever found", stacklevel=2)
        return with_class(self, name, self.features(inputs))

    def export(self, path: Path | str, *, force: bool = False) -> Exported:
        """Write what the run does as one file for other programs: .onnx (onnxruntime) or .pt2 (torch.export.load).

        It takes uint8 pictures of the run's size, or prepared rows of a table, as many as there are. It answers with
        label, probabilities, novelty and features, in float32. Class names, and what else a reader must know, are in
        its metadata: see docs/exporting.md. The file is compared with the run: it is written only if they agree to
        1e-4. An existing file is replaced only with ``force``.
        """
        from ._exporting import export_run

        return export_run(self, Path(path), force=force)

    def save_pretrained(self, path: Path | str, *, kept_samples: bool = True) -> None:
        """Write the run as people publish it: config.json, model.safetensors and a model card, README.md.

        ``vmcr2.from_pretrained`` reads the folder, and nothing else is needed. Classes that were added, and a new
        calibration, are saved too. Of the paths in the settings only the last part is kept.

        Args:
            path: a new or an empty folder. Nothing is overwritten.
            kept_samples: also save the training samples that the run has kept, for :meth:`neighbors`. These are
                features and thumbnails of training pictures: leave them out if the pictures are private.
        """
        from ._pretrained import save_pretrained

        save_pretrained(self, Path(path), kept_samples=kept_samples)

    @classmethod
    def from_pretrained(cls, path: Path | str, *, device: str = "auto") -> Run:
        """The same as ``vmcr2.from_pretrained``."""
        from ._pretrained import from_pretrained

        return from_pretrained(path, device=device)

    @property
    def plot(self) -> Plots:
        """Pictures of what was learned, as figures of matplotlib: ``run.plot.convergence()``, :class:`Plots` has all.

        They are drawn from the run folder, so a run that was loaded by :meth:`from_pretrained` has none.
        """
        from ..report import plots_of

        return plots_of(self.folder)

    def _repr_html_(self) -> str:
        from ._notebook import run_html

        return run_html(self)

    @property
    def _novelty_by(self) -> str:
        """What the novelty goes by, "head" or "subspace"."""
        return self._readout_module.novelty_by

    @cached_property
    def _readout_module(self) -> Readout:
        return self.readout_by(self.readout)

    def readout_by(self, by: str) -> Readout:
        """The module that gives answers, by the head or by the subspaces."""
        # cross-entropy alone leaves features without subspaces of their own
        novelty_by = SUBSPACE if by == SUBSPACE or self.config.objective.separates else HEAD
        temperature = self.confidence.temperatures[by] if self.confidence is not None else 1.0
        head = self.head if by == HEAD else None
        fair = fairness(self)._asdict() if self.added else {}
        return Readout(self.classifier.bases, head, by=by, novelty_by=novelty_by, temperature=temperature, **fair)

    def _calibrated(self) -> Confidence:
        if self.confidence is None:
            raise UserError(
                f"{self.folder} is not calibrated: nothing was set aside in its training (calibration_share=0, too few "
                "samples, or a vmcr2 before 0.5). Use run.calibrate(inputs, labels) with samples not trained on"
            )
        return self.confidence

    def _numbers(self, labels: Iterable[Any]) -> Tensor:
        places = {name: at for at, name in enumerate(self.class_names)}
        found = []
        for label in labels.tolist() if isinstance(labels, Tensor) else labels:
            whole = isinstance(label, Integral) and not isinstance(label, bool)
            at = places.get(label, -1) if isinstance(label, str) else int(label) if whole else -1
            if not 0 <= at < len(self.class_names):
                raise UserError(f"the run has no class {label!r}: its classes are {', '.join(self.class_names[:10])}")
            found.append(at)
        return torch.tensor(found, dtype=torch.int64)


def _named(found: list[Any], names: tuple[str, ...]) -> list[Any]:
    """Names for numbers, and for lists of numbers; None where one is below 0."""
    if found and isinstance(found[0], list):
        return [_named(row, names) for row in found]
    return [None if label < 0 else names[label] for label in found]


def learned_confidence(run: Run, features: Tensor, labels: Tensor, origin: str) -> Confidence:
    """What these samples say of every way in which the run can predict."""
    ways = [SUBSPACE] if run.head is None or run.added else [SUBSPACE, HEAD]
    trained = run.classifier.bases[: len(run.class_names) - len(run.added)]
    known = features[nearest_subspace(features, trained) == labels.to(features.device)].float().cpu()
    start = Confidence(origin, dict.fromkeys(ways, 1.0), {}, known)
    before = replace(run, confidence=start)
    return Confidence.learn([before.readout_by(by) for by in ways], features, labels, origin, known)

"""The model card that goes with a published run: README.md, as the Hugging Face hub reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._shared import listed
from .._version import __version__
from ._folder import RunFolder

if TYPE_CHECKING:
    from ._run import Run

_MOST_NAMES = 200
_SETS = {"test": "test set", "holdout": "hold-out"}
_MARKS = re.compile(r"([!-/:-@\[-`{-~])")
"""ASCII punctuation: what Markdown and HTML could read as something else."""


def model_card(run: Run, *, keeps_samples: bool) -> str:
    """The card: what the hub reads, between two lines of dashes, and what people read."""
    front = "\n".join(_yaml_lines(_front(run)))
    return f"---\n{front}\n---\n\n" + "\n".join(_text(run, keeps_samples))


def _front(run: Run) -> dict[str, Any]:
    task = "image-classification" if run.form.is_pictures else "tabular-classification"
    title = _one_line(run.config.title)
    front: dict[str, Any] = {
        "library_name": "vmcr2",
        "pipeline_tag": task,
        "tags": list(dict.fromkeys(["vmcr2", "coding-rate-reduction", run.config.objective.name, task])),
    }
    measured = _measured(run)
    if measured is None:
        return front
    name, accuracy, _ = measured
    metric = {"type": "accuracy", "value": accuracy, "name": f"Accuracy on the {_SETS[name]}"}
    result = {
        "task": {"type": task},
        "dataset": {"name": _one_line(run.config.data.title), "type": run.config.data.name},
        "metrics": [metric],
    }
    return front | {"metrics": ["accuracy"], "model-index": [{"name": title, "results": [result]}]}


def _measured(run: Run) -> tuple[str, float, int] | None:
    """On which samples, the accuracy, and how many they were. None with added classes: nobody measured those."""
    summary = run.summary
    name = next((name for name in _SETS if f"{name}_images" in summary), None)
    if name is None or run.added:
        return None
    by = "head_accuracy" if run.readout == "head" else f"{name}_accuracy"
    return (name, float(summary[by]), int(summary[f"{name}_images"])) if by in summary else None


def _text(run: Run, keeps_samples: bool) -> Iterator[str]:
    shape = "×".join(map(str, run.form.shape))
    takes = f"pictures, which it brings to {shape}" if run.form.is_pictures else f"rows of a table ({shape} numbers)"
    by = "a linear head" if run.readout == "head" else "the nearest class subspace"
    yield f"# {_plain(run.config.title)}\n"
    yield f"A classifier for {len(run.class_names)} classes. It takes {takes}, and answers by {by}."
    yield (
        f"The network ({_plain(run.config.model.name)}, {run.config.model.dim} features) was trained with the "
        f"objective {_plain(run.config.objective.name)} by vmcr2 {_version_of(run)}.\n"
    )
    yield "## How to use it\n"
    argument = '"picture.png"' if run.form.is_pictures else '"rows.csv"'
    yield "```python\nimport vmcr2\n"
    yield 'run = vmcr2.from_pretrained("PATH OF THIS FOLDER")'
    yield f"print(run.predict({argument}))\n```\n"
    yield "## How good it is\n"
    yield from _figures(run)
    yield "\n## Classes\n"
    yield listed((_plain(name) for name in run.class_names), _MOST_NAMES) + "\n"
    yield "## Before you publish it\n"
    yield "- Add a licence, where the data come from, and what the model must not be used for."
    if keeps_samples:
        yield (
            "- `kept_samples.safetensors` holds features"
            + (" and small pictures" if run.form.is_pictures else "")
            + " of training samples. If these are private, save again with `kept_samples=False`."
        )
    yield ""


def _figures(run: Run) -> Iterator[str]:
    measured = _measured(run)
    if measured is not None:
        name, accuracy, samples = measured
        yield f"- Accuracy on the {_SETS[name]}: {accuracy:.4f} ({samples} samples)"
    if run.added:
        names = listed(_plain(name) for name in run.added)
        yield f"- Added without training, and not measured: {names}"
    if run.confidence is None:
        yield "- Its probabilities are not calibrated."
        return
    yield f"- Probabilities are calibrated on {run.confidence.samples} samples ({_plain(run.confidence.origin)})."
    if "calibration_error" in run.summary and not run.added and run.confidence.origin == "set aside from training":
        yield f"- Expected calibration error: {run.summary['calibration_error']:.4f}"


def _version_of(run: Run) -> str:
    """Of the vmcr2 that trained it."""
    try:
        return str(RunFolder(run.folder).read_manifest()["vmcr2"])
    except (OSError, KeyError, ValueError):  # it was loaded from a published folder
        return __version__


def _plain(text: str) -> str:
    """A name as Markdown shows it: nothing in it is a mark, a tag or a new line."""
    return _MARKS.sub(r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _yaml_lines(front: dict[str, Any]) -> Iterator[str]:
    """One entry a line. JSON is YAML too, apart from characters that are not printed: those are escaped."""
    for key, value in front.items():
        written = json.dumps(value, ensure_ascii=False)
        yield f"{key}: " + "".join(own if own.isprintable() else f"\\U{ord(own):08x}" for own in written)

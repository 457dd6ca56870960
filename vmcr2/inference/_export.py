"""Writes a pipeline as one file, .onnx or .pt2, and checks that the file answers as the run does."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._shared import UserError, atomic
from ._pipeline import OUTPUTS, Pipeline
from ._rows_file import check_output

ONNX, PT2 = ".onnx", ".pt2"
ABOUT = "about.json"
"""The name of the metadata in a .pt2 file."""
CLOSE = 1e-4
"""The largest difference between the file's answers and the run's."""
_ROUNDING = 2e-6
"""Of scores in float32. Probabilities have it divided by the temperature."""
_ONNX_BYTES = 2**31 - 2**20  # of one file: protobuf's limit, less some room for the graph

Model = Callable[[Tensor], Sequence[Tensor]]


class Exported(NamedTuple):
    """A file that was written."""

    path: Path
    difference: float
    """the largest difference between its answers and the run's"""
    batches: tuple[int, ...]
    """numbers of samples that both were asked for"""


def check_target(path: Path, *, force: bool = False) -> None:
    """A path that cannot be written is a :class:`UserError`, before any work is done."""
    if path.suffix.lower() not in (ONNX, PT2):
        raise UserError(f"{path} must end in .onnx (for onnxruntime) or .pt2 (for torch.export.load)")
    check_output(path, (ONNX, PT2), force=force)
    if path.suffix.lower() == ONNX:
        _import("onnx", "onnxscript", "onnxruntime")


def export(
    pipeline: Pipeline,
    path: Path,
    about: Mapping[str, Any],
    *,
    original: Model,
    trials: Sequence[Tensor],
    force: bool = False,
) -> Exported:
    """Write the pipeline and ``about`` into one file, for any number of samples.

    Args:
        pipeline: what is written.
        path: ends in .onnx or .pt2.
        about: what a reader of the file must know, of JSON's types. In .onnx every entry is a JSON text in the model's
            metadata. In .pt2 they are together in the extra file ``about.json``.
        original: gives ``OUTPUTS``. The file is read again and must agree with it to 1e-4, or nothing is left.
        trials: the batches that both are asked for.
        force: replace an existing file.

    Probabilities are scores divided by the temperature, and the rounding of float32 is divided with them. So below
    T = 0.02 they may differ by 2e-6/T.
    """
    check_target(path, force=force)
    is_onnx = path.suffix.lower() == ONNX
    if is_onnx:
        _check_size(pipeline)
    program = _traced(pipeline)
    try:
        with atomic(path) as temporary:
            if is_onnx:
                _write_onnx(program, temporary, pipeline.takes, about)
                written = _read_onnx(temporary)
            else:
                written = _write_pt2(program, temporary, about)
            difference = _largest_difference(written, original, trials, pipeline, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    return Exported(path, difference, tuple(len(x) for x in trials))


def _traced(pipeline: Pipeline) -> torch.export.ExportedProgram:
    (example,) = pipeline.trials([3])
    batch = torch.export.Dim("batch")
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(pipeline, (example,), dynamic_shapes=({0: batch},), strict=False)
    except Exception as error:  # of a person's own network: anything
        raise UserError(
            f"the network cannot be exported for any number of samples ({_in_short(error)}): see docs/exporting.md"
        ) from error
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # lines of code, with the names of folders on this machine
    return program


def _write_onnx(program: torch.export.ExportedProgram, path: Path, takes: str, about: Mapping[str, Any]) -> None:
    import onnx

    try:
        with _quiet(), torch.no_grad():
            made = torch.onnx.export(
                program, (), None, dynamo=True, input_names=[takes], output_names=list(OUTPUTS), verbose=False
            )
    except Exception as error:
        while error.__cause__ is not None and isinstance(error.__cause__, Exception):
            error = error.__cause__  # torch wraps the reason into instructions to report a bug
        raise UserError(f"the network cannot be written as ONNX ({_in_short(error)}): try .pt2") from error
    if made is None:
        raise UserError("this torch cannot write ONNX: use torch 2.6 or newer")
    model = made.model_proto
    for node in model.graph.node:
        del node.metadata_props[:]  # notes for torch's developers, larger than a small network
    _name_the_batch(model.graph)
    onnx.helper.set_model_props(model, {key: json.dumps(value, ensure_ascii=False) for key, value in about.items()})
    path.write_bytes(model.SerializeToString())


def _name_the_batch(graph: Any) -> None:
    """Torch calls the number of samples s85 or the like: "batch" says what it is to those who look at the file."""
    symbol = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = re.sub(rf"\b{re.escape(symbol)}\b", "batch", dim.dim_param)


def _write_pt2(program: torch.export.ExportedProgram, path: Path, about: Mapping[str, Any]) -> Model:
    """Write it, and read it again."""
    with _quiet():
        # to a name, torch would write the name into the file; and a full disk would end the process in torch's own code
        made = io.BytesIO()
        torch.export.save(program, made, extra_files={ABOUT: json.dumps(about, ensure_ascii=False)})
        path.write_bytes(made.getbuffer())
        with path.open("rb") as file:
            read: Model = torch.export.load(file).module()
    return read


def _read_onnx(path: Path) -> Model:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (takes,) = session.get_inputs()

    def answer(x: Tensor) -> list[Tensor]:
        return [torch.from_numpy(found) for found in session.run(list(OUTPUTS), {takes.name: x.numpy()})]

    return answer


@torch.no_grad()
def _largest_difference(
    written: Model, original: Model, trials: Sequence[Tensor], pipeline: Pipeline, path: Path
) -> float:
    temperature = float(pipeline.readout.temperature)
    largest = 0.0
    for x in trials:
        for name, value in _differences(written(x), original(x)).items():
            by_probability = name in ("label", "probabilities") or pipeline.readout.novelty_by == "head"
            allowed = max(CLOSE, _ROUNDING / temperature) if by_probability and name != "features" else CLOSE
            if not value <= allowed:  # NaN too
                raise UserError(
                    f"{path} was not written, because the {name} of {len(x)} samples would differ from the run's by "
                    f"{value:.2g}, more than {allowed:.2g}: try the other format, .onnx or .pt2"
                )
            largest = max(largest, value)
    return largest


def _differences(found: Sequence[Tensor], expected: Sequence[Tensor]) -> dict[str, float]:
    """By the output's name. That of a label is how much less likely it is, to the run, than the run's own answer."""
    differences = {}
    label, probabilities = found[0], expected[1]
    less = probabilities.amax(1) - probabilities.gather(1, label[:, None])[:, 0]
    differences["label"] = less.double().max().item()
    for name, own, other in zip(OUTPUTS[1:], found[1:], expected[1:], strict=True):
        if own.shape != other.shape or own.dtype != other.dtype:
            return {name: float("inf")}
        differences[name] = (own.double() - other.double()).abs().max().item()
    return differences


def _check_size(pipeline: Pipeline) -> None:
    size = sum(value.numel() * value.element_size() for value in pipeline.state_dict().values())
    if size > _ONNX_BYTES:
        raise UserError(
            f"the network has {size / 1e9:.1f} GB of weights, and one ONNX file holds at most 2 GB: export .pt2 instead"
        )


def _import(*names: str) -> None:
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise UserError(f".onnx needs the library {name}: pip install 'vmcr2[export]'") from error


def _in_short(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch prints its progress and advice for its own developers while it exports. Errors are raised as ever."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

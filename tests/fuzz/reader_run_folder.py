"""Run folders: records and tensors without checksums, as somebody writes them who wants to be believed.

One file of a finished run is replaced. Then the run is loaded, asked for a prediction, and shown in a report.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
from pathlib import Path

import torch

from vmcr2.report import group_runs, page, read_run, render, results_table
from vmcr2.runs import RunFolder, UserError, find_checkpoint, fit, load_run, read_position, recipe

from .driver import scratch
from .pieces import joined, taken_apart

DOCUMENTED = (UserError,)
_RECORDS = ("config.json", "manifest.json", "metrics.jsonl", "summary.json")
_TENSORS = ("model", "objective", "subspaces", "calibration", "kept_samples", "evaluation")
_PICTURE = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)


@functools.cache
def _base() -> Path:
    """A finished run of a tiny network, with a checkpoint. It is made once, and left to the system's cleaning."""
    place = Path(tempfile.mkdtemp(prefix="fuzz-run-", dir=scratch())) / "run"
    small = {"hidden": (4,), "dim": 10, "atoms_per_class": 1, "kept_samples": 20, "checkpoint_seconds": 0.0}
    fit(recipe("digits", objective="vmcr2", epochs=2, device="cpu", **small), out=place)
    return place


def _files() -> list[Path]:
    base = _base()
    checkpoint = find_checkpoint(RunFolder(base))
    tensors = [Path(f"{name}.safetensors") for name in _TENSORS if (base / f"{name}.safetensors").exists()]
    return [*map(Path, _RECORDS), *tensors, *([checkpoint.relative_to(base)] if checkpoint else [])]


@functools.cache
def seeds() -> list[bytes]:
    found = []
    for number, name in enumerate(_files()):
        content = (_base() / name).read_bytes()
        if name.suffix == ".safetensors":
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            header.get("__metadata__", {}).pop("checksum", None)
            content = json.dumps(header).encode()
        elif name.suffix == ".json":
            content = json.dumps(
                {key: value for key, value in json.loads(content).items() if key != "checksum"}
            ).encode()
        else:
            lines = [json.loads(line) for line in content.splitlines()]
            content = b"".join(json.dumps({**line, "checksum": None} | line).encode() + b"\n" for line in lines)
            content = content.replace(b"checksum", b"check_sum")
        found += [joined(number, content), joined(number + 128, content)]
    return found


def run(data: bytes, folder: Path) -> None:
    choice, _ = taken_apart(data, 1)
    files = _files()
    name, content = files[choice % 128 % len(files)], data[1:]
    place = folder / "run"
    shutil.copytree(_base(), place, copy_function=os.link)
    (place / name).unlink()
    if name.suffix == ".safetensors":
        whole = (_base() / name).read_bytes()
        body = whole[8 + int.from_bytes(whole[:8], "little") :]
        content = len(content).to_bytes(8, "little") + content + body
    (place / name).write_bytes(content)
    _use(place, shown=choice >= 128)


def _use(place: Path, *, shown: bool) -> None:
    refused = None
    for use in (_predict, _position, _show if shown else _read):
        try:
            use(place)
        except UserError as error:
            refused = error
    if refused is not None:
        raise refused


def _predict(place: Path) -> None:
    load_run(place, device="cpu").predict(_PICTURE)


def _position(place: Path) -> None:
    checkpoint = find_checkpoint(RunFolder(place))
    if checkpoint is not None:
        read_position(checkpoint)


def _read(place: Path) -> None:
    read_run(place)


def _show(place: Path) -> None:
    record = read_run(place)
    render(results_table([record], group_runs([record])), "latex")
    page([record])

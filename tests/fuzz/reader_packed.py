"""Packed data sets: a header of JSON and tensors. The length before the header is ours, or part of the input."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from data_formats import write_mnist

from vmcr2.data import DataError, open_data, pack
from vmcr2.data._split import Split, split_checksum

from .pieces import joined, taken_apart

DOCUMENTED = (DataError,)


def seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as made:
        write_mnist(Path(made) / "raw", train=2, test=2)
        whole = pack("mnist", Path(made) / "raw", made).read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header, body = whole[8 : 8 + length], whole[8 + length :]
    return [joined(0, header, body), joined(1, header, body), joined(2, whole)]


def run(data: bytes, folder: Path) -> None:
    choice, parts = taken_apart(data, 2)
    file = folder / "mnist.safetensors"
    header, body = parts[0], b"--8<--".join(parts[1:])
    whole = data[1:] if choice % 3 == 2 else len(header).to_bytes(8, "little") + header + body
    file.write_bytes(_with_right_checksums(whole) if choice % 3 == 1 else whole)
    source = open_data("mnist", file)
    source.train()
    source.test()


def _with_right_checksums(whole: bytes) -> bytes:
    """As a person would write them who wants to be believed."""
    from safetensors import SafetensorError
    from safetensors.torch import load, save

    try:
        tensors = load(whole)
        about = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["__metadata__"]
        sums = {
            f"{part}_sha256": split_checksum(Split(tensors[f"{part}_images"], tensors[f"{part}_labels"]))
            for part in ("train", "test")
        }
        return bytes(save(tensors, {**about, **sums}))
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, RecursionError, OverflowError):
        return whole

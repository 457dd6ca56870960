"""Writes a safetensors file. The library's own writer makes a second temporary file, which a kill leaves behind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CHECKSUM = "checksum"
"""The name under which a file has the checksum of everything else in it; files of vmcr2 before 0.6 do not have it."""
_KINDS = {
    **{torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"},
    **{torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8"},
    **{torch.uint8: "U8", torch.bool: "BOOL"},
}
_ALIGNED = 8


def write_tensor_file(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors into a new file, tensor by tensor: no second copy of them is in memory.

    ``metadata`` gets a checksum, which :func:`tensors_are_whole` compares. Large elements come first, so that every
    tensor lies where its type needs it.
    """
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    for name, tensor in whole.items():
        if tensor.dtype not in _KINDS:
            raise TypeError(f"{name} is of {tensor.dtype}, which no safetensors file of vmcr2 holds")
    order = sorted(whole, key=lambda name: (-whole[name].element_size(), name))
    about = {**(metadata or {}), CHECKSUM: checksum_of(whole, metadata or {})}
    header: dict[str, Any] = {"__metadata__": about}
    end = 0
    for name in order:
        start, end = end, end + whole[name].nbytes
        header[name] = {
            "dtype": _KINDS[whole[name].dtype],
            "shape": list(whole[name].shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // _ALIGNED) * _ALIGNED)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(_bytes(whole[name]))


def tensors_are_whole(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bool:
    """Whether what was read is what was written. True of a file without a checksum: vmcr2 before 0.6 wrote none."""
    others = {name: value for name, value in metadata.items() if name != CHECKSUM}
    return CHECKSUM not in metadata or metadata[CHECKSUM] == checksum_of(tensors, others)


def checksum_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of names, types, shapes, metadata and every byte of the tensors."""
    names = sorted(tensors)
    described = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in names]
    digest = hashlib.sha256(json.dumps([described, sorted(metadata.items())]).encode())
    for name in names:
        digest.update(_bytes(tensors[name]))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> Any:
    """The memory of a contiguous tensor on the CPU, not copied."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data

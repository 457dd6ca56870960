"""The safetensors files of a run: each appears whole or not at all, and carries a checksum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from .._shared import CHECKSUM, atomic, tensors_are_whole, write_tensor_file
from ._records import DamagedError


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""
    with atomic(path) as temporary:
        write_tensor_file(temporary, tensors, metadata)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file. A missing or damaged one is a :class:`DamagedError`."""
    return read_tensors_with_metadata(path)[0]


def read_tensors_with_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Through one handle, so that both are of one file, also where another process replaces it meanwhile."""
    try:
        with _spelt_in_utf8(path) as spelt, safe_open(spelt, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    # names that are no UTF-8, types that this torch does not have, sizes that do not fit
    except (OSError, SafetensorError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise DamagedError(f"{path} is missing or damaged: {error}") from error
    if not tensors_are_whole(tensors, metadata):
        raise DamagedError(f"{path} is damaged: its checksum is not that of its content")
    return tensors, {name: value for name, value in metadata.items() if name != CHECKSUM}


@contextmanager
def _spelt_in_utf8(path: Path) -> Iterator[Path]:
    """The path, or another one of the same file: safetensors takes no names with bytes that are no UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        with path.open("rb") as file:
            yield Path(f"/proc/self/fd/{file.fileno()}")  # only Linux has such names
        return
    yield path


def tensors_under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin with ``prefix``, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

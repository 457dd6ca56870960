"""From samples as people have them to features: which form a run takes, and how each kind of input gets there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from .._shared import UserError
from ..data import (
    Block,
    DataError,
    Form,
    Preparation,
    Split,
    is_pillow,
    new_picture_parts,
    picture_blocks,
    picture_files,
    read_columns,
)
from ..training import Numerics, embed
from ._config import Config
from ._samples import samples_of
from ._views import with_views

_ROWS = 10_000
_TOGETHER = 1000  # samples that go through the network in one call, if they come one by one


@dataclass(frozen=True)
class InputForm:
    """What a run takes."""

    shape: tuple[int, ...]
    """of one sample: (channels, height, width), or (columns,)"""
    fit: str = "crop"
    """how a picture of another size gets there"""
    preparation: Preparation | None = None
    """how a table's row becomes numbers"""

    @property
    def is_pictures(self) -> bool:
        """Pictures, not rows."""
        return len(self.shape) == 3

    @property
    def pictures(self) -> Form:
        """Of pictures."""
        channels, height, width = self.shape
        return Form((channels, height, width), self.fit)

    def tensors(self, inputs: Any) -> Iterator[Tensor]:
        """The samples in the run's own form: uint8 (n, channels, height, width), or prepared float32 (n, columns).

        In several parts, so that many pictures need not be in memory at the same time.
        """
        parts = _joined(part for part in self._parts(inputs) if len(part))
        first = next(parts, None)
        if first is None:
            raise UserError("there are no samples to look at")
        yield first
        yield from parts

    def _parts(self, inputs: Any) -> Iterator[Tensor]:
        if isinstance(inputs, DataLoader):
            for batch in inputs:
                yield from self._parts(self._without_labels(batch))
        elif self.is_pictures:
            yield from new_picture_parts(inputs, self.pictures)
        else:
            yield self.rows(inputs)

    def _without_labels(self, batch: Any) -> Any:
        """The samples of a loader's batch: of a list the first part, unless it is a list of samples.

        Loaders of paths, and those with a ``collate_fn`` of their own, give lists of samples.
        """
        if not isinstance(batch, list | tuple) or not batch:
            return batch
        are_samples = len(set(map(type, batch))) == 1 and all(map(self._is_one, batch))
        return batch if are_samples and len(batch) > 1 else batch[0]

    def _is_one(self, given: Any) -> bool:
        """Whether it is one sample, not several or something else."""
        if isinstance(given, Tensor | np.ndarray):
            return tuple(given.shape) == self.shape
        return isinstance(given, str | os.PathLike | Mapping) or is_pillow(given)

    def rows(self, rows: Any) -> Tensor:
        """Rows as the network sees them, float32 (n, columns)."""
        if self.is_pictures:
            raise UserError("this run was trained on pictures: give pictures, not rows")
        if self.preparation is None:
            return self._numbers(rows)
        if isinstance(rows, str | os.PathLike):
            rows = _columns(Path(rows), self.preparation)
        elif isinstance(rows, list | tuple) and not rows:
            raise UserError("there are no rows to look at: the list is empty")
        return torch.from_numpy(self.preparation.transform(rows))

    def _numbers(self, rows: Any) -> Tensor:
        """Of a run that keeps no preparation: numbers are taken as they are."""
        if not isinstance(rows, Tensor | np.ndarray):
            raise UserError("this run keeps no preparation.json: give rows as an array or a tensor of numbers")
        x = torch.as_tensor(rows)
        if x.ndim != 2 or x.shape[1] != self.shape[0] or not x.is_floating_point():
            shape = "×".join(map(str, x.shape))
            raise UserError(f"rows must be float, n×{self.shape[0]}, got {x.dtype}, {shape}")
        broken = (~torch.isfinite(x)).any(1).nonzero()
        if len(broken):
            raise UserError(f"row {int(broken[0]) + 1} has a number that is not finite: correct it")
        return x.to(torch.float32)

    def blocks(self, paths: Sequence[Path], notes: list[str]) -> tuple[int, Iterator[Block]]:
        """How many samples these files and folders have, and the samples in blocks of bounded memory.

        What cannot be read is in the blocks too, with the reason. Sentences that a person should know are appended to
        ``notes``.
        """
        if self.is_pictures:
            files = picture_files(paths)
            return len(files.paths) + len(files.unreadable), picture_blocks(files, self.pictures)
        tables: list[tuple[Path, Tensor]] = []
        unreadable: list[tuple[str, str]] = []
        for path in paths:
            try:
                tables.append((path, self._prepared(path, notes)))
            except DataError as error:
                unreadable.append((str(path), str(error)))
        nothing = torch.empty(0, *self.shape)
        first = [Block([], nothing, unreadable)] if unreadable else []
        return sum(len(rows) for _, rows in tables) + len(unreadable), chain(
            first, _row_blocks(tables, named=len(paths) > 1)
        )

    def _prepared(self, path: Path, notes: list[str]) -> Tensor:
        if self.preparation is None:
            raise DataError("this run keeps no preparation.json, so it cannot read tables: use it in Python")
        return torch.from_numpy(self.preparation.transform(_columns(path, self.preparation), notes))


def _joined(parts: Iterable[Tensor]) -> Iterator[Tensor]:
    """The same samples in parts of at least 1,000: a list of pictures, and many loaders, give them one by one."""
    held: list[Tensor] = []
    for part in parts:
        held.append(part)
        if sum(map(len, held)) >= _TOGETHER:
            yield torch.cat(held) if len(held) > 1 else part
            held = []
    if held:
        yield torch.cat(held)


def _columns(path: Path, preparation: Preparation) -> Any:
    """Of a table's file."""
    return read_columns(path, as_text=[own.name for own in preparation.prepared if own.kind == "category"])


def _row_blocks(tables: list[tuple[Path, Tensor]], *, named: bool) -> Iterator[Block]:
    """Rows are called by their numbers from 1 on; ``named`` with their file before it."""
    for path, rows in tables:
        before = f"{path}:" if named else ""
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            yield Block([f"{before}{start + at + 1}" for at in range(len(part))], part, [])


def embedded(network: nn.Module, samples: Tensor, config: Config, numerics: Numerics) -> Tensor:
    """Features (n, d) of samples in the run's own form."""
    labels = torch.zeros(len(samples), dtype=torch.int64)
    inputs = samples_of(Split(samples, labels), config, numerics.device)
    return embed(with_views(config, network, samples.shape[1:]), inputs, numerics)

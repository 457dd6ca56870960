"""From samples as people have them to features: which form a run takes, and how each kind of input gets there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    new_pictures,
    picture_blocks,
    picture_files,
    read_columns,
)
from ..training import Numerics, embed
from ._config import Config
from ._samples import samples_of

_ROWS = 10_000


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
        """The samples, uint8 (n, channels, height, width) or float32 (n, columns), in one part or in several."""
        if isinstance(inputs, DataLoader):
            for batch in inputs:
                yield self._one(batch[0] if isinstance(batch, list | tuple) else batch)
        else:
            yield self._one(inputs)

    def _one(self, inputs: Any) -> Tensor:
        return new_pictures(inputs, self.pictures) if self.is_pictures else self.rows(inputs)

    def rows(self, rows: Any) -> Tensor:
        """Rows as the network sees them, float32 (n, columns)."""
        if self.is_pictures:
            raise UserError("this run was trained on pictures: give pictures, not rows")
        if isinstance(rows, Tensor):
            if rows.ndim != 2 or rows.shape[1] != self.shape[0] or not rows.is_floating_point():
                shape = "×".join(map(str, rows.shape))
                raise UserError(
                    f"a tensor of prepared rows must be float, n×{self.shape[0]}, got {rows.dtype}, {shape}"
                )
            return rows.to(torch.float32)
        prepare = self._known_preparation()
        if isinstance(rows, str | os.PathLike):
            rows = self.read(Path(rows))
        elif isinstance(rows, list | tuple) and not rows:
            raise UserError("there are no rows to look at: the list is empty")
        return torch.from_numpy(prepare.transform(rows))

    def read(self, path: Path) -> Any:
        """The columns of a table's file."""
        prepared = self._known_preparation().prepared
        return read_columns(path, as_text=[own.name for own in prepared if own.kind == "category"])

    def _known_preparation(self) -> Preparation:
        if self.preparation is None:
            raise UserError("this run keeps no preparation.json: its rows are not a table's; give a float32 tensor")
        return self.preparation

    def blocks(self, paths: Sequence[Path], notes: list[str]) -> tuple[int, Iterator[Block]]:
        """How many samples these files and folders have, and the samples in blocks of bounded memory.

        Sentences that a person should know are appended to ``notes``.
        """
        if self.is_pictures:
            files = picture_files(paths)
            return len(files), picture_blocks(files, self.pictures)
        tables = [(path, self._prepared(path, notes)) for path in paths]
        return sum(len(rows) for _, rows in tables), _row_blocks(tables)

    def _prepared(self, path: Path, notes: list[str]) -> Tensor:
        columns = self.read(path)
        try:
            return torch.from_numpy(self._known_preparation().transform(columns, notes))
        except DataError as error:
            raise DataError(f"{path}: {error}") from None


def _row_blocks(tables: list[tuple[Path, Tensor]]) -> Iterator[Block]:
    """Rows are named by their numbers from 1 on; of several files, with the file before it."""
    for path, rows in tables:
        before = f"{path}:" if len(tables) > 1 else ""
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            yield Block([f"{before}{start + at + 1}" for at in range(len(part))], part, [])


def embedded(network: nn.Module, form: InputForm, inputs: Any, config: Config, numerics: Numerics) -> Tensor:
    """Features (n, d) of samples in any form."""
    parts = [_features(network, x, config, numerics) for x in form.tensors(inputs) if len(x)]
    if not parts:
        raise UserError("there are no samples to look at")
    return torch.cat(parts)


def _features(network: nn.Module, x: Tensor, config: Config, numerics: Numerics) -> Tensor:
    labels = torch.zeros(len(x), dtype=torch.int64)
    return embed(network, samples_of(Split(x, labels), config, numerics.device), numerics)

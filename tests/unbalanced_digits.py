"""Digits with two large classes: more of them in a batch than an even share has room for."""

from __future__ import annotations

from typing import Any

import torch

from vmcr2.data import Split, open_data


class UnbalancedDigits:
    """140 images of each of the first two classes, 20 of the others."""

    def __init__(self) -> None:
        self._source = open_data("digits")
        whole = self._source.train()
        wanted = [140, 140, *[20] * 8]
        rows = torch.cat([torch.where(whole.labels == j)[0][:n] for j, n in enumerate(wanted)])
        self._split = Split(whole.images[rows], whole.labels[rows])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def train(self) -> Split:
        return self._split

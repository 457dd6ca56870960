"""A split as the training loop takes it: pictures on the device, pictures that stream to it, or rows of numbers."""

from __future__ import annotations

import torch

from .._shared import UserError
from ..data import Pictures, Split, StreamedPictures, fits_on
from ..training import NoisyRows, Rows, Samples
from ._config import Config

_ONE = 1  # rows of a batch that nobody trains on


def samples_of(split: Split, config: Config, device: torch.device, *, batch_size: int = _ONE) -> Samples:
    """The samples of a split, for training in batches of ``batch_size``, or to be measured."""
    if split.inputs.ndim == 2:
        if config.run.stream == "yes":
            raise UserError("stream is yes, but only pictures can be streamed: leave it out")
        return _rows(split, config.data.input_noise, device)
    own, seed = config.data, config.run.seed
    stays = config.run.stream == "no" or (config.run.stream == "auto" and fits_on(device, split.inputs))
    if stays:
        return Pictures(split, own, seed=seed, device=device)
    return StreamedPictures(split, own, batch_size=batch_size, seed=seed, device=device)


def _rows(split: Split, noise: float, device: torch.device) -> Rows:
    x, labels = split.inputs.to(device), split.labels.to(device)
    if not noise:
        return Rows(x, labels)
    return NoisyRows(x, labels, noise * x.std(0, correction=0))

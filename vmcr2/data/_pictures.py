"""Images on a device as a network sees them: augmented in training, plain otherwise."""

from __future__ import annotations

import torch
from torch import Tensor

from ._augment import augment_crop, augment_resized_crop, flip_only, normalize, plain
from ._settings import DataSettings
from ._split import Split


class Pictures:
    """A split as the training loop takes it.

    Args:
        split: uint8 images and their labels.
        settings: the section ``data`` of a configuration.
        seed: of the augmentation.
        device: where the images go, once.
    """

    def __init__(self, split: Split, settings: DataSettings, *, seed: int, device: torch.device) -> None:
        self.images = split.images.to(device)
        self.labels = split.labels.to(device)
        self.host_labels = split.labels
        """The same labels on the host, where reading them does not wait for the device."""
        self._settings = settings
        self._seed = seed

    def __len__(self) -> int:
        return len(self.host_labels)

    def training_batch(self, index: Tensor, draw: Tensor) -> Tensor:
        """The images of ``index`` (n,), augmented for the epoch ``draw``."""
        own, seed = self._settings, self._seed
        if own.augmentation == "crop":
            x = augment_crop(
                self.images, index, draw, seed=seed, size=own.image_size, padding=own.crop_padding, flip=own.flip
            )
        elif own.augmentation == "resized-crop":
            scale = (own.least_area, 1.0)
            x = augment_resized_crop(
                self.images, index, draw, seed=seed, size=own.image_size, flip=own.flip, scale=scale
            )
        elif own.augmentation == "flip" and own.flip:
            x = flip_only(self.images, index, draw, seed=seed, size=own.image_size)
        else:
            x = plain(self.images, index, size=own.image_size)
        return self._standardised(x)

    def plain_batch(self, index: Tensor) -> Tensor:
        """The images of ``index`` without augmentation."""
        return self._standardised(plain(self.images, index, size=self._settings.image_size))

    def _standardised(self, x: Tensor) -> Tensor:
        return normalize(x, self._settings.mean, self._settings.std) if self._settings.mean else x

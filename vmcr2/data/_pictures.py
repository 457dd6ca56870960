"""Images as a network sees them: augmented in training, plain otherwise. The whole set is on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from ._augment import augment_crop, augment_resized_crop, flipped, normalize, plain
from ._mix import Kind, Mix, decide_mix, mix_pictures, mixed_memberships
from ._resample import resample
from ._settings import DataSettings
from ._split import Split

_CHUNK = 4096


class Pictures:
    """A split as the training loop takes it.

    Args:
        split: uint8 images and their labels.
        settings: the section ``data`` of a configuration.
        seed: of the augmentation.
        device: where the images go, once.
    """

    def __init__(self, split: Split, settings: DataSettings, *, seed: int, device: torch.device) -> None:
        self.images = self._placed(split, settings, device)
        self.labels = split.labels.to(device)
        self.host_labels = split.labels
        """The same labels on the host, where reading them does not wait for the device."""
        self._settings = settings
        self._seed = seed
        self.mixing = settings.mix != "none"
        """Whether training pictures are mixed now. It may be switched between epochs."""

    def _placed(self, split: Split, settings: DataSettings, device: torch.device) -> Tensor:
        """The images on the device, in the size that the network sees if that is always the same."""
        images = split.images.to(device)
        return resized_once(images, settings.image_size) if resizes_always(images, settings) else images

    def __len__(self) -> int:
        return len(self.host_labels)

    def bring(self, index: Tensor) -> None:
        """Nothing to do before a batch: the images are on the device."""

    def expect(self, index: Tensor) -> None:
        """Likewise."""

    def training_batch(self, index: Tensor, draw: Tensor, others: Tensor | None = None) -> Tensor:
        """The images of ``index`` (n,), augmented for the epoch ``draw``.

        If pictures are mixed, each is mixed with the one before it, the first with the last; or with ``others`` (n,).
        """
        x = self._augmented(self.images, index, draw, index)
        if not self.mixing:
            return x
        return self._mixed(
            x, None if others is None else self._augmented(self.images, others, draw, others), index, draw
        )

    def memberships(self, index: Tensor, labels: Tensor, draw: Tensor, num_classes: int) -> Tensor:
        """Π (n, k) of a whole batch that is mixed, from its labels (n,)."""
        return mixed_memberships(labels, labels.roll(1), self._mix(index, draw).share, num_classes)

    def _mix(self, numbers: Tensor, draw: Tensor) -> Mix:
        return decide_mix(numbers, draw, seed=self._seed, size=self._settings.image_size, kind=self._kind)

    def _mixed(self, x: Tensor, others: Tensor | None, numbers: Tensor, draw: Tensor) -> Tensor:
        others = x.roll(1, 0) if others is None else others
        return mix_pictures(x, others, self._mix(numbers, draw), self._kind)

    @property
    def _kind(self) -> Kind:
        return "mixup" if self._settings.mix == "mixup" else "cutmix"

    def plain_batch(self, index: Tensor) -> Tensor:
        """The images of ``index`` without augmentation."""
        return self._plain(self.images, index)

    def _augmented(self, images: Tensor, rows: Tensor, draw: Tensor, numbers: Tensor) -> Tensor:
        """The samples of these numbers, which are in these rows of ``images``."""
        own, seed, size = self._settings, self._seed, self._settings.image_size
        if own.augmentation == "crop":
            padding = own.crop_padding
            x = augment_crop(images, rows, draw, seed=seed, size=size, padding=padding, flip=own.flip, numbers=numbers)
        elif own.augmentation == "resized-crop":
            scale = (own.least_area, 1.0)
            x = augment_resized_crop(
                images, rows, draw, seed=seed, size=size, flip=own.flip, scale=scale, numbers=numbers
            )
        else:
            x = self._sized(images, rows)
            if own.augmentation == "flip" and own.flip:
                x = flipped(x, numbers, draw, seed=seed)
        return self._standardised(x)

    def _plain(self, images: Tensor, rows: Tensor) -> Tensor:
        return self._standardised(self._sized(images, rows))

    def _sized(self, images: Tensor, rows: Tensor) -> Tensor:
        """In the network's size, from 0 to 1."""
        if images.dtype == torch.float32:  # resized before
            return images[rows] / 255
        return plain(images, rows, size=self._settings.image_size)

    def _standardised(self, x: Tensor) -> Tensor:
        return normalize(x, self._settings.mean, self._settings.std) if self._settings.mean else x


def resizes_always(images: Tensor, settings: DataSettings) -> bool:
    """Whether every use of an image makes it smaller in the same way, and the small ones need no more memory.

    Resized images are float32, because rounding them would change the results: four bytes for one.
    """
    height, width = images.shape[2:]
    smaller = min(height, width) >= settings.image_size < max(height, width)
    return smaller and settings.augmentation in ("none", "flip") and 4 * settings.image_size**2 <= height * width


def resized_once(images: Tensor, size: int) -> Tensor:
    """All images as ``plain`` sees them, float32 from 0 to 255: resizing in every step halves the speed of a run."""
    height, width = images.shape[2:]
    small = torch.empty(len(images), images.shape[1], size, size, device=images.device)
    for start in range(0, len(images), _CHUNK):
        index = torch.arange(start, min(start + _CHUNK, len(images)), device=images.device)
        zero = torch.zeros_like(index)
        small[start : start + _CHUNK] = resample(images, index, zero, zero, zero + height, zero + width, size)
    return small

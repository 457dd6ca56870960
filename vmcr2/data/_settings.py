"""Which data a run learns from, and how it sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .._shared import Settings, setting

Augmentation = Literal["none", "crop", "flip", "resized-crop"]


@dataclass(frozen=True)
class DataSettings(Settings):
    """The section ``data`` of a configuration."""

    name: str = setting("digits", name="data")
    """Name of the data set."""
    path: str | None = setting(None, name="data_path", decides=False)
    """Where it is: a packed file, or a folder. None looks in the usual places."""
    holdout: int = setting(0, at_least=0)
    """Training images set aside to compare settings on, the same for every seed. The test set is then not read."""
    label_noise: float = setting(0.0, at_least=0, at_most=1)
    """Share of the training labels that are replaced by labels drawn from all classes: to see how much they matter."""
    augmentation: Augmentation = "none"
    """"crop" (pad, random crop, flip), "flip" (resize, flip), "resized-crop" (of random area and shape), "none"."""
    crop_padding: int = setting(8, at_least=0, only_with={"augmentation": ("crop",)})
    """Black border that "crop" adds before it cuts."""
    least_area: float = setting(0.08, above=0, at_most=1, only_with={"augmentation": ("resized-crop",)})
    """The smallest part of a picture that "resized-crop" may cut out."""
    flip: bool = setting(True, only_with={"augmentation": ("crop", "flip", "resized-crop")})
    """Whether the augmentation mirrors images, each with probability 1/2."""
    image_size: int = setting(8, at_least=1)
    """Height and width that the network sees."""
    mean: tuple[float, ...] = ()
    """Subtracted from the images, one number per channel. Empty for none, as in Table 2 of the paper."""
    std: tuple[float, ...] = setting((), above=0)
    """The images are divided by it, one number per channel."""

    def contradictions(self) -> Iterator[str]:
        """Mean and std need each other."""
        if len(self.mean) != len(self.std):
            yield "mean and std go together: give one number per channel for each"

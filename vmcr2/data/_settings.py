"""Which data a run learns from, and how it sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .._shared import Settings, setting

FOLDER, TABLE = "pictures", "table"
"""Names of a person's own data: a folder of pictures, a file with rows."""
GIVEN_PICTURES, GIVEN_ROWS = "given-pictures", "given-rows"
"""Names of data that were made in Python: a run folder does not say where they are."""
OWN = (FOLDER, TABLE, GIVEN_PICTURES, GIVEN_ROWS)
ROWS = (TABLE, GIVEN_ROWS)
_ROWS = {"data": ROWS}
_IN_FILES = {"data": (FOLDER, TABLE)}
_READING = ("data", "data_path", "stored_size", "channels", "fit", "label", "test_path", "test_share", "split_seed")


@dataclass(frozen=True)
class DataSettings(Settings):
    """The section ``data`` of a configuration."""

    name: str = setting("digits", name="data")
    """Name of a known data set; "pictures" for a folder, "table" for a file; "given-pictures" or "given-rows" if it was
    made in Python."""
    # a known data set is the same everywhere, but two folders of people's own are two data sets
    path: str | None = setting(None, name="data_path", decides=False, decides_with=_IN_FILES)
    """Where it is: a packed file, a folder, a table. None looks for a known data set in the usual places."""
    stored_size: int = setting(0, at_least=0, only_with={"data": (FOLDER,)})
    """Height and width at which a folder's pictures are stored. 0: as they are, if all have one size."""
    channels: int = setting(3, at_least=1, at_most=3, only_with={"data": (FOLDER,)})
    """3 for colour, 1 for grey."""
    fit: Literal["crop", "stretch", "pad"] = setting("crop", only_with={"data": (FOLDER,)})
    """How a picture becomes a square: "crop" (its middle), "stretch", "pad" (with black)."""
    label: str | None = setting(None, only_with={"data": (TABLE,)})
    """The table's column with the classes."""
    test_path: str | None = setting(None, only_with={"data": (TABLE,)})
    """A table with the test rows. None: a share of the rows is the test set."""
    test_share: float = setting(0.2, above=0, below=1, only_with=_IN_FILES)
    """The share of every class that is the test set, if the data have none of their own."""
    split_seed: int = setting(0, at_least=0, below=2**63, only_with=_IN_FILES)
    """Of that split. It is the same for every ``seed`` of a run."""
    validation: bool = setting(False, only_with={"data": OWN})
    """Measure on the data's own validation samples. The test set is then not read."""
    holdout: int = setting(0, at_least=0)
    """Training images set aside to compare settings on, the same for every seed. The test set is then not read."""
    calibration_share: float = setting(0.1, at_least=0, below=1)
    """Share of the training samples, at most 1,000 in all, that are not trained on: probabilities and refusal are
    calibrated on them. 0 for none. With a hold-out or validation samples nothing more is set aside: these serve."""
    label_noise: float = setting(0.0, at_least=0, at_most=1)
    """Share of the training labels that are replaced by labels drawn from all classes: to see how much they matter."""
    input_noise: float = setting(0.0, at_least=0, only_with=_ROWS)
    """Gaussian noise that rows get in training, in standard deviations of each column."""
    augmentation: Literal["none", "crop", "flip", "resized-crop"] = setting("none", idle_with=_ROWS)
    """"crop" (pad, random crop, flip), "flip" (resize, flip), "resized-crop" (of random area and shape), "none"."""
    crop_padding: int = setting(8, at_least=0, only_with={"augmentation": ("crop",)})
    """Black border that "crop" adds before it cuts."""
    least_area: float = setting(0.08, above=0, at_most=1, only_with={"augmentation": ("resized-crop",)})
    """The smallest part of a picture that "resized-crop" may cut out."""
    flip: bool = setting(True, only_with={"augmentation": ("crop", "flip", "resized-crop")})
    """Whether the augmentation mirrors images, each with probability 1/2."""
    mix: Literal["none", "mixup", "cutmix"] = setting("none", idle_with=_ROWS)
    """Mix every training picture with another of its batch: "mixup" (both in the whole picture) or "cutmix" (a square
    of the other). The picture then belongs to both classes, by their shares."""
    image_size: int = setting(8, at_least=1, idle_with=_ROWS)
    """Height and width that the network sees."""
    mean: tuple[float, ...] = setting((), idle_with=_ROWS)
    """Subtracted from the images, one number per channel. Empty for none, as in Table 2 of the paper."""
    std: tuple[float, ...] = setting((), above=0, idle_with=_ROWS)
    """The images are divided by it, one number per channel."""

    def contradictions(self) -> Iterator[str]:
        """Mean and std need each other; there is one set to measure on."""
        if len(self.mean) != len(self.std):
            yield "mean and std go together: give one number per channel for each"
        if self.holdout and self.validation:
            yield "holdout and validation both say what to measure on: leave one out"
        if self.channels == 2:
            yield "channels takes 1 (grey) or 3 (colour), got 2"

    @property
    def title(self) -> str:
        """The name of a known data set; of people's own, that of the folder, or of the file without its ending."""
        if self.name not in OWN or self.path is None:
            return self.name
        return Path(self.path).stem if self.name == TABLE else Path(self.path).name

    def reading(self) -> dict[str, Any]:
        """What decides which samples are read, by flat name: configurations that are equal here share a source."""
        return {name: value for name, value in self.flat().items() if name in _READING}

    def input_shape(self, sample_shape: tuple[int, ...]) -> tuple[int, ...]:
        """What the network sees of a sample of that shape."""
        return (sample_shape[0], self.image_size, self.image_size) if len(sample_shape) == 3 else sample_shape

"""The digits of scikit-learn: the default data set, which needs no download."""

from __future__ import annotations

import numpy as np

from ._catalogue import DataInfo
from ._errors import DataError
from ._split import Part, Reader, Split, make_split


class DigitsReader(Reader):
    """1797 images of 8×8. Every class is split 80/20, always in the same way, whatever the seed of a run."""

    def __init__(self, info: DataInfo) -> None:
        super().__init__(None, tuple("0123456789"), info.image_shape)
        self.info = info

    def load(self, part: Part) -> Split:
        """The images in the order of the split, 0..16 scaled to 0..255."""
        try:  # here, because importing scikit-learn costs a second
            from sklearn.datasets import load_digits
            from sklearn.model_selection import train_test_split
        except ImportError as error:
            raise DataError("the data set digits is part of scikit-learn: pip install scikit-learn") from error
        pixels, labels = load_digits(return_X_y=True)
        train, test = train_test_split(np.arange(len(labels)), test_size=0.2, random_state=0, stratify=labels)
        rows = train if part == "train" else test
        images = np.rint(pixels[rows] * (255 / 16)).astype(np.uint8)
        return make_split(images, labels[rows], self.info.image_shape, self.info.classes, "scikit-learn's digits")

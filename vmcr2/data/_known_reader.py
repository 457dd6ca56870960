"""What readers of known data sets share: a split of the published size must have the published content."""

from __future__ import annotations

from pathlib import Path

from ._catalogue import DataInfo
from ._errors import DataError
from ._files import md5
from ._split import Part, Reader, Split


class KnownReader(Reader):
    """A reader of raw files that were published with checksums."""

    def __init__(self, info: DataInfo, path: Path, class_names: tuple[str, ...]) -> None:
        super().__init__(path, class_names, info.image_shape)
        self.info = info

    def read(self, part: Part) -> Split:
        """The split; an error if a file was damaged or changed. A part of a data set has no published checksum."""
        split = super().read(part)
        if len(split.labels) == (self.info.train_size if part == "train" else self.info.test_size):
            self._compare(part)
        return split

    def _compare(self, part: Part) -> None:
        expected = self.info.splits.get(part)
        if expected is None:
            refuse_other_md5(self.info, self.raw_files(part))
        elif self.checksum(part) != expected:
            raise DataError(
                f"{self.path} holds a {part} split of {self.info.title} of the published size but other content "
                f"(sha256 {self.checksum(part)}, expected {expected}): fetch the raw files again"
            )


def refuse_other_md5(info: DataInfo, files: dict[str, Path]) -> bool:
    """Compare files, by their catalogue names, with the published md5. False if none is published."""
    published = {path: info.md5[key] for key, path in files.items() if key in info.md5}
    for file, expected in published.items():
        found = md5(file)
        if found != expected:
            raise DataError(f"{file} has the md5 {found}, published is {expected}: fetch it again")
    return bool(published)

"""The cache of packed pictures: its file, and the survey beside it."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from vmcr2.data import DataError
from vmcr2.data._stored_pictures import PictureFile, StoredPictures
from vmcr2.data._survey import Survey

from .pieces import joined, taken_apart

DOCUMENTED = (DataError,)


@functools.cache
def seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "x.safetensors"
        with PictureFile(path, (1, 2, 2), {"train": 2, "test": 1}, reserve=1000) as file:
            file.add("train", bytes(4), 0)
            file.add("train", bytes(range(4)), 1)
            file.add("test", bytes(4), 1)
            file.finish({"class_names": '["a", "b"]', "notes": '{"broken": 1, "first_broken": [["x", "y"]]}'})
        whole = path.read_bytes()
        survey = b'{"sizes": [[2, 2, 3]], "modes": {"L": 3}, "coloured": 0, "moving": 0}'
    length = int.from_bytes(whole[:8], "little")
    header, body = whole[8 : 8 + length].strip(), whole[8 + length :]
    return [joined(0, header, body, survey), joined(1, whole, b"", survey)]


def run(data: bytes, folder: Path) -> None:
    choice, (header, body, survey, *_) = taken_apart(data, 3)
    (folder / "survey.json").write_bytes(survey)
    found = Survey.read(folder / "survey.json")
    if found is not None:
        found.plan(None, None, "crop")
    file = folder / "x.safetensors"
    file.write_bytes(header if choice % 2 else len(header).to_bytes(8, "little") + header + body)
    reader = StoredPictures(file, folder)
    for part in reader.parts:
        reader.load(part)

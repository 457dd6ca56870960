"""A folder of pictures: names of folders and files, and the pictures in them."""

from __future__ import annotations

import io
import os
from pathlib import Path

from PIL import Image

from vmcr2.data import DataError, from_folder

from .pieces import joined, taken_apart

DOCUMENTED = (DataError,)


def _png(shade: int) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (4, 4), shade).save(stream, "PNG")
    return stream.getvalue()


def seeds() -> list[bytes]:
    flat = b"a/1.png\na/2.png\nb/1.png\nb/2.png"
    split = b"train/a/1.png\ntrain/b/1.png\ntest/a/2.png\ntest/b/2.png\nval/a/1.png"
    return [
        joined(0, flat, _png(3), _png(200)),
        joined(0, split, _png(3), _png(200)),
        joined(0, "é/1.png\nb/ü.gif\nb/2.png\né/3.png".encode(), _png(9)),
    ]


def run(data: bytes, folder: Path) -> None:
    _, (names, *pictures) = taken_apart(data, 2)
    root = folder / "root"
    root.mkdir()
    for row, name in enumerate(names.split(b"\n")[:20]):
        # as an archive's names would be unpacked: nothing leads out of the folder
        parts = [part[:200] for part in name.replace(b"\0", b"").split(b"/") if part not in (b"", b".", b"..")][:6]
        if not parts:
            continue
        path = os.path.join(os.fsencode(root), *parts)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(pictures[row % len(pictures)])
        except OSError:  # a file where a folder should be
            continue
    source = from_folder(root, cache=folder / "cache")
    source.train()
    source.test()

"""Pictures of all formats: what their headers say, their pixels, and their digests, as ``data check`` takes them."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from vmcr2.data import DataError, Form, UnreadableError, new_pictures, picture_from_bytes
from vmcr2.data._decode import Task, decode

DOCUMENTED = (DataError,)
_MOST_PIXELS = 1_000_000  # so that most inputs take milliseconds
_FORM = Form((3, 8, 8), "crop")


def seeds() -> list[bytes]:
    noise = np.random.default_rng(0).integers(0, 256, (12, 10, 4), dtype=np.uint8)
    found = []
    for kind, mode in (
        ("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "P"), ("PNG", "1"), ("JPEG", "RGB"), ("JPEG", "L"), ("GIF", "P"),
        ("BMP", "RGB"), ("PPM", "RGB"), ("TIFF", "RGB"), ("TIFF", "I;16"), ("WEBP", "RGB"), ("TGA", "RGB"),
        ("ICO", "RGBA"), ("JPEG2000", "RGB"),
    ):  # fmt: skip
        stream = io.BytesIO()
        picture = Image.fromarray(noise)
        deep = Image.fromarray(noise[:, :, 0].astype(np.uint16))
        exif = {"exif": b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00"}
        (deep if mode == "I;16" else picture.convert(mode)).save(stream, kind, **(exif if kind == "JPEG" else {}))
        found.append(stream.getvalue())
    return found


def run(data: bytes, folder: Path) -> None:
    path = folder / "x.png"
    path.write_bytes(data)
    for task in (Task(), Task(3, (8, 8), "crop"), Task(1, (8, 8), "pad"), Task(3, (12, 10)), Task(3, digest=True)):
        seen, pixels = decode(str(path), replace(task, most_pixels=_MOST_PIXELS))
        if not isinstance(seen, str):
            if not all(type(side) is int and side > 0 for side in (seen.width, seen.height)):
                raise AssertionError(f"a picture of {seen.width!r}×{seen.height!r}")
            expected = 64 if task.digest else task.channels * task.size[0] * task.size[1]
            if len(pixels) not in (expected, 0):
                raise AssertionError(f"{len(pixels)} bytes, expected {expected}")
    with contextlib.suppress(UnreadableError):
        picture_from_bytes(data, _FORM, most_pixels=_MOST_PIXELS)
    if len(data) % 8 == 0:  # with the package's own limit: some take seconds
        new_pictures(path, _FORM)

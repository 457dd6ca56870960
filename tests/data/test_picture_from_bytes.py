"""Pictures that arrive as bytes: the same pixels as from a file, and a kind for what is wrong."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from picture_folders import Image, noise

from vmcr2.data import Form, UnreadableError, new_pictures, picture_from_bytes

GREY, COLOUR = Form((1, 8, 8), "crop"), Form((3, 12, 10), "pad")


def written(kind: str, mode: str = "RGB", size: tuple[int, int] = (40, 30), **options: Any) -> bytes:
    content = io.BytesIO()
    Image.fromarray(noise(*size, 3)).convert(mode).save(content, kind, **options)
    return content.getvalue()


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return written("JPEG", exif=exif)


@pytest.mark.parametrize("form", [GREY, COLOUR])
def test_the_same_pixels_as_from_a_file(tmp_path: Path, form: Form) -> None:
    contents = [
        *(written("PNG", mode) for mode in ("RGB", "L", "RGBA", "P", "1", "I;16")),
        *(written("JPEG", mode) for mode in ("RGB", "CMYK")),
        *(written(kind) for kind in ("GIF", "BMP", "TIFF", "WEBP", "PPM")),
        *(turned(), written("JPEG", size=(900, 700))),
    ]
    for at, content in enumerate(contents):
        (tmp_path / f"{at}.png").write_bytes(content)
    expected = new_pictures(tmp_path, form)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda one: picture_from_bytes(one, form, most_pixels=10**6), contents))
    assert torch.equal(torch.stack(found), expected)


@pytest.mark.parametrize(
    ("content", "kind", "why"),
    [
        (b"I am a text.", "unknown", "no picture of a known format"),
        (b"", "unknown", "no picture of a known format"),
        (written("ICO", size=(16, 16)), "unknown", "no picture of a known format"),
        (written("PNG", size=(101, 100)), "too large", "more than 10000 pixels"),
        (written("PNG", size=(90, 90))[:3000], "broken", ".+"),
        (written("TIFF", "F"), "broken", "fractions"),
    ],
)
def test_what_cannot_be_used(content: bytes, kind: str, why: str) -> None:
    with pytest.raises(UnreadableError, match=why) as error:
        picture_from_bytes(content, GREY, most_pixels=10_000)
    assert error.value.kind == kind

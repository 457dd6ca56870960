"""Thumbnails of the run folder as data URIs, small enough for one page."""

from __future__ import annotations

import base64
import io
from typing import NamedTuple

import numpy as np

from ._read import Array, RunRecord

_LOSSLESS_BYTES = 300_000
_QUALITIES = (85, 70, 50)


class Strip(NamedTuple):
    """Pictures side by side in one image."""

    uri: str
    number: int
    width: int
    """of all of them, in pixels"""
    height: int


def strips(pictures: Array, budget: int) -> list[Strip]:
    """One strip per row of (rows, count, channels, height, width) within ``budget`` bytes of page.

    PNG if that is small, as for digits; else JPEG with lower and lower quality, then fewer pictures. Empty if even one
    picture per row is too much.
    """
    if not pictures.size:
        return []
    for count in sorted({pictures.shape[1], max(1, pictures.shape[1] // 2), 1}, reverse=True):
        rows = [_side_by_side(row[:count]) for row in pictures]
        for quality in (None, *_QUALITIES):
            if quality is None and pictures[:, :count].nbytes > _LOSSLESS_BYTES:
                continue
            uris = [_data_uri(row, quality) for row in rows]
            if sum(map(len, uris)) <= budget:
                return [Strip(uri, count, row.shape[1], row.shape[0]) for uri, row in zip(uris, rows, strict=True)]
    return []


def nearest_pictures(run: RunRecord) -> Array | None:
    """(k, count, channels, height, width), or None."""
    found = run.tensors.get("nearest_pictures")
    return found if found is not None and found.ndim == 5 and found.dtype == np.uint8 and found.size else None


def worst_pictures(run: RunRecord) -> tuple[Array, Array, Array] | None:
    """Pictures (n, 1, channels, height, width), true labels and answers; None if the folder has none."""
    try:
        found = run.tensors["worst_pictures"], run.tensors["worst_labels"], run.tensors["worst_predicted"]
    except KeyError:
        return None
    return found[0][:, None], found[1], found[2]


def _side_by_side(pictures: Array) -> Array:
    """(count, channels, height, width) to (height, count·width, channels)."""
    count, channels, height, width = pictures.shape
    return np.ascontiguousarray(pictures.transpose(2, 0, 3, 1).reshape(height, count * width, channels))


def _data_uri(picture: Array, quality: int | None) -> str:
    from PIL import Image  # imported here, so that training does not import it

    grey = picture.shape[2] == 1
    image = Image.fromarray(picture[:, :, 0] if grey else picture[:, :, :3])
    written = io.BytesIO()
    if quality is None:
        image.save(written, "PNG", optimize=True)
    else:
        image.save(written, "JPEG", quality=quality)
    kind = "png" if quality is None else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode()}"

"""A picture beside its nearest training pictures, as one PNG."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from ._kept import Neighbors
from ._rows_file import whole_file

_SIDE, _GAP, _LINE = 96, 8, 14


def write_sheet(path: Path, asked: Tensor, found: Neighbors) -> None:
    """One row for each sample: the sample (uint8, (n, C, H, W)), then its neighbours with class and cosine."""
    from PIL import Image, ImageDraw

    if found.pictures is None:
        raise ValueError("rows of a table have no pictures")
    count = found.labels.shape[1]
    width, height = (count + 1) * (_SIDE + _GAP) + _GAP, _SIDE + 2 * _LINE + _GAP
    sheet = Image.new("RGB", (width, height * len(asked) + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for row in range(len(asked)):
        top = _GAP + row * height
        _place(sheet, asked[row], _GAP, top)
        for at in range(count):
            left = _GAP + (at + 1) * (_SIDE + _GAP)
            _place(sheet, found.pictures[row, at], left, top)
            said = found.names[row][at].encode("ascii", "replace").decode()[:16]  # what the built-in font has
            draw.text((left, top + _SIDE), f"{said}\n{found.cosines[row, at]:.2f}", fill="black")
    with whole_file(path) as temporary:
        sheet.save(temporary, format="PNG")


def _place(sheet: object, pixels: Tensor, left: int, top: int) -> None:
    from PIL import Image

    array = pixels.permute(1, 2, 0).numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    sheet.paste(picture.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.NEAREST), (left, top))  # type: ignore[attr-defined]

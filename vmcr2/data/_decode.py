"""Decodes one picture: any size and mode to 8-bit rows of one shape.

This file is also a program: :mod:`._workers` runs it as its worker process. That is why it imports no torch and nothing
of this package: a worker starts in a tenth of a second and takes little memory.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
import os
import signal
import stat
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image, TiffImagePlugin, UnidentifiedImageError

if TYPE_CHECKING:
    from typing import BinaryIO

MOST_PIXELS = 80_000_000
"""A picture with more is not decoded: it would take gigabytes, and a small file can claim any size."""
BROKEN, UNKNOWN, TOO_LARGE = "broken", "unknown", "too large"
"""Why a picture cannot be used, for programs."""
# what people keep photographs and drawings in; formats that run other programs, such as EPS, are left out
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "PPM", "TIFF", "WEBP", "MPO", "AVIF", "JPEG2000", "TGA", "ICO")
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = 5  # orientations from here on exchange width and height
_GREY = ("1", "L", "LA", "La", "I", "F")


@dataclass(frozen=True)
class Task:
    """What to do with every picture."""

    channels: int = 0
    """1 or 3; 0 only looks at the header"""
    size: tuple[int, int] = (0, 0)
    """(height, width) of the rows"""
    fit: str = "exact"
    """how it gets there: crop, stretch, pad; exact: a picture of another size gives no pixels"""
    formats: tuple[str, ...] = _FORMATS
    turn: bool = True
    """whether the EXIF orientation counts"""
    digest: bool = False
    """instead of pixels: sha256 of the file, and of the pixels in full size"""
    most_pixels: int = MOST_PIXELS


class Seen(NamedTuple):
    """What the header says of a picture."""

    width: int
    """after EXIF rotation"""
    height: int
    mode: str
    grey: bool
    moving: bool
    """it has several frames, of which only the first is used"""


class BrokenError(Exception):
    """A picture that cannot be used, with the reason in words."""

    def __init__(self, why: str, kind: str = BROKEN) -> None:
        super().__init__(why)
        self.kind = kind


def decode(path: str, task: Task) -> tuple[Seen | str, bytes]:
    """What was seen, and the pixels channel by channel; the reason in words if the picture is broken."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow: large pictures and odd EXIF; what matters is an error below
        return _decode_or_say_why_not(path, task)


def decode_bytes(content: bytes, task: Task) -> bytes:
    """The pixels of a file's content, channel by channel; a :class:`BrokenError` if it cannot be used.

    Threads may call it at the same time, so it leaves Pillow's warnings alone: Python has one list of filters for all.
    """
    return _with_reasons(io.BytesIO(content), "", task)[1]


def _decode_or_say_why_not(path: str, task: Task) -> tuple[Seen | str, bytes]:
    try:
        # as a stream: Pillow maps an uncompressed TIFF that it opens by name, and mixes up its rows if EXIF turns it
        with _opened(path) as stream:
            return _with_reasons(stream, path, task)
    except BrokenError as error:
        return str(error), b""
    except Exception as error:  # of open: the file is gone, or may not be read
        return _reason(error), b""


def _opened(path: str) -> io.BufferedReader:
    """A regular file: a named pipe would make us wait, and a device may never end. As ``_regular`` does it."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    stream = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        stream.close()
        raise BrokenError("it is no regular file but a named pipe or a device")
    return stream


def _with_reasons(stream: BinaryIO, path: str, task: Task) -> tuple[Seen, bytes]:
    try:
        return _decode(stream, path, task)
    except BrokenError:
        raise
    except Image.DecompressionBombError:
        raise _too_large(task) from None
    except UnidentifiedImageError:
        raise BrokenError("it is no picture of a known format", UNKNOWN) from None
    except MemoryError:
        raise BrokenError("there is too little memory to decode it") from None
    except Exception as error:  # Pillow's decoders raise almost anything on broken input: this file is the broken one
        raise BrokenError(f"it is broken: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return str(error)[:150] or type(error).__name__


def _decode(stream: BinaryIO, path: str, task: Task) -> tuple[Seen, bytes]:
    with Image.open(stream, formats=_known(task.formats)) as picture:
        if picture.width * picture.height > task.most_pixels:
            raise _too_large(task)
        seen = look(picture, turn=task.turn, path=path)
        if task.digest:
            return seen, _digests(path, picture)
        if task.channels == 0 or (task.fit == "exact" and (seen.height, seen.width) != task.size):
            return seen, b""
        if picture.format in ("JPEG", "MPO") and task.fit != "exact":
            # the JPEG decoder halves a picture for almost nothing; twice the target is left for the filter
            picture.draft(None, (2 * task.size[1], 2 * task.size[0]))
        return seen, planes(fitted(plain(picture, task.channels, turn=task.turn), task.size, task.fit))


def look(picture: Image.Image, *, turn: bool = True, path: str = "") -> Seen:
    """What the header says; the pixels are not decoded if the file's path is known."""
    width, height = picture.size
    if isinstance(picture, TiffImagePlugin.TiffImageFile) and _ORIENTATION in picture.tag_v2:
        # newer versions of Pillow give the size after rotation, older ones before: the tags are before
        width, height = picture.tag_v2[256], picture.tag_v2[257]
    if turn and width != height and _orientation_in_header(picture, path) >= _SIDEWAYS:
        width, height = height, width
    moving = picture.format != "MPO" and bool(getattr(picture, "is_animated", False))  # MPO: views of one photograph
    return Seen(width, height, picture.mode, _is_grey(picture), moving)


def plain(picture: Image.Image, channels: int, *, turn: bool = True) -> Image.Image:
    """The picture upright, in mode L or RGB."""
    picture.load()
    orientation = _orientation(picture) if turn else 1  # before the conversion, which drops EXIF
    mode = "L" if channels == 1 else "RGB"
    if picture.mode.startswith("I"):
        picture = _from_16_bits(picture)
    elif picture.mode == "F":
        raise BrokenError("its pixels are fractions without a known range: save it with 8 bits")
    elif picture.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in picture.info:
        # on white: transparent drawings and logos are made for white pages, and what is stored under a transparent
        # pixel is arbitrary
        white = Image.new("RGBA", picture.size, "white")
        white.alpha_composite(picture.convert("RGBA"))
        picture = white
    if picture.mode != mode:
        picture = picture.convert(mode)
    return picture.transpose(_TURNS[orientation]) if orientation in _TURNS else picture


def fitted(picture: Image.Image, size: tuple[int, int], fit: str) -> Image.Image:
    """The picture in (height, width)."""
    height, width = size
    if picture.size == (width, height):
        return picture
    wide, tall = picture.size
    if fit == "pad":
        scale = width / max(wide, tall) if width == height else min(width / wide, height / tall)
        inner = (max(1, round(wide * scale)), max(1, round(tall * scale)))
        small = picture.resize(inner, Image.Resampling.BILINEAR, reducing_gap=3.0)
        black = Image.new(picture.mode, (width, height))
        black.paste(small, ((width - inner[0]) // 2, (height - inner[1]) // 2))
        return black
    box = (0.0, 0.0, float(wide), float(tall))
    if fit == "crop":
        scale = min(wide / width, tall / height)
        across, down = (min(wide, tall),) * 2 if width == height else (width * scale, height * scale)
        # across may be larger than wide by a last bit, and Pillow refuses a box that begins before the picture
        left, top = max(0.0, (wide - across) / 2), max(0.0, (tall - down) / 2)
        box = (left, top, wide - left, tall - top)
    # Pillow's filter grows with the reduction, so that fine patterns do not alias
    return picture.resize((width, height), Image.Resampling.BILINEAR, box=box, reducing_gap=3.0)


def planes(picture: Image.Image) -> bytes:
    """Pixels channel by channel, as tensors have them."""
    if picture.mode == "L":
        return picture.tobytes()
    return b"".join(band.tobytes() for band in picture.split())


@functools.cache
def _known(formats: tuple[str, ...]) -> list[str]:
    if any(name not in Image.OPEN for name in formats):
        Image.init()
    return [name for name in formats if name in Image.OPEN]  # a build of Pillow may lack WEBP or AVIF


def _too_large(task: Task) -> BrokenError:
    most = f"{task.most_pixels / 1e6:g} million" if task.most_pixels >= 1e6 else f"{task.most_pixels}"
    return BrokenError(f"it has more than {most} pixels: make it smaller", TOO_LARGE)


def _orientation(picture: Image.Image) -> int:
    try:
        value = picture.getexif().get(_ORIENTATION, 1)
    except Exception:  # damaged EXIF comes as many kinds of errors, and says nothing about the pixels
        return 1
    return value if isinstance(value, int) else 1


def _orientation_in_header(picture: Image.Image, path: str) -> int:
    """The same without decoding. Pillow decodes a whole PNG in search of EXIF, which may follow the pixels."""
    if picture.format == "PNG" and "exif" not in picture.info and path and not _png_has_exif(path):
        return 1
    return _orientation(picture)


def _png_has_exif(path: str) -> bool:
    with _opened(path) as stream:
        stream.seek(8)
        while len(head := stream.read(8)) == 8:
            if head[4:] == b"eXIf":
                return True
            stream.seek(int.from_bytes(head[:4], "big") + 4, os.SEEK_CUR)
    return False


def _is_grey(picture: Image.Image) -> bool:
    if picture.mode == "P" and picture.palette is not None and picture.palette.mode == "RGB":
        colours = bytes(picture.palette.palette)
        return colours[0::3] == colours[1::3] == colours[2::3]
    return picture.mode in _GREY or picture.mode.startswith("I;16")


def _from_16_bits(picture: Image.Image) -> Image.Image:
    import numpy as np  # here: most workers never need it

    values = np.asarray(picture)
    if values.min() < 0 or values.max() > 65535:
        raise BrokenError("its pixels have more than 16 bits: save it with 8")
    return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))  # 65535 / 257 = 255, rounded


def _digests(path: str, picture: Image.Image) -> bytes:
    """32 + 32 bytes. The mode does not count: a grey picture saved as RGB is the same picture."""
    with _opened(path) as stream:
        content = hashlib.file_digest(stream, "sha256").digest()
    upright = plain(picture, 3)
    return content + hashlib.sha256(repr(upright.size).encode() + upright.tobytes()).digest()


def work(task: Task, jobs: BinaryIO, answers: BinaryIO) -> None:
    """Answer lines of paths, in JSON, with a line of what was seen and then the pixels; until the input ends."""
    answers.write(b"ready\n")
    answers.flush()
    for line in jobs:
        done = [_decode_or_say_why_not(path, task) for path in json.loads(line)]
        answers.write(json.dumps([(seen, len(pixels)) for seen, pixels in done]).encode() + b"\n")
        answers.write(b"".join(pixels for _, pixels in done))
        answers.flush()


def task_text(task: Task) -> str:
    """A task for the command line of a worker."""
    return json.dumps(dataclasses.asdict(task))


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which then ends its workers
    warnings.simplefilter("ignore")
    told: dict[str, Any] = json.loads(sys.argv[1])
    task = Task(**{**told, "size": tuple(told["size"]), "formats": tuple(told["formats"])})
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    work(task, sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()

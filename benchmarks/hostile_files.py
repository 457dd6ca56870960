"""What do files that are made to fill the memory or to hang cost, before they are refused?

Writes each file (once), reads it in a process of its own, and prints the file's size, the memory and the seconds that
reading took beyond the imports, and the sentence that a person sees. A process that takes more than 2 GiB, or more than
60 seconds, is ended.

Run:    .venv/bin/python benchmarks/hostile_files.py --folder /tmp/hostile --json benchmarks/results/hostile-files.json
On:     Linux, any CPU; about two minutes, most of which write the files; 25 MB of disk
Result: docs/reliability.md, «Hostile files»
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import platform
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

_GIB, _MIB = 1 << 30, 1 << 20
_CHILD = """
import json, resource, sys, time
import PIL.Image, pyarrow.parquet, torch
from vmcr2.data import Form, from_table, new_pictures, open_data
resource.setrlimit(resource.RLIMIT_AS, (int(open("/proc/self/statm").read().split()[0]) * 4096 + (2 << 30),) * 2)
before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
try:
    {expression}
    said = "read without an error"
except Exception as error:
    said = f"{{type(error).__name__}}: {{error}}"
seconds = time.perf_counter() - begun
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, said]))
"""


def _member(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


_NAMES = _member("batches.meta.txt", 6) + b"a\nb\nc\n".ljust(512, b"\0")


def _gzipped(path: Path, head: bytes, zeros: int) -> None:
    with gzip.open(path, "wb", compresslevel=9) as stream:
        stream.write(head)
        for _ in range(zeros // (16 * _MIB)):
            stream.write(bytes(16 * _MIB))


def _pickle(path: Path, batch: bytes) -> None:
    import pickle

    folder = path / "cifar-100-python"
    folder.mkdir(parents=True)
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": ["a"]}, 2))
    (folder / "train").write_bytes(batch)


def _header(descr: str, shape: tuple[int, ...]) -> bytes:
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _npz(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, shape in (("x", (4 * _GIB, 1)), ("y", (4 * _GIB,))):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                stream.write(_header("|u1", shape))
                for _ in range(64):
                    stream.write(bytes(64 * _MIB))


def _jpeg(path: Path) -> None:
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(stream, "JPEG")
    content = bytearray(stream.getvalue())
    at = content.index(b"\xff\xc0")
    content[at + 5 : at + 9] = struct.pack(">HH", 20_000, 20_000)
    path.write_bytes(content)


def _png(path: Path) -> None:
    from PIL import Image

    Image.new("RGBA", (8900, 8900), (9, 9, 9, 99)).save(path)


def _full() -> bytes:
    """Five batches of zeros, together almost as large as one reading may be."""
    size = 17_400 * 3073
    content = bytes(size + -size % 512)
    return _NAMES + b"".join(_member(f"data_batch_{n}.bin", size) + content for n in range(1, 6)) + bytes(1024)


_TUPLES = b")" + b"q\x00h\x00\x86" * 40
_CIFAR, _TABLE = "open_data('cifar10', {}).train()", "from_table({})"
_PYTHON = "open_data('cifar100', {}).train()"
_CASES: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "a pax header of 3 GiB": (
        "header.tar.gz",
        _CIFAR,
        lambda path: _gzipped(path, _member("x", 3 * _GIB, b"x"), 3 * _GIB),
    ),
    "3,000 pax headers in a row": (
        "chain.tar.gz",
        _CIFAR,
        lambda path: _gzipped(path, (_member("x", 512, b"x") + b"11 a=bbbbb\n".ljust(512, b"\0")) * 3000, 0),
    ),
    "5 GiB of zeros in an archive": (
        "zeros.tar.gz",
        _CIFAR,
        lambda path: _gzipped(path, _NAMES + _member("data_batch_1.bin", _GIB), 5 * _GIB),
    ),
    "a pickle of tuples in tuples, as a key": (
        "tuples",
        _PYTHON,
        lambda path: _pickle(path, b"\x80\x02}" + _TUPLES + b"K\x01s."),
    ),
    "a pickle with a memo of 2^28 places": (
        "memo",
        _PYTHON,
        lambda path: _pickle(path, b"\x80\x02}r\x00\x00\x00\x10."),
    ),
    "a .npz of 8 GiB of zeros": ("zeros.npz", _TABLE, _npz),
    "a .npy that claims 72 GB": ("claim.npy", _TABLE, lambda path: _write(path, _header("<f8", (10**9, 9)))),
    "a csv of one line": ("line.csv", _TABLE, lambda path: _write(path, b"1," * (30 * _MIB))),
    "a JPEG header of 20000 × 20000": ("x.jpg", "new_pictures({}, Form((3, 8, 8), 'crop'))", _jpeg),
    "the largest archive that is read": ("largest.tar.gz", _CIFAR, lambda path: _gzipped(path, _full(), 0)),
    "a picture of 79 million pixels with alpha": ("large.png", "new_pictures({}, Form((3, 8, 8), 'crop'))", _png),
    "a named pipe": ("pipe.csv", _TABLE, os.mkfifo),
    "a link to /dev/zero": ("zero.npy", _TABLE, lambda path: path.symlink_to("/dev/zero")),
}


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _measured(path: Path, expression: str) -> tuple[float | None, float | None, str]:
    """Seconds, MB, and what was said."""
    script = _CHILD.format(expression=expression.format(repr(str(path))))
    try:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return 60.0, None, "did not end within 60 seconds"
    if done.returncode:
        return None, None, done.stderr.strip().splitlines()[-1]
    seconds, kilobytes, said = json.loads(done.stdout)
    return round(seconds, 2), round(kilobytes * 1024 / 1e6), said


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    results = []
    for what, (name, expression, make) in _CASES.items():
        path = given.folder / name
        if not path.exists() and not path.is_symlink():
            make(path)
        size = path.lstat().st_size if not path.is_dir() else (path / "cifar-100-python/train").stat().st_size
        seconds, megabytes, said = _measured(path, expression)
        results.append({"what": what, "bytes": size, "seconds": seconds, "MB": megabytes, "said": said})
        print(f"{what:42} {size:>10,} bytes {megabytes} MB {seconds} s  {said}", flush=True)
    if given.json:
        record = {"python": platform.python_version(), "machine": platform.machine(), "results": results}
        given.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

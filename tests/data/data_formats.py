"""Small files in the formats of the real data sets."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

NAMES = {10: [f"kind{i}" for i in range(10)], 100: [f"sort{i}" for i in range(100)]}


def pixels(count: int, *shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def some_labels(count: int, classes: int = 10, seed: int = 0) -> Bytes:
    """Every image another label as far as they go, the last class among them."""
    return ((np.arange(count) * 7 + seed + classes - 1) % classes).astype(np.uint8)


def idx(items: Bytes) -> bytes:
    return bytes((0, 0, 8, items.ndim)) + struct.pack(f">{items.ndim}I", *items.shape) + items.tobytes()


def write_mnist(folder: Path, train: int = 12, test: int = 5, *, zipped: bool = True) -> dict[str, Bytes]:
    """The four files, and what is in them."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "train-images-idx3-ubyte": pixels(train, 28, 28),
        "train-labels-idx1-ubyte": some_labels(train),
        "t10k-images-idx3-ubyte": pixels(test, 28, 28, seed=1),
        "t10k-labels-idx1-ubyte": some_labels(test, seed=1),
    }
    for name, items in content.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(items)))
        else:
            (folder / name).write_bytes(idx(items))
    return content


def write_cifar_binary(root: Path, classes: int, per_batch: int = 4) -> dict[str, tuple[Bytes, Bytes]]:
    """The folder of the binary layout; returns split -> (pixels, labels)."""
    folder = root / ("cifar-10-batches-bin" if classes == 10 else "cifar-100-binary")
    folder.mkdir(parents=True)
    files = [f"data_batch_{i}.bin" for i in range(1, 6)] if classes == 10 else ["train.bin"]
    tests = ["test_batch.bin"] if classes == 10 else ["test.bin"]
    result = {}
    for split, names in (("train", files), ("test", tests)):
        seed = int(split == "test")
        x, y = pixels(per_batch * len(names), 3072, seed=seed), some_labels(per_batch * len(names), classes, seed)
        coarse = [] if classes == 10 else [(y // 5)[:, None]]
        rows = np.concatenate([*coarse, y[:, None], x], 1)
        for name, part in zip(names, np.split(rows, len(names)), strict=True):
            (folder / name).write_bytes(part.tobytes())
        result[split] = (x, y)
    # the real file ends on an empty line
    text = "\n".join(NAMES[classes]) + "\n\n"
    (folder / ("batches.meta.txt" if classes == 10 else "fine_label_names.txt")).write_text(text)
    return result


def write_cifar_python(root: Path, classes: int, per_batch: int = 4, style: str = "python2") -> dict[str, Any]:
    """The folder of the python layout; returns split -> (pixels, labels)."""
    folder = root / ("cifar-10-batches-py" if classes == 10 else "cifar-100-python")
    folder.mkdir(parents=True)
    files = [f"data_batch_{i}" for i in range(1, 6)] if classes == 10 else ["train"]
    tests = ["test_batch"] if classes == 10 else ["test"]
    key = "labels" if classes == 10 else "fine_labels"
    result = {}
    for split, names in (("train", files), ("test", tests)):
        seed = int(split == "test")
        x, y = pixels(per_batch * len(names), 3072, seed=seed), some_labels(per_batch * len(names), classes, seed)
        for name, a, b in zip(names, np.split(x, len(names)), np.split(y, len(names)), strict=True):
            (folder / name).write_bytes(dump({"data": a, key: b.tolist(), "batch_label": name}, style))
        result[split] = (x, y)
    names_key = "label_names" if classes == 10 else "fine_label_names"
    (folder / ("batches.meta" if classes == 10 else "meta")).write_bytes(dump({names_key: NAMES[classes]}, style))
    return result


def dump(table: dict[str, Any], style: str) -> bytes:
    """A pickle as Python 2, numpy 1 or numpy 2 writes it; "native-5": as the numpy here does in protocol 5."""
    if style == "python2":
        return b"\x80\x02" + _python2(table) + b"."
    kind, _, protocol = style.partition("-")
    data = pickle.dumps(table, int(protocol or 2))
    if kind == "native":
        return data
    # protocol 2 writes names as lines, which can be exchanged
    return re.sub(rb"cnumpy\._?core\.", b"cnumpy.core." if kind == "numpy1" else b"cnumpy._core.", data)


def _python2(value: Any) -> bytes:
    """What cPickle of Python 2 writes: str as raw bytes, arrays through numpy.core.multiarray."""
    if isinstance(value, str):
        return b"U" + bytes((len(value),)) + value.encode("latin1")
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(k) + _python2(v) for k, v in value.items()) + b"u"
    assert isinstance(value, np.ndarray)
    shape = b"(" + b"".join(map(_python2, value.shape)) + b"t"
    dtype = b"cnumpy\ndtype\n" + _python2("u1") + b"K\x00K\x01\x87R(K\x03" + _python2("|") + b"NNNJ\xff\xff\xff\xff"
    dtype += b"J\xff\xff\xff\xffK\x00tb"
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _python2("b") + b"\x87R"
    return start + b"(K\x01" + shape + dtype + b"\x89" + _python2(value.tobytes()) + b"tb"


def tar(folder: Path, target: Path, *, prefix: str = "") -> Path:
    """The folder as a .tar.gz, in the order of the names."""
    with tarfile.open(target, "w:gz") as archive:
        for path in [folder, *sorted(folder.iterdir())]:
            archive.add(path, prefix + str(path.relative_to(folder.parent)), recursive=False)
    return target


def tar_of(target: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    """A .tar.gz of hand-made members."""
    with tarfile.open(target, "w:gz") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target


def write_tiny_imagenet(root: Path, per_class: int = 3) -> Path:
    """Three classes of flat colours, so that JPEG keeps them; one greyscale file."""
    from PIL import Image

    folder = root / "tiny-imagenet-200"
    wnids = ["n02", "n01", "n03"]
    for row, wnid in enumerate(wnids):
        (folder / "train" / wnid / "images").mkdir(parents=True)
        for i in range(per_class):
            path = folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG"
            Image.new("RGB", (64, 64), (40 * row, 10 * i, 200)).save(path, quality=95)
    (folder / "val" / "images").mkdir(parents=True)
    Image.new("L", (64, 64), 90).save(folder / "val" / "images" / "val_0.JPEG", quality=95)
    Image.new("RGB", (64, 64), (250, 0, 0)).save(folder / "val" / "images" / "val_1.JPEG", quality=95)
    (folder / "val" / "val_annotations.txt").write_text(
        "val_1.JPEG\tn03\t0\t0\t63\t63\nval_0.JPEG\tn02\t0\t0\t63\t63\n"
    )
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (folder / "words.txt").write_text("n01\tcrane, machine\nn02\tgoldfish, Carassius\nn03\tcrane, bird\nn99\tother\n")
    return folder

"""Files of strangers: bombs, claims, endless files. Each is refused with a sentence, in little memory and time."""

from __future__ import annotations

import errno
import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_formats import tar, write_cifar_binary, write_cifar_python, write_mnist, write_tiny_imagenet
from limited import with_little_memory
from PIL import Image

from vmcr2.data import (
    DATASETS,
    DataError,
    Form,
    Split,
    _archive,
    _cache as cache,
    _csv,
    _files,
    _numpy_files,
    _parquet,
    from_folder,
    from_table,
    new_pictures,
    open_data,
    open_own,
    pack,
)
from vmcr2.data._archive import MOST_MEMBERS
from vmcr2.data._pickles import read_pickle

MIB = 1 << 20
FLIPS = int(os.environ.get("VMCR2_TEST_FLIPS", "60"))
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and /proc are Linux's")


def npy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def archive(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], end: bytes = bytes(1024)) -> None:
    """A .tar.gz whose headers claim whatever they like."""
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for info, content in members:
            stream.write(info.tobuf(tarfile.USTAR_FORMAT) + content)
        stream.write(end)


def member(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
    info.size, info.type = size, kind
    return info


def nested_tuples(depth: int = 60) -> bytes:
    """A tuple of two of the one before; to hash it takes 2 ** depth steps."""
    return b")" + b"q\x00h\x00\x86" * depth


def again_and_again() -> bytes:
    """A text of one MiB, of which every ten bytes more make a copy."""
    text = b"X" + struct.pack("<I", MIB) + b"x" * MIB + b"q\x01"
    names = b"c_codecs\nencode\nq\x02X\x06\x00\x00\x00latin1q\x03"
    return b"\x80\x02}U\x01a](" + text + names + b"h\x02h\x01h\x03\x86R" * 3000 + b"es."


PICKLES = {
    "nested tuples as a key": (b"\x80\x02}" + nested_tuples() + b"K\x01s.", "a key that is neither"),
    "nested tuples as a type": (b"\x80\x02}U\x01acnumpy\ndtype\n" + nested_tuples() + b"\x85Rs.", "array of type"),
    "nested tuples as a name": (b"\x80\x04}" + nested_tuples() + nested_tuples() + b"\x93.", "a name that is no text"),
    "a memo of two billion": (b"\x80\x02](r\xff\xff\xff\x7f.", "stack is empty"),
    "a text that is encoded again and again": (again_and_again(), "encodes more than it holds"),
    "millions of instructions": (b"\x80\x02](" + b"N" * 3_000_000 + b"e.", "instructions"),
}


@linux
def test_pickles_neither_hang_nor_fill_the_memory(tmp_path: Path) -> None:
    for number, (content, _) in enumerate(PICKLES.values()):
        (tmp_path / str(number)).write_bytes(content)
    read = "attempt({0!r}, lambda: read_pickle(open({1!r}, 'rb').read(), 'here'))"
    body = "\n".join(read.format(name, str(tmp_path / str(number))) for number, name in enumerate(PICKLES))
    answers = with_little_memory("from vmcr2.data._pickles import read_pickle", body, room=300 * MIB, seconds=120)
    for name, (_, words) in PICKLES.items():
        assert answers[name][0] == "DataError", (name, answers[name])
        assert words in answers[name][1], (name, answers[name])


def bombs(folder: Path) -> dict[str, tuple[str, str]]:
    """Files that claim more than they are, with the expression that reads each and words of the answer."""
    made: dict[str, tuple[str, str]] = {}

    def add(name: str, expression: str, words: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made[name] = (expression.format(repr(str(path))), words)
        return path

    opened = "open_data('cifar10', {}).train()"
    large = 64 * MIB
    archive(add("header.tar.gz", opened, "KiB of headers"), [(member("PaxHeader", large, b"x"), bytes(large))])
    chain = [(member("PaxHeader", 512, b"x"), b"11 a=bbbbb\n".ljust(512, b"\0"))] * 3000
    archive(add("chain.tar.gz", opened, "KiB of headers"), chain)
    names = (member("batches.meta.txt", 6), b"a\nb\nc\n".ljust(512, b"\0"))
    many = [(member(f"f{n}", 0), b"") for n in range(MOST_MEMBERS + 1)]
    archive(add("many.tar.gz", opened, f"more than {MOST_MEMBERS} files"), [names, *many])
    batch = (member("data_batch_1.bin", 3 << 30), bytes(large))
    archive(add("claim.tar.gz", opened, "too large"), [names, batch])
    huge = (member("other.bin", 2 << 30), bytes(large))
    with gzip.open(add("zeros.tar.gz", opened, "more than 512 MiB"), "wb", compresslevel=1) as stream:
        for info, content in (names, huge):
            stream.write(info.tobuf(tarfile.USTAR_FORMAT) + content)
        for _ in range(8):
            stream.write(bytes(large))
    idx = add("mnist/train-images-idx3-ubyte.gz", f"open_data('mnist', {str(folder / 'mnist')!r}).train()", "256 MiB")
    with gzip.open(idx, "wb", compresslevel=1) as stream:
        stream.write(b"\0\0\x08\x03" + struct.pack(">3I", 1 << 30, 28, 28))
        for _ in range(5):
            stream.write(bytes(large))
    table = "from_table({}, None)"
    add("claims.npy", table, "memory").write_bytes(npy_header("<f8", (10**9, 9)))
    add("nothing.npy", table, "claims the shape").write_bytes(npy_header("|V0", (10**12, 2)))
    add("wide.npy", table, "columns").write_bytes(npy_header("<f8", (0, 10**9)))
    with zipfile.ZipFile(add("zeros.npz", table, "memory"), "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("x.npy", npy_header("|u1", (large, 1)) + bytes(large))
        zipped.writestr("y.npy", npy_header("|u1", (large,)) + bytes(large))
    add("line.csv", table, "characters").write_text("a,b\n" + "1," * (9 << 20))
    return made


@linux
def test_bombs_are_refused_in_little_memory(tmp_path: Path) -> None:
    made = bombs(tmp_path)
    body = "\n".join(f"attempt({name!r}, lambda: {expression})" for name, (expression, _) in made.items())
    answers = with_little_memory("from vmcr2.data import from_table, open_data", body, room=600 * MIB)
    for name, (_, words) in made.items():
        assert answers[name][0] == "DataError", (name, answers[name])
        assert words in answers[name][1], (name, answers[name])


@linux
def test_a_parquet_file_of_equal_rows_is_refused_if_they_do_not_fit(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    rows = arrow.table({"x": np.zeros(30_000_000, np.int8), "y": np.zeros(30_000_000, np.int8)})
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(rows, path, row_group_size=30_000_000)
    assert path.stat().st_size < MIB
    imports = "import pyarrow.parquet\nfrom vmcr2.data import from_table"
    answers = with_little_memory(imports, f"attempt('it', lambda: from_table({str(path)!r}, 'y'))", room=600 * MIB)
    assert answers["it"][0] == "DataError"
    assert "GB of memory" in answers["it"][1]


@pytest.mark.parametrize("layout", ["binary", "python"])
def test_a_flipped_bit_in_an_archive_is_noticed(tmp_path: Path, layout: str) -> None:
    (write_cifar_binary if layout == "binary" else write_cifar_python)(tmp_path, 10)
    folder = next(tmp_path.iterdir())
    path = tar(folder, tmp_path / "x.tar.gz")
    whole = path.read_bytes()
    right = both(path)
    noticed = 0
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), FLIPS):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            found = both(path)
        except DataError:
            noticed += 1
        else:  # of gzip's own header, whose time and name nobody needs
            assert all(
                (a.images == b.images).all() and (a.labels == b.labels).all() for a, b in zip(found, right, strict=True)
            ), place
    print(f"{noticed} of {FLIPS} flips are noticed, the others change no sample")
    assert noticed > 0.8 * FLIPS


def both(path: Path) -> tuple[Split, Split]:
    source = open_data("cifar10", path)
    return source.train(), source.test()


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_a_cut_archive_is_noticed(tmp_path: Path, keep: float) -> None:
    write_cifar_binary(tmp_path, 100)
    path = tar(tmp_path / "cifar-100-binary", tmp_path / "x.tar.gz")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(DataError, match="not a whole"):
        open_data("cifar100", path).train()


def test_a_changed_batch_of_the_published_size_is_noticed_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar_binary(tmp_path, 100)
    right = {part: open_data("cifar100", tmp_path)._reader.checksum(part) for part in ("train", "test")}  # type: ignore[arg-type]
    monkeypatch.setitem(DATASETS, "cifar100", replace(DATASETS["cifar100"], train_size=4, test_size=4, splits=right))
    assert len(open_data("cifar100", tmp_path).train().labels) == 4
    file = tmp_path / "cifar-100-binary" / "train.bin"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="published size but other content"):
        open_data("cifar100", tmp_path).train()
    assert len(open_data("cifar100", tmp_path).test().labels) == 4


FORM = Form((3, 8, 8), "crop")
READERS: dict[str, tuple[str, Callable[[Path, Path], Any]]] = {
    "idx": ("train-images-idx3-ubyte.gz", lambda file, folder: open_data("mnist", folder).train()),
    "plain idx": ("train-labels-idx1-ubyte", lambda file, folder: open_data("mnist", folder).train()),
    "cifar": ("cifar-10-batches-bin/data_batch_2.bin", lambda file, folder: open_data("cifar10", folder).train()),
    "archive": ("x.tar.gz", lambda file, folder: open_data("cifar10", file)),
    "tiny": ("tiny-imagenet-200/wnids.txt", lambda file, folder: open_data("tiny-imagenet", folder)),
    "tiny picture": (
        "tiny-imagenet-200/val/images/val_0.JPEG",
        lambda file, folder: open_data("tiny-imagenet", folder).test(),
    ),
    "packed": ("mnist.safetensors", lambda file, folder: open_data("mnist", file)),
    "csv": ("x.csv", lambda file, folder: from_table(file)),
    "parquet": ("x.parquet", lambda file, folder: from_table(file)),
    "npz": ("x.npz", lambda file, folder: from_table(file)),
    "npy": ("x.npy", lambda file, folder: open_own(file)),
    "new picture": ("x.png", lambda file, folder: new_pictures(file, FORM)),
}


@linux
@pytest.mark.timeout(60)  # a reader that waits for a pipe would wait for ever
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", READERS)
def test_only_regular_files_are_read(tmp_path: Path, name: str, kind: str) -> None:
    write_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    write_cifar_binary(tmp_path, 10)
    write_tiny_imagenet(tmp_path)
    where, read = READERS[name]
    file = tmp_path / where
    file.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(DataError):
        read(file, tmp_path)


class FailingDisk(io.FileIO):
    """A disk that is taken away: the first read gives something, the others fail."""

    reads = 0

    def readinto(self, buffer: Any) -> int:
        self.reads += 1
        if self.reads > 1:
            raise OSError(errno.EIO, "Input/output error")
        return super().readinto(memoryview(buffer)[:20]) or 0

    def readall(self) -> bytes:
        raise OSError(errno.EIO, "Input/output error")


DISKS: dict[str, tuple[Any, Callable[[Path], Any]]] = {
    "idx": (_files, lambda folder: open_data("mnist", folder).train()),
    "cifar": (_files, lambda folder: open_data("cifar10", folder).train()),
    "archive": (_archive, lambda folder: open_data("cifar10", folder / "x.tar.gz").train()),
    "csv": (_csv, lambda folder: from_table(folder / "x.csv")),
    "npy": (_numpy_files, lambda folder: from_table(folder / "x.npy")),
    "npz": (_numpy_files, lambda folder: from_table(folder / "x.npz")),
    "parquet": (_parquet, lambda folder: from_table(folder / "x.parquet")),
}


@pytest.mark.parametrize("name", DISKS)
def test_a_disk_that_fails_while_it_is_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    write_mnist(tmp_path)
    write_cifar_binary(tmp_path, 10)
    tar(tmp_path / "cifar-10-batches-bin", tmp_path / "x.tar.gz")
    np.save(tmp_path / "x.npy", np.zeros((50, 3)))
    np.savez(tmp_path / "x.npz", x=np.zeros((50, 3)), y=np.zeros(50))
    (tmp_path / "x.csv").write_text("a,b,label\n" + "1,2,0\n" * 50)
    (tmp_path / "x.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    module, read = DISKS[name]
    monkeypatch.setattr(module, "open_regular", lambda path, most=None: io.BufferedReader(FailingDisk(path)))
    # zipfile hides the reason
    with pytest.raises(DataError, match=r"Input/output error|not a zip file") as caught:
        read(tmp_path)
    assert str(tmp_path) in str(caught.value)


def jpeg(size: int) -> bytes:
    """A JPEG whose header claims this size; its pixels are those of 16×16."""
    stream = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(stream, "JPEG")
    content = bytearray(stream.getvalue())
    at = content.index(b"\xff\xc0")
    content[at + 5 : at + 9] = struct.pack(">HH", size, size)
    return bytes(content)


@linux
def test_a_picture_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    (tmp_path / "x.jpg").write_bytes(jpeg(20_000))
    (tmp_path / "tiny-imagenet-200/val/images/val_0.JPEG").write_bytes(jpeg(20_000))
    answers = with_little_memory(
        "import PIL.Image\nfrom vmcr2.data import Form, new_pictures, open_data",
        f"attempt('new', lambda: new_pictures({str(tmp_path / 'x.jpg')!r}, Form((3, 8, 8), 'crop')))\n"
        f"attempt('tiny', lambda: open_data('tiny-imagenet', {str(tmp_path)!r}).test())",
        room=300 * MIB,
    )
    for kind, said in answers.values():
        assert kind == "DataError"
        assert "80 million pixels" in said


def test_a_cut_picture_is_skipped_and_named(tmp_path: Path) -> None:
    root = picture_tree(tmp_path / "root")
    whole = (root / "a" / "1.png").read_bytes()
    (root / "a" / "1.png").write_bytes(whole[: len(whole) // 2])
    source = from_folder(root, cache=tmp_path / "cache")
    assert any("a/1.png" in note for note in source.notes)
    assert len(source.train().labels) + len(source.test().labels) == 9


def picture_tree(root: Path) -> Path:
    for name in "ab":
        (root / name).mkdir(parents=True)
        for at in range(5):
            noise = np.random.default_rng(at).integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(noise).save(root / name / f"{at}.png")
    return root


def test_pictures_that_vanish_while_they_are_packed_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = picture_tree(tmp_path / "root")
    original = cache.decoded

    def vanishing(files: Any, task: Any) -> Any:
        if task.channels:  # the first look, at headers, is over
            (root / "b" / "3.png").unlink()
        return original(files, task)

    monkeypatch.setattr(cache, "decoded", vanishing)
    with pytest.raises(DataError, match=r"b/3\.png is gone"):
        from_folder(root, cache=tmp_path / "cache")


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\nb", "a\rb"])
def test_class_names_that_rewrite_a_terminal_are_refused(tmp_path: Path, name: str) -> None:
    root = picture_tree(tmp_path / "root")
    (root / "a").rename(root / name)
    with pytest.raises(DataError, match="control character") as caught:
        from_folder(root, cache=tmp_path / "cache")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", ["../../up", "/etc/passwd", "cifar-10-batches-bin/../../x"])
def test_paths_in_an_archive_lead_nowhere(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as made:
        info = tarfile.TarInfo(name)
        info.size = 3
        made.addfile(info, io.BytesIO(b"abc"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=r"holds|missing"):
        open_data("cifar10", tmp_path / "x.tar.gz")
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_killed_pack_left_is_removed_by_the_next(tmp_path: Path) -> None:
    write_mnist(tmp_path / "raw")
    place = tmp_path / "packed" / ".mnist.safetensors.packing"
    place.mkdir(parents=True)
    (place / ".tmpAbCdEf").write_bytes(bytes(1000))  # as safetensors calls its own
    (place / ".lock").touch()
    mine = tmp_path / "packed" / ".tmpABCDEF"  # of another program
    mine.touch()
    file = pack("mnist", tmp_path / "raw", tmp_path / "packed")
    assert sorted(tmp_path.joinpath("packed").iterdir()) == [mine, file]


def test_a_killed_pack_leaves_no_half_file_after_the_next(tmp_path: Path) -> None:
    """Killed while it writes, by a signal that nobody can catch."""
    write_mnist(tmp_path / "raw")
    script = (
        "import os, sys\nimport vmcr2.data._packed_file as f\nfrom vmcr2.data import pack\n"
        "def half(tensors, path, metadata):\n"
        "    (path.parent / '.tmpAbCdEf').write_bytes(bytes(1000)); os.kill(os.getpid(), 9)\n"
        "f.save_file = half\n"
        f"pack('mnist', {str(tmp_path / 'raw')!r}, {str(tmp_path / 'packed')!r})"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent.parent.parent, check=False)
    assert done.returncode == -9
    assert list(tmp_path.glob("packed/*/.tmpAbCdEf"))
    file = pack("mnist", tmp_path / "raw", tmp_path / "packed")
    assert list(tmp_path.joinpath("packed").iterdir()) == [file]


def test_a_good_pickle_is_still_read() -> None:
    assert read_pickle(pickle.dumps({"labels": list(range(300))}, 2), "here")["labels"] == list(range(300))

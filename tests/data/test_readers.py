"""Every standard layout, read to the byte; every kind of damage, named."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from data_formats import (
    NAMES,
    idx,
    pixels,
    some_labels,
    tar,
    tar_of,
    write_cifar_binary,
    write_cifar_python,
    write_mnist,
    write_tiny_imagenet,
)

from vmcr2.data import DataError, Split, open_data


def same(split: Split, images: np.ndarray, labels: np.ndarray) -> None:
    assert split.images.dtype == torch.uint8
    assert split.labels.dtype == torch.int64
    assert np.array_equal(split.images.numpy(), images)
    assert split.labels.tolist() == labels.tolist()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("zipped", [True, False])
def test_idx(tmp_path: Path, name: str, zipped: bool) -> None:
    content = write_mnist(tmp_path, zipped=zipped)
    source = open_data(name, tmp_path)
    same(source.train(), content["train-images-idx3-ubyte"][:, None], content["train-labels-idx1-ubyte"])
    same(source.test(), content["t10k-images-idx3-ubyte"][:, None], content["t10k-labels-idx1-ubyte"])
    assert source.num_classes == 10
    assert source.image_shape == (1, 28, 28)
    assert source.class_names[9] == {"mnist": "9", "fashion-mnist": "Ankle boot"}[name]


def test_idx_with_dots_in_the_names(tmp_path: Path) -> None:
    content = write_mnist(tmp_path, zipped=False)
    for path in tmp_path.iterdir():
        path.rename(tmp_path / path.name.replace("-idx", ".idx"))
    same(
        open_data("mnist", tmp_path).test(),
        content["t10k-images-idx3-ubyte"][:, None],
        content["t10k-labels-idx1-ubyte"],
    )


IDX_DAMAGE = {
    "cut gzip": ("images-idx3", lambda data: gzip.compress(data)[:-9], "gzip"),
    "bad gzip": ("images-idx3", lambda data: b"no gzip at all", "gzip"),
    "flipped byte": ("images-idx3", lambda data: gzip.compress(data, mtime=0)[:-8] + bytes(8), "gzip"),
    "cut inside": ("images-idx3", lambda data: gzip.compress(data[:-1]), "header says"),
    "too long": ("images-idx3", lambda data: gzip.compress(data + b"\0"), "header says"),
    "only a header": ("images-idx3", lambda data: gzip.compress(data[:7]), "does not start like"),
    "magic": ("images-idx3", lambda data: gzip.compress(b"\0\0\x0d\x03" + data[4:]), "does not start like"),
    "labels for images": ("images-idx3", lambda data: gzip.compress(idx(some_labels(12))), "3 dimensions"),
    "another size": ("images-idx3", lambda data: gzip.compress(idx(pixels(12, 32, 32))), "32×32"),
    "fewer images": ("images-idx3", lambda data: gzip.compress(idx(pixels(11, 28, 28))), "11 images but 12 labels"),
    "no images": ("images-idx3", lambda data: gzip.compress(idx(pixels(0, 28, 28))), "no images"),
    "label 10": ("labels-idx1", lambda data: gzip.compress(data[:-1] + b"\x0a"), "label 10"),
}


@pytest.mark.parametrize("damage", IDX_DAMAGE)
def test_damaged_idx_is_named(tmp_path: Path, damage: str) -> None:
    kind, change, text = IDX_DAMAGE[damage]
    write_mnist(tmp_path)
    path = tmp_path / f"train-{kind}-ubyte.gz"
    path.write_bytes(change(gzip.decompress(path.read_bytes())))
    source = open_data("mnist", tmp_path)
    with pytest.raises(DataError, match=text) as caught:
        source.train()
    assert f"{tmp_path}/train-" in str(caught.value)
    assert len(source.test().labels) == 5  # the other split does not mind


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("packing", ["folder", "inside", "archive", "file"])
@pytest.mark.parametrize("layout", ["binary", "python2", "numpy1", "numpy2", "native-4", "native-5"])
def test_cifar(tmp_path: Path, classes: int, packing: str, layout: str) -> None:
    binary = layout == "binary"
    content = write_cifar_binary(tmp_path, classes) if binary else write_cifar_python(tmp_path, classes, style=layout)
    (folder,) = tmp_path.iterdir()
    path = tmp_path if packing == "folder" else folder
    if packing in ("archive", "file"):
        published = f"cifar-{classes}-{'binary' if binary else 'python'}.tar.gz"
        file = tar(folder, tmp_path / (published if packing == "archive" else "mine.tgz"), prefix="./")
        shutil.rmtree(folder)
        path = tmp_path if packing == "archive" else file
    source = open_data(f"cifar{classes}", path)
    same(source.train(), content["train"][0].reshape(-1, 3, 32, 32), content["train"][1])
    same(source.test(), content["test"][0].reshape(-1, 3, 32, 32), content["test"][1])
    assert source.class_names == tuple(NAMES[classes])
    assert source.image_shape == (3, 32, 32)
    assert not list(tmp_path.glob("**/data_batch_1*")) or packing in ("folder", "inside")  # nothing was extracted


def test_every_layout_of_the_same_data_has_one_checksum(tmp_path: Path) -> None:
    write_cifar_binary(tmp_path / "a", 10)
    write_cifar_python(tmp_path / "b", 10)
    tar(tmp_path / "a" / "cifar-10-batches-bin", tmp_path / "c.tar.gz")
    sums = {open_data("cifar10", tmp_path / place).checksum for place in ("a", "b", "c.tar.gz")}
    assert len(sums) == 1
    write_cifar_binary(tmp_path / "d", 10, per_batch=5)
    assert open_data("cifar10", tmp_path / "d").checksum not in sums


BINARY_DAMAGE = {
    "cut": (lambda data: data[:-1], "not a multiple of the record's 3073"),
    "label": (lambda data: b"\x0a" + data[1:], "label 10"),
    "empty": (lambda data: b"", "no images"),
}


@pytest.mark.parametrize("damage", BINARY_DAMAGE)
def test_damaged_binary_is_named(tmp_path: Path, damage: str) -> None:
    change, text = BINARY_DAMAGE[damage]
    write_cifar_binary(tmp_path, 10)
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=text) as caught:
        open_data("cifar10", tmp_path).train()
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_cifar_binary(tmp_path, 10)
    folder = tmp_path / "cifar-10-batches-bin"
    (folder / "data_batch_2.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_2\.bin is missing"):
        open_data("cifar10", tmp_path).train()
    (folder / "batches.meta.txt").unlink()
    with pytest.raises(DataError, match=r"batches\.meta\.txt is missing"):
        open_data("cifar10", tmp_path)


def test_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    content = write_cifar_binary(tmp_path, 100, per_batch=30)
    labels = open_data("cifar100", tmp_path).train().labels
    assert labels.tolist() == content["train"][1].tolist()
    assert labels.max() > 19  # no coarse label is


def test_a_cut_archive_is_named(tmp_path: Path) -> None:
    write_cifar_binary(tmp_path, 10)
    file = tar(tmp_path / "cifar-10-batches-bin", tmp_path / "cifar-10-binary.tar.gz")
    shutil.rmtree(tmp_path / "cifar-10-batches-bin")
    whole = file.read_bytes()
    inner = gzip.decompress(whole)
    # cut outside and inside the gzip: within a member, and between two of them
    source = open_data("cifar10", tmp_path)
    for content in (whole[: len(whole) // 2], gzip.compress(inner[:40_000]), gzip.compress(inner[: 512 * 30])):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"not a whole|is missing from") as caught:
            source.train()
        assert str(file) in str(caught.value)
    file.write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"not a whole \.tar\.gz"):
        open_data("cifar10", tmp_path)


def test_the_training_members_are_enough(tmp_path: Path) -> None:
    """In this archive the test batch comes last; cut off, training still works and testing says what is missing."""
    write_cifar_binary(tmp_path, 10)
    folder = tmp_path / "cifar-10-batches-bin"
    (folder / "test_batch.bin").unlink()
    source = open_data("cifar10", tar(folder, tmp_path / "some.tar.gz"))
    assert len(source.train().labels) == 20
    with pytest.raises(DataError, match=r"cifar-10-batches-bin/test_batch\.bin is missing from .*some\.tar\.gz"):
        source.test()


def test_paths_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(3074))
    top = "cifar-100-binary"
    folder, link, outside = tarfile.TarInfo(top), tarfile.TarInfo(f"{top}/train.bin"), tarfile.TarInfo("../escaped")
    folder.type, link.type, link.linkname = tarfile.DIRTYPE, tarfile.SYMTYPE, str(secret)
    names = tarfile.TarInfo(f"{top}/fine_label_names.txt")
    members = [(folder, b""), (outside, b"x"), (names, b"one\ntwo\n"), (link, b"")]
    source = open_data("cifar100", tar_of(tmp_path / "bad.tar.gz", members))
    with pytest.raises(DataError, match="not a plain file"):
        source.train()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar.gz", "secret.bin"]
    assert not (tmp_path.parent / "escaped").exists()


def test_another_sets_archive_is_refused(tmp_path: Path) -> None:
    write_cifar_binary(tmp_path, 10)
    file = tar(tmp_path / "cifar-10-batches-bin", tmp_path / "x.tar.gz")
    with pytest.raises(DataError, match="holds cifar-10-batches-bin, which is not CIFAR-100"):
        open_data("cifar100", file)
    with pytest.raises(DataError, match="which is not MNIST"):
        open_data("mnist", file)


def test_tiny_imagenet(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    folder = write_tiny_imagenet(tmp_path, per_class=11)
    for path in (tmp_path, folder):
        source = open_data("tiny-imagenet", path)
        assert source.class_names == ("goldfish", "crane (n01)", "crane (n03)")
        train, test = source.train(), source.test()
        assert train.images.shape == (33, 3, 64, 64)
        assert train.labels.tolist() == [0] * 11 + [1] * 11 + [2] * 11
        # rows in numeric order: green is 10 times the number in the file's name, red 40 times the line in wnids.txt
        colours = train.images.double().mean((2, 3))
        expected = torch.tensor([[40.0 * k, 10.0 * i, 200.0] for k in range(3) for i in range(11)], dtype=torch.float64)
        assert (colours - expected).abs().max() < 3
        assert test.labels.tolist() == [2, 0]  # the order of val_annotations.txt
        red, grey = test.images.double().mean((2, 3)).tolist()
        assert red == pytest.approx([250, 0, 0], abs=3)
        assert grey == pytest.approx([90, 90, 90], abs=1)


def test_damaged_tiny_imagenet_is_named(tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    folder = write_tiny_imagenet(tmp_path)
    annotations, picture = folder / "val" / "val_annotations.txt", folder / "train" / "n01" / "images" / "n01_1.JPEG"
    whole = picture.read_bytes()
    for content, text in (
        (whole[: len(whole) // 2], "not a whole JPEG"),
        (b"GIF89a", "not a whole JPEG"),
        (_jpeg(pil, 63, 64), "63×64"),
    ):
        picture.write_bytes(content)
        with pytest.raises(DataError, match=text) as caught:
            open_data("tiny-imagenet", tmp_path).train()
        assert str(picture) in str(caught.value)
    for line, text in (("val_0.JPEG\tn77\t0", "no known class"), ("../../x\tn01\t0", "no known class"), ("", "empty")):
        annotations.write_text(line)
        with pytest.raises(DataError, match=text) as caught:
            open_data("tiny-imagenet", tmp_path).test()
        assert str(annotations) in str(caught.value)
    shutil.rmtree(folder / "train" / "n03")
    with pytest.raises(DataError, match=r"n03/images holds no \.JPEG"):
        open_data("tiny-imagenet", tmp_path).train()
    for wnids, text in (("../x", "no WordNet id"), ("n01\nn01", "twice"), ("", "empty")):
        (folder / "wnids.txt").write_text(wnids)
        with pytest.raises(DataError, match=text):
            open_data("tiny-imagenet", tmp_path)


def _jpeg(pil: object, width: int, height: int) -> bytes:
    stream = io.BytesIO()
    pil.new("RGB", (width, height)).save(stream, "JPEG")  # type: ignore[attr-defined]
    return stream.getvalue()

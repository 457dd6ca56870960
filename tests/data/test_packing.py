"""One file per data set: the same content, guarded by checksums, read split by split."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from data_formats import tar, write_cifar_binary, write_cifar_python, write_mnist, write_tiny_imagenet
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vmcr2.data import DATASETS, DataError, _packed_file as packed, open_data, pack, verify


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    write_mnist(tmp_path / "raw")
    return tmp_path / "raw"


@pytest.fixture
def file(raw: Path, tmp_path: Path) -> Path:
    return pack("mnist", raw, tmp_path / "packed" / "mnist.safetensors")


def rewrite(file: Path, metadata: dict[str, str] | None = None, **tensors: torch.Tensor) -> None:
    """The same file with some of it replaced, checksums left as they were."""
    with safe_open(file, "pt") as handle:
        old = handle.metadata()
    save_file({**load_file(file), **tensors}, file, {**old, **(metadata or {})})


def test_a_round_trip(raw: Path, file: Path) -> None:
    before, after = open_data("mnist", raw), open_data("mnist", file)
    for a, b in ((before.train(), after.train()), (before.test(), after.test())):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)
    assert before.checksum == after.checksum
    assert before.train_checksum == after.train_checksum
    assert before.class_names == after.class_names
    assert (before.path, after.path) == (raw, file)


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "cifar100", "cifar100 archive", "tiny-imagenet"])
def test_every_set_packs(tmp_path: Path, name: str) -> None:
    name, _, archive = name.partition(" ")
    raw = tmp_path / "raw"
    if name == "fashion-mnist":
        write_mnist(raw)
    elif name == "cifar10":
        write_cifar_python(raw, 10)
    elif name == "cifar100":
        write_cifar_binary(raw, 100)
    else:
        pytest.importorskip("PIL")
        write_tiny_imagenet(raw)
    if archive:
        raw = tar(raw / "cifar-100-binary", tmp_path / "x.tar.gz")
    file = pack(name, raw, tmp_path)  # a folder as target
    assert file == tmp_path / f"{name}.safetensors"
    before, after = open_data(name, raw), open_data(name, tmp_path)
    assert after.path == file
    assert after.class_names == before.class_names
    assert torch.equal(after.train().images, before.train().images)
    assert torch.equal(after.test().labels, before.test().labels)
    assert after.checksum == before.checksum


def test_what_the_file_says(file: Path) -> None:
    with safe_open(file, "pt") as handle:
        metadata = handle.metadata()
        assert sorted(handle.keys()) == ["test_images", "test_labels", "train_images", "train_labels"]
    assert metadata["format"] == "vmcr2-data-1"
    assert metadata["name"] == "mnist"
    assert json.loads(metadata["class_names"]) == list("0123456789")
    assert len(metadata["train_sha256"]) == len(metadata["test_sha256"]) == 64


def test_nothing_is_overwritten(raw: Path, file: Path, tmp_path: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(DataError, match="already exists"):
        pack("mnist", raw, file)
    with pytest.raises(DataError, match="already exists"):
        pack("mnist", raw, file.parent)
    assert file.read_bytes() == before
    other = tmp_path / "mine.safetensors"
    other.write_text("precious")
    with pytest.raises(DataError, match="already exists"):
        pack("mnist", raw, other)
    assert other.read_text() == "precious"


def test_a_failed_write_leaves_nothing(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(tensors: object, path: Path, metadata: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packed, "save_file", half)
    target = tmp_path / "new"
    with pytest.raises(DataError, match=r"cannot be written .*No space left"):
        pack("mnist", raw, target)
    assert list(target.iterdir()) == []


def test_a_failed_read_leaves_nothing(raw: Path, tmp_path: Path) -> None:
    (raw / "t10k-labels-idx1-ubyte.gz").write_bytes(b"no")
    with pytest.raises(DataError, match="t10k-labels"):
        pack("mnist", raw, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_unwritable_target_is_named(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where a folder should be")
    with pytest.raises(DataError, match=r"taken/x/mnist\.safetensors cannot be written"):
        pack("mnist", raw, tmp_path / "taken" / "x")


def test_the_file_has_the_users_permissions(file: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_only_what_is_asked_for_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[str] = []

    class Recorder:
        def __init__(self, path: Path, framework: str) -> None:
            self.handle = safe_open(path, framework)

        def __enter__(self) -> Recorder:
            self.inner = self.handle.__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            self.handle.__exit__(*error)

        def metadata(self) -> dict[str, str]:
            return self.inner.metadata()

        def get_tensor(self, name: str) -> torch.Tensor:
            touched.append(name)
            return self.inner.get_tensor(name)

    monkeypatch.setattr(packed, "safe_open", Recorder)
    source = open_data("mnist", file)
    assert len(source.checksum) == len(source.train_checksum) == 64
    assert touched == []
    source.train()
    assert touched == ["train_images", "train_labels"]
    touched.clear()
    source.test()
    assert touched == ["test_images", "test_labels"]


def test_a_changed_pixel_is_found_in_its_split_alone(file: Path) -> None:
    images = load_file(file)["test_images"].clone()
    images[3, 0, 27, 27] ^= 1
    rewrite(file, test_images=images)
    source = open_data("mnist", file)
    assert len(source.train().labels) == 12
    for look in (source.test, lambda: verify("mnist", file)):
        with pytest.raises(DataError, match=r"mnist\.safetensors has a wrong checksum in its test split"):
            look()


def test_a_changed_label_is_found(file: Path) -> None:
    labels = load_file(file)["train_labels"].clone()
    labels[0] = (labels[0] + 1) % 10
    rewrite(file, train_labels=labels)
    with pytest.raises(DataError, match="wrong checksum in its train split"):
        open_data("mnist", file).train()


def test_what_was_read_does_not_change_with_the_file(file: Path) -> None:
    split = open_data("mnist", file).train()
    before = [tensor.clone() for tensor in split]
    with file.open("r+b") as stream:  # in place: everything behind the header
        length = int.from_bytes(stream.read(8), "little")
        stream.seek(8 + length)
        stream.write(bytes(file.stat().st_size - 8 - length))
    assert all(torch.equal(a, b) for a, b in zip(split, before, strict=True))
    assert not load_file(file)["train_images"].any()


PACKED_DAMAGE = {
    "shape": ({"train_images": torch.zeros(12, 1, 28, 27, dtype=torch.uint8)}, {}, "wrong shape or type"),
    "count": ({"train_labels": torch.zeros(11, dtype=torch.int64)}, {}, "wrong shape or type"),
    "type": ({"train_labels": torch.zeros(12, dtype=torch.int32)}, {}, "wrong shape or type"),
    "version": ({}, {"format": "vmcr2-data-0"}, "not a data set packed by this version"),
    "name": ({}, {"name": "cifar10"}, "holds cifar10, not mnist"),
    "names": ({}, {"class_names": "[3"}, "no class names"),
    "range": ({}, {"class_names": '["a", "b"]'}, r"labels outside 0\.\.1"),
    "sum": ({}, {"train_sha256": "0" * 64}, "wrong checksum"),
}


@pytest.mark.parametrize("damage", PACKED_DAMAGE)
def test_a_damaged_packed_file_is_named(file: Path, damage: str) -> None:
    tensors, metadata, message = PACKED_DAMAGE[damage]
    rewrite(file, metadata, **tensors)
    with pytest.raises(DataError, match=message) as caught:
        open_data("mnist", file).train()
    assert str(file) in str(caught.value)


def test_a_missing_tensor_is_an_error(file: Path) -> None:
    tensors = load_file(file)
    with safe_open(file, "pt") as handle:
        metadata = handle.metadata()
    save_file({name: value for name, value in tensors.items() if name != "train_labels"}, file, metadata)
    with pytest.raises(DataError, match="not a whole safetensors file"):
        open_data("mnist", file).train()


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_cut_packed_file_is_named(file: Path, keep: int) -> None:
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"mnist\.safetensors is not a whole safetensors file"):
        open_data("mnist", file)


def test_verify_says_what_is_there(raw: Path, file: Path) -> None:
    for path in (raw, file):
        line = verify("mnist", path)
        assert line.startswith("mnist: 12 + 5 images of 1×28×28, 10 classes, not the published 60000 + 10000 images")
        assert open_data("mnist", path).checksum in line
        assert str(path) in line
        assert "\n" not in line


def test_verify_reads_both_splits(raw: Path) -> None:
    (raw / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz is missing"):
        verify("mnist", raw)


def test_published_content_is_demanded_of_published_sizes(
    raw: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = open_data("mnist", raw).checksum
    known = replace(DATASETS["mnist"], train_size=12, test_size=5, content=right, splits={}, md5={})
    monkeypatch.setitem(DATASETS, "mnist", known)
    assert "10 classes, as published;" in verify("mnist", raw)
    assert "10 classes, as published;" in verify("mnist", file)
    monkeypatch.setitem(DATASETS, "mnist", replace(known, content="0" * 64))
    for path in (raw, file):
        with pytest.raises(DataError, match=f"other content .*{right}"):
            verify("mnist", path)
    with pytest.raises(DataError, match="other content"):
        pack("mnist", raw, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("packing", ["folder", "archive"])
def test_published_md5_is_demanded_of_published_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packing: str
) -> None:
    write_cifar_python(tmp_path / "raw", 10)
    folder = tmp_path / "raw" / "cifar-10-batches-py"
    path, changed = tmp_path / "raw", folder / "data_batch_4"
    if packing == "archive":
        path = changed = tar(folder, tmp_path / "cifar-10-python.tar.gz")
    small = replace(DATASETS["cifar10"], train_size=20, test_size=4)
    monkeypatch.setitem(DATASETS, "cifar10", small)
    wrong = small.md5["cifar-10-python.tar.gz" if packing == "archive" else "cifar-10-batches-py/data_batch_1"]
    with pytest.raises(DataError, match=f"md5 .*published is {wrong}"):
        verify("cifar10", path)
    import hashlib

    key = "cifar-10-python.tar.gz" if packing == "archive" else "cifar-10-batches-py/data_batch_4"
    right = hashlib.md5(changed.read_bytes()).hexdigest()
    monkeypatch.setitem(DATASETS, "cifar10", replace(small, md5={key: right}))
    assert "as published" in verify("cifar10", path)
    file = pack("cifar10", path, tmp_path / "packed")
    assert "sizes as published" in verify("cifar10", file)
    monkeypatch.setitem(DATASETS, "cifar10", replace(small, md5={key: "0" * 32}))
    with pytest.raises(DataError, match=f"{changed.name} has the md5 {right}"):
        pack("cifar10", path, tmp_path / "again")


def test_digits_need_no_packing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to pack"):
        pack("digits", tmp_path, tmp_path)


def test_a_source_without_the_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no MNIST: it needs train-images-idx3-ubyte\.gz"):
        pack("mnist", tmp_path, tmp_path / "x")

"""Where data is looked for, what is said when it is not there, and the real sets where they are present."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from data_formats import write_cifar_binary, write_mnist

import vmcr2
from vmcr2.data import DATASETS, DataError, open_data, pack, verify
from vmcr2.data._files import md5
from vmcr2.data._split import joint_checksum

ROOT = Path(vmcr2.__file__).parent.parent
MNIST = ROOT / ".." / "shared" / "data" / "mnist"
real_mnist = pytest.mark.skipif(not MNIST.is_dir(), reason="the real MNIST is not here")


@pytest.fixture(autouse=True)
def _empty_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data but what the test makes: an empty working folder and home, no variable."""
    for name in ("work", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("VMCR2_DATA", raising=False)


def test_digits_are_split_by_class_and_once_and_for_all() -> None:
    from sklearn.datasets import load_digits

    source = open_data("digits")
    train, test = source.train(), source.test()
    assert train.images.shape == (1437, 1, 8, 8)
    assert test.images.shape == (360, 1, 8, 8)
    everything = torch.from_numpy(np.bincount(load_digits().target))
    share = torch.bincount(test.labels) / everything
    assert (share - 0.2).abs().max() < 0.004  # a fifth of every class, to the image
    assert torch.equal(torch.bincount(train.labels) + torch.bincount(test.labels), everything)
    # together they are the set: every image once, 0..16 spread over 0..255
    ours = torch.cat([train.images, test.images]).flatten(1)
    theirs = torch.from_numpy(np.rint(load_digits().data * 255 / 16)).to(torch.uint8)
    assert sorted(map(bytes, ours.numpy())) == sorted(map(bytes, theirs.numpy()))
    assert ours.max() == 255
    assert torch.equal(source.train().images, train.images)
    assert source.checksum == DATASETS["digits"].content  # pinned: another split would be another data set
    assert source.path is None


def test_labels_belong_to_their_digits() -> None:
    from sklearn.datasets import load_digits

    pixels, target = load_digits(return_X_y=True)
    known = {bytes(np.rint(row * 255 / 16).astype(np.uint8)): label for row, label in zip(pixels, target, strict=True)}
    for split in (open_data("digits").train(), open_data("digits").test()):
        found = [known[bytes(image)] for image in split.images.flatten(1).numpy()]
        assert found == split.labels.tolist()


def test_verify_refuses_another_split_of_the_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "as published" in verify("digits")
    monkeypatch.setitem(DATASETS, "digits", replace(DATASETS["digits"], content="0" * 64))
    with pytest.raises(DataError, match="other content"):
        verify("digits")


def test_the_places_and_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "raw")
    folders = [tmp_path / "home" / ".cache" / "vmcr2", Path("data"), tmp_path / "named"]
    monkeypatch.setenv("VMCR2_DATA", str(folders[2]))
    for folder in folders:  # from the last that is looked into to the first: each new one takes over
        file = pack("mnist", tmp_path / "raw", folder)
        assert open_data("mnist").path == file
    monkeypatch.setenv("VMCR2_DATA", str(folders[2] / "mnist.safetensors"))  # a file is fine too
    assert open_data("mnist").path == folders[2] / "mnist.safetensors"


def test_digits_take_no_path(tmp_path: Path) -> None:
    for reach in (open_data, verify):
        with pytest.raises(DataError, match=r"^digits is part of scikit-learn and needs no path, got .*: leave --data"):
            reach("digits", tmp_path)


def test_home_is_spelt_out_wherever_a_path_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell leaves the ~ of ``--data=~/x`` alone."""
    home = tmp_path / "home"
    write_mnist(home / "raw")
    file = pack("mnist", Path("~/raw"), Path("~/packed"))
    assert file == home / "packed" / "mnist.safetensors"
    assert open_data("mnist", "~/packed").path == file
    assert str(file) in verify("mnist", Path("~/packed"))
    monkeypatch.setenv("VMCR2_DATA", "~/packed")
    assert open_data("mnist").path == file
    with pytest.raises(DataError, match=str(home / "nowhere")):
        open_data("mnist", "~/nowhere")


def test_a_path_is_the_only_place(tmp_path: Path) -> None:
    write_mnist(Path("data"))
    assert open_data("mnist").path == Path("data")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty"):
        open_data("mnist", tmp_path / "empty")


def test_packed_comes_before_raw_in_one_folder(tmp_path: Path) -> None:
    write_mnist(tmp_path / "both")
    assert open_data("mnist", tmp_path / "both").path == tmp_path / "both"
    file = pack("mnist", tmp_path / "both", tmp_path / "both")
    assert open_data("mnist", tmp_path / "both").path == file


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", ""])
def test_raw_files_below_a_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    write_mnist(tmp_path / "sets" / folder)
    monkeypatch.setenv("VMCR2_DATA", str(tmp_path / "sets"))
    assert len(open_data("mnist").train().labels) == 12


def test_two_sets_of_the_same_file_names_lie_side_by_side(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", train=3)
    write_mnist(tmp_path / "FashionMNIST" / "raw", train=4)
    assert len(open_data("mnist", tmp_path).train().labels) == 3
    assert len(open_data("fashion-mnist", tmp_path).train().labels) == 4


def test_mnist_is_not_taken_for_fashion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path)
    assert open_data("fashion-mnist", tmp_path).class_names[0] == "T-shirt/top"
    name = "train-labels-idx1-ubyte.gz"
    known = replace(DATASETS["mnist"], md5={name: hashlib.md5((tmp_path / name).read_bytes()).hexdigest()})
    monkeypatch.setitem(DATASETS, "mnist", known)
    with pytest.raises(DataError, match="holds MNIST, not Fashion-MNIST"):
        open_data("fashion-mnist", tmp_path)
    assert len(open_data("mnist", tmp_path).train().labels) == 12


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_a_missing_set_says_where_what_and_how(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMCR2_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError) as caught:
        open_data(name)
    message = str(caught.value)
    assert f"{tmp_path / 'nowhere'} (does not exist), data (does not exist)" in message
    assert str(tmp_path / "home" / ".cache" / "vmcr2") in message
    assert f"{name}.safetensors" in message
    assert f"`vmcr2 data pack {name} --from FOLDER`" in message
    for file in DATASETS[name].files:
        assert file in message
    assert "\n" not in message


def test_an_unknown_set_offers_the_nearest() -> None:
    with pytest.raises(DataError, match=r"'cifar-10' \(did you mean cifar10\?\): there are digits, mnist"):
        open_data("cifar-10")
    with pytest.raises(DataError, match="there are"):
        verify("xyzzy")


@pytest.mark.parametrize("state", ["absent", "corrupt"])
def test_training_does_not_touch_raw_test_files(tmp_path: Path, state: str) -> None:
    write_mnist(tmp_path / "mnist")
    write_cifar_binary(tmp_path, 100)
    victims = [*(tmp_path / "mnist").glob("t10k*"), tmp_path / "cifar-100-binary" / "test.bin"]
    assert len(victims) == 3
    whole = {name: open_data(name, tmp_path).train_checksum for name in ("mnist", "cifar100")}
    for path in victims:
        path.unlink() if state == "absent" else path.write_bytes(b"rubbish")
    for name, checksum in whole.items():
        source = open_data(name, tmp_path)
        assert len(source.train().labels) > 0
        assert source.train_checksum == checksum
        with pytest.raises(DataError, match=r"t10k|test"):
            source.test()
        with pytest.raises(DataError, match=r"t10k|test"):
            _ = source.checksum


def test_testing_does_not_touch_raw_training_files(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    for path in tmp_path.glob("train*"):
        path.unlink()
    assert len(open_data("mnist", tmp_path).test().labels) == 5


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    source = open_data("mnist", tmp_path)
    first = source.train_checksum
    write_mnist(tmp_path, train=3)
    assert len(source.train().labels) == 3
    assert source.train_checksum != first  # and the checksum is that of what was read last


def test_the_catalogue_is_consistent() -> None:
    for name, info in DATASETS.items():
        assert info.name == name
        assert all(len(digest) == 32 for digest in info.md5.values())
        assert info.content is None or len(info.content) == 64
        assert not info.splits or joint_checksum(info.splits["train"], info.splits["test"]) == info.content
    assert {name: info.image_shape for name, info in DATASETS.items()} == {
        "digits": (1, 8, 8),
        "mnist": (1, 28, 28),
        "fashion-mnist": (1, 28, 28),
        "cifar10": (3, 32, 32),
        "cifar100": (3, 32, 32),
        "tiny-imagenet": (3, 64, 64),
    }


def test_the_room_imports_neither_sklearn_nor_pillow_nor_torchvision() -> None:
    script = "import sys, vmcr2.data; print(*sorted({'sklearn', 'PIL', 'torchvision'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.split() == []


@real_mnist
def test_the_real_mnist(tmp_path: Path) -> None:
    info = DATASETS["mnist"]
    assert {name: md5(MNIST / name) for name in info.md5} == info.md5
    line = verify("mnist", MNIST)
    assert line.startswith("mnist: 60000 + 10000 images of 1×28×28, 10 classes, as published;")
    source = open_data("mnist", MNIST)
    train, test = source.train(), source.test()
    assert train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert torch.bincount(test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert train.images.double().mean() / 255 == pytest.approx(0.1307, abs=5e-5)  # the figures everybody knows
    assert train.images.double().std() / 255 == pytest.approx(0.3081, abs=5e-5)

    file = pack("mnist", MNIST, tmp_path)
    again = open_data("mnist", tmp_path)
    assert again.path == file
    assert torch.equal(again.train().images, train.images)
    assert torch.equal(again.test().labels, test.labels)
    assert again.checksum == source.checksum == info.content
    assert "as published" in verify("mnist", file)


@real_mnist
def test_one_wrong_pixel_in_the_real_mnist(tmp_path: Path) -> None:
    import gzip

    for path in MNIST.glob("*.gz"):
        shutil.copyfile(path, tmp_path / path.name)
    victim = tmp_path / "t10k-images-idx3-ubyte.gz"
    data = bytearray(gzip.decompress(victim.read_bytes()))
    data[-400] ^= 1
    victim.write_bytes(gzip.compress(data, 1))
    source = open_data("mnist", tmp_path)
    assert len(source.train().labels) == 60_000  # the other split is as published
    for read in (source.test, lambda: verify("mnist", tmp_path)):
        with pytest.raises(DataError, match="a test split of MNIST of the published size but other content"):
            read()


@real_mnist
def test_the_real_mnist_is_not_fashion() -> None:
    with pytest.raises(DataError, match="holds MNIST, not Fashion-MNIST"):
        open_data("fashion-mnist", MNIST)

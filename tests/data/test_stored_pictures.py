"""The cache of packed pictures: whole or not there, shared by processes, verified or mapped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from data_formats import write_tiny_imagenet
from picture_folders import Image, write_classes
from safetensors import safe_open
from safetensors.torch import load_file

from vmcr2.data import DataError, Source, Split, _workers as workers, from_folder, pack
from vmcr2.data._memory import free_memory
from vmcr2.data._split import split_checksum
from vmcr2.data._stored_pictures import PictureFile, StoredPictures

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VMCR2_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Enough pictures for several processes, and for several batches of each."""
    return write_classes(tmp_path / "many", each=300, size=(4, 5))


def packed(cache: Path) -> Path:
    (file,) = cache.rglob("*.safetensors")
    return file


def half_files(cache: Path) -> list[Path]:
    return list(cache.rglob("*.tmp"))


# the file


@pytest.mark.parametrize("broken", [0, 3])
def test_a_file_is_written_row_by_row(tmp_path: Path, broken: int) -> None:
    shape = (1, 3, 5)
    splits = {
        part: Split(torch.randint(256, (count, *shape), dtype=torch.uint8), torch.arange(count) % 2)
        for part, count in (("train", 7), ("val", 2), ("test", 4))
    }
    expected = {part: len(split.labels) + broken for part, split in splits.items()}
    with PictureFile(tmp_path / "x", shape, expected, reserve=1001) as file:  # type: ignore[arg-type]
        for part, split in splits.items():
            for pixels, label in zip(split.images, split.labels.tolist(), strict=True):
                file.add(part, pixels.numpy().tobytes(), label)  # type: ignore[arg-type]
        file.finish({"class_names": '["a", "b"]', "more": "é"})
    reader = StoredPictures(tmp_path / "x", tmp_path)
    assert (reader.parts, reader.class_names, reader.shape) == (("train", "val", "test"), ("a", "b"), shape)
    assert reader.metadata["more"] == "é"
    for part in reader.parts:
        found = reader.read(part)
        assert torch.equal(found.images, splits[part].images)
        assert torch.equal(found.labels, splits[part].labels)
        assert reader.checksum(part) == split_checksum(splits[part])
    assert load_file(tmp_path / "x")["padding"].shape == (5,)  # 13 pictures of 15 bytes
    with (tmp_path / "x").open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    starts = [8 + length + header[f"{part}_labels"]["data_offsets"][0] for part in splits]
    assert [start % 8 for start in starts] == [0, 0, 0]


def test_opening_again_lists_and_does_not_decode(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "x")
    first = from_folder(root)
    before = packed(cache).stat().st_mtime_ns
    monkeypatch.setattr("vmcr2.data._cache.decoded", None)
    again = from_folder(root)
    assert again.checksum == first.checksum
    assert packed(cache).stat().st_mtime_ns == before
    assert torch.equal(again.train().images, first.train().images)


@pytest.mark.parametrize("change", ["content", "time", "new", "gone", "class"])
def test_a_changed_folder_is_packed_again(tmp_path: Path, cache: Path, change: str) -> None:
    root = write_classes(tmp_path / "x", each=10)
    before = from_folder(root)
    path = root / "cat" / "cat3.png"
    if change == "content":
        Image.new("L", (8, 8), 7).save(path)
    elif change == "time":
        os.utime(path, (1, 1))
    elif change == "new":
        Image.new("L", (8, 8), 7).save(root / "cat" / "new.png")
    elif change == "gone":
        path.unlink()
    else:
        (root / "cat").rename(root / "tiger")
    after = from_folder(root)
    assert len(list(cache.rglob("*.safetensors"))) == 2
    same_content = change in ("time", "class")
    sevens = sum(int((split.images == 7).all((1, 2, 3)).sum()) for split in (after.train(), after.test()))
    assert sevens == int(change in ("content", "new"))
    assert (len(after.train().labels) + len(after.test().labels)) == 20 + (change == "new") - (change == "gone")
    assert same_content or after.checksum != before.checksum


def test_every_shape_has_its_file_and_all_share_the_survey(tmp_path: Path, cache: Path) -> None:
    root = write_classes(tmp_path / "x", size=(9, 7))
    shapes = {from_folder(root, **options).sample_shape for options in ({}, {"image_size": 4}, {"channels": 3})}  # type: ignore[arg-type]
    assert shapes == {(1, 9, 7), (1, 4, 4), (3, 9, 7)}
    assert len(list(cache.rglob("*.safetensors"))) == 3
    (survey,) = cache.rglob("survey.json")
    assert json.loads(survey.read_text())["sizes"] == [[7, 9, 10]]
    survey.write_text("{")  # lost or damaged: made again
    assert from_folder(root).sample_shape == (1, 9, 7)


def test_a_damaged_file_is_named(tmp_path: Path, cache: Path) -> None:
    root = write_classes(tmp_path / "x")
    source = from_folder(root)
    flip_the_first_pixel(packed(cache))
    with pytest.raises(DataError, match=r"safetensors has a wrong checksum in its train split: remove it"):
        source.train()
    assert len(source.test().labels) == 2
    packed(cache).write_bytes(packed(cache).read_bytes()[:500])
    with pytest.raises(DataError, match=r"is not a whole safetensors file .*: remove it"):
        from_folder(root)
    packed(cache).unlink()
    assert len(from_folder(root).train().labels) == 8


def flip_the_first_pixel(file: Path) -> None:
    with file.open("r+b") as stream:
        start = 8 + int.from_bytes(stream.read(8), "little")
        stream.seek(start)
        value = stream.read(1)[0]
        stream.seek(start)
        stream.write(bytes((value ^ 1,)))


# larger than memory


def test_a_split_larger_than_memory_is_mapped(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "x", size=(64, 64))
    source = from_folder(root)
    copied = source.train()
    size = copied.images.numel()
    monkeypatch.setattr("vmcr2.data._stored_pictures.free_memory", lambda: 2 * size - 1)
    mapped = source.train()
    assert torch.equal(mapped.images, copied.images)
    assert torch.equal(mapped.labels, copied.labels)
    assert source.checksum == from_folder(root).checksum
    before = int(mapped.images[0, 0, 0, 0])
    flip_the_first_pixel(packed(cache))
    assert int(mapped.images[0, 0, 0, 0]) == before ^ 1, "its memory is the file's"
    assert int(copied.images[0, 0, 0, 0]) == before
    monkeypatch.setattr("vmcr2.data._stored_pictures.free_memory", lambda: 2 * size)
    with pytest.raises(DataError, match="wrong checksum"):
        source.train()


def test_free_memory_is_a_number_of_bytes() -> None:
    assert 1e6 < free_memory() < 1e15


# several processes, some of which are killed

PACK = """
import sys, time
from pathlib import Path
from vmcr2.data import from_folder
def progress(what, done, total):
    if what == "packing":
        print("packing", flush=True)
        time.sleep(float(sys.argv[2]))
print(from_folder(sys.argv[1], progress=progress).checksum, flush=True)
"""


def packer(root: Path, pause: float) -> subprocess.Popen[str]:
    """A process that packs, and pauses after every 64 pictures."""
    command = [sys.executable, "-c", PACK, str(root), str(pause)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, start_new_session=True
    )


@contextmanager
def packing(root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of its work."""
    process = packer(root, pause=60)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "packing\n"
        yield process
    finally:
        process.kill()
        process.wait()


def children(process: subprocess.Popen[str]) -> list[int]:
    found = Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(pid) for path in found for pid in path.read_text().split()]


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text() for pid in pids):
        assert time.monotonic() < deadline, f"{pids} still run"
        time.sleep(0.05)


def expected(root: Path, other: Path) -> Source:
    return from_folder(root, cache=other)


def test_two_processes_pack_once(many: Path, tmp_path: Path, cache: Path) -> None:
    both = [packer(many, pause=0.1) for _ in range(2)]
    said = [process.communicate(timeout=120)[0].split() for process in both]
    assert {words[-1] for words in said} == {expected(many, tmp_path / "other").checksum}
    assert sorted("packing" in words for words in said) == [False, True], "the second waits and takes the first's"
    assert half_files(cache) == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_packer_that_is_stopped_leaves_nothing_that_is_read(
    many: Path, tmp_path: Path, cache: Path, how: int
) -> None:
    with packing(many) as process:
        pids = children(process)
        assert pids, "its workers"
        assert len(half_files(cache)) == 1
        process.send_signal(how)
        process.wait(timeout=30)
        wait_until_gone(pids)
    assert list(cache.rglob("*.safetensors")) == []
    assert len(half_files(cache)) == int(how == signal.SIGKILL)
    source = from_folder(many)
    assert source.checksum == expected(many, tmp_path / "other").checksum
    assert half_files(cache) == []


def test_half_files_of_other_folders_are_removed_unless_somebody_writes_them(
    many: Path, tmp_path: Path, cache: Path
) -> None:
    left = cache / "old-0123" / ".0123.safetensors.99.tmp"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    with packing(many):
        assert not left.exists()
        (mine,) = half_files(cache)
        from_folder(write_classes(tmp_path / "small"))
        assert half_files(cache) == [mine]


# workers


def program(path: Path, change: str) -> Path:
    """The workers' program with something done to it before it starts."""
    real = workers._PROGRAM
    path.write_text(
        "import importlib.util, os, sys\n"
        f"spec = importlib.util.spec_from_file_location('program', {str(real)!r})\n"
        "program = sys.modules['program'] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(program)\n"
        "decode = program._decode\n"
        f"{change}\n"
        "program._main()\n"
    )
    return path


def test_a_picture_that_crashes_its_worker_is_broken(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly = "program._decode = lambda s, path, task: os._exit(9) if 'cat77' in path else decode(s, path, task)"
    whole = expected(many, tmp_path / "other")
    monkeypatch.setattr(workers, "_PROGRAM", program(tmp_path / "deadly.py", deadly))
    source = from_folder(many)
    (note,) = [note for note in source.notes if "cannot be decoded" in note]
    assert "(1, all listed in" in note
    assert "cat/cat77.png: the decoder crashed on it" in note
    assert len(source.train().labels) + len(source.test().labels) == 599
    rows = {bytes(row.numpy()) for split in (source.train(), source.test()) for row in split.images}
    every = {bytes(row.numpy()) for split in (whole.train(), whole.test()) for row in split.images}
    assert len(every - rows) == 1


def test_workers_that_always_crash_are_an_error(
    many: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = "program._decode = lambda stream, path, task: os._exit(9)"
    monkeypatch.setattr(workers, "_PROGRAM", program(tmp_path / "deadly.py", change))
    with pytest.raises(DataError, match="crash again and again"):
        from_folder(many)
    assert half_files(cache) == []


def test_without_processes_pictures_are_decoded_here(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = expected(many, tmp_path / "other")
    (tmp_path / "dead.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(workers, "_PROGRAM", tmp_path / "dead.py")
    assert from_folder(many).checksum == whole.checksum


def test_a_worker_imports_no_torch(many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = f"open({str(tmp_path / 'modules')!r}, 'w').write(' '.join(sys.modules))"
    monkeypatch.setattr(workers, "_PROGRAM", program(tmp_path / "told.py", change))
    from_folder(many)
    modules = (tmp_path / "modules").read_text().split()
    assert "PIL.Image" in modules
    assert not {"torch", "vmcr2", "numpy"} & set(modules)


def test_a_script_needs_no_guard(many: Path, tmp_path: Path, cache: Path) -> None:
    """Processes that are started by multiprocessing would import the script, and pack again in each of them."""
    script = tmp_path / "mine.py"
    script.write_text(f"print('started')\nfrom vmcr2.data import from_folder\nfrom_folder({str(many)!r})\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True, env=environment)
    assert done.stdout == "started\n"
    assert packed(cache).exists()


def test_answers_come_in_order_whatever_the_workers_do(tmp_path: Path) -> None:
    from vmcr2.data._decode import Seen, Task

    sizes = [3 + (7 * row) % 40 for row in range(400)]
    for row, side in enumerate(sizes):
        Image.fromarray(np.full((side, 2), row % 256, np.uint8)).save(tmp_path / f"{row}.png")
    files = [(f"{tmp_path}/{row}.png", 100) for row in range(400)]
    found = list(workers.decoded(files, Task(1, (2, 2), "stretch"), workers=3))
    assert [seen.height if isinstance(seen, Seen) else seen for seen, _ in found] == sizes
    assert [pixels for _, pixels in found] == [bytes([row % 256] * 4) for row in range(400)]


def test_tiny_imagenet_is_decoded_by_the_same_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_imagenet(tmp_path / "raw")
    alone = load_file(pack("tiny-imagenet", tmp_path / "raw", tmp_path / "a"))
    monkeypatch.setattr(workers, "_FEW", 0)
    calls: list[tuple[str, int, int]] = []
    file = pack("tiny-imagenet", tmp_path / "raw", tmp_path / "b", progress=lambda *call: calls.append(call))
    crowd = load_file(file)
    assert all(torch.equal(alone[name], crowd[name]) for name in alone)
    assert calls == [("decoding train", 9, 9), ("decoding test", 2, 2)]
    with safe_open(file, "pt") as handle:
        assert handle.metadata()["name"] == "tiny-imagenet"

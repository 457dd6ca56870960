"""Half files: those of dead processes go, those of living ones stay. Files that carry their checksum."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from vmcr2._shared import atomic, tensors_are_whole, write_tensor_file
from vmcr2.runs import DamagedError, read_record
from vmcr2.runs._records import write_record

KINDS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
KINDS += (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


def test_what_a_dead_process_left_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    left, other = tmp_path / ".page.html.77-0.tmp", tmp_path / ".other.html.77-0.tmp"
    for half in (left, other):
        half.write_bytes(b"half")
    with atomic(path) as temporary:
        assert not left.exists()
        assert other.exists()  # of another file: whoever writes that removes it
        temporary.write_text("whole")
    assert path.read_text() == "whole"


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    path, half = tmp_path / "page.html", tmp_path / ".page.html.77-0.tmp"
    with half.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as its process does
        with atomic(path) as temporary:
            temporary.write_text("mine")
        assert half.exists()
    with atomic(path) as temporary:
        temporary.write_text("mine again")
    assert not half.exists()


def test_threads_that_write_the_same_file(tmp_path: Path) -> None:
    """One of them wins, and the file is whole."""
    path = tmp_path / "f"
    texts = [str(number) * 10_000 for number in range(8)]

    def write(text: str) -> None:
        for _ in range(10):
            with atomic(path) as temporary:
                temporary.write_text(text)

    threads = [threading.Thread(target=write, args=[text]) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert [part.name for part in tmp_path.iterdir()] == ["f"]


def test_every_kind_of_tensor_is_what_the_library_reads(tmp_path: Path) -> None:
    tensors = {str(kind): torch.arange(7).to(kind).reshape(7, 1) for kind in KINDS}
    tensors |= {"empty": torch.zeros(0, 3), "one": torch.tensor(2.5), "turned": torch.arange(6.0).reshape(2, 3).T}
    write_tensor_file(tmp_path / "t", tensors, {"who": "jä"})
    found = load_file(tmp_path / "t")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in tensors.items())
    with safe_open(tmp_path / "t", "pt") as file:
        metadata = file.metadata()
    assert metadata["who"] == "jä"
    assert tensors_are_whole(found, metadata)
    for name, value in tensors.items():
        if value.numel():
            assert not tensors_are_whole(found | {name: value.flip(0) if value.ndim else value + 1}, metadata)
    assert not tensors_are_whole(found, metadata | {"who": "ja"})
    assert not tensors_are_whole({f"{name}x": value for name, value in found.items()}, metadata)
    with pytest.raises(TypeError, match="complex"):
        write_tensor_file(tmp_path / "t", {"c": torch.zeros(2, dtype=torch.complex64)})


def test_a_record_comes_back_and_its_spaces_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    record = {"a": 0.1 + 0.2, "b": [1, None, True], "c": {"d": "é\udce9"}, "n": float("inf"), "e": 10**30}
    write_record(path, record)
    assert read_record(path) == record
    path.write_text(path.read_text().replace("\n", "\n   "))
    assert read_record(path) == record
    path.write_text(path.read_text().replace("true", "false"))
    with pytest.raises(DamagedError, match="is damaged or was changed by hand"):
        read_record(path)

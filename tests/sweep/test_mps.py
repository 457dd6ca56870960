"""MPS for the life of a sweep: started where it can be, ended where it was started, left alone where it was not."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from vmcr2.runs import recipe
from vmcr2.sweep import _sweep as module, grid, sweep
from vmcr2.sweep._mps import CONTROL, multi_process_service


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for NVIDIA's program: writes down what it is asked, and runs «daemons» as files in its pipe folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "asked"
    program = folder / CONTROL
    program.write_text(
        f"""#!/bin/sh
pipe="${{CUDA_MPS_PIPE_DIRECTORY:-{tmp_path}/default}}"
if [ "$1" = "-d" ]; then
    echo "start $pipe" >> {log}
    [ -e {tmp_path}/broken ] && exit 3
    [ -d "$CUDA_MPS_LOG_DIRECTORY" ] || exit 4
    touch "$pipe/daemon"
    sleep 60 &  # a daemon that keeps what it inherited: whoever reads its output to the end waits for it
    echo $! > {tmp_path}/pid
    exit 0
fi
read command
echo "$command $pipe" >> {log}
[ -e "$pipe/daemon" ] || exit 1
[ "$command" = quit ] && rm "$pipe/daemon" && kill "$(cat {tmp_path}/pid)"
exit 0
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_it_is_started_for_the_children_and_ended(control: Path) -> None:
    with suppress(KeyboardInterrupt), multi_process_service() as note:
        assert note == "the processes share the GPU through MPS"
        pipe = os.environ["CUDA_MPS_PIPE_DIRECTORY"]  # what child processes inherit
        assert Path(pipe, "daemon").exists()
        assert Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]).is_dir()
        raise KeyboardInterrupt
    assert asked(control) == [f"get_server_list {control}/default", f"start {pipe}", f"quit {pipe}"]
    assert not Path(pipe).exists()
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert "CUDA_MPS_LOG_DIRECTORY" not in os.environ


def test_a_daemon_that_runs_already_is_used_and_left(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = control / "mine"
    mine.mkdir()
    (mine / "daemon").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(mine))
    with multi_process_service() as note:
        assert "already runs" in note
        assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == str(mine)
    assert asked(control) == [f"get_server_list {mine}"]
    assert (mine / "daemon").exists()


def test_one_that_does_not_start_is_said(control: Path) -> None:
    (control / "broken").touch()
    with multi_process_service() as note:
        assert "take turns" in note
        assert "ended with 3" in note
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert not [line for line in asked(control) if line.startswith("quit")]


def test_where_there_is_none_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with multi_process_service() as note:
        assert "take turns" in note
        assert "not on PATH" in note


class Notes:
    def __init__(self) -> None:
        self.note: str | None = None

    def started(self, total: int, done: int, note: str | None) -> None:
        self.note = note

    def finished(self, *_: object) -> None:
        pass

    def lost(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("parallel", "device", "devices", "served"),
    [(2, "auto", 1, True), (2, "cpu", 1, False), (2, "auto", 0, False), (1, "auto", 1, False)],
)
def test_a_sweep_starts_it_for_several_runs_on_a_gpu(
    parallel: int, device: str, devices: int, served: bool, control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: devices)
    inside: list[bool] = []
    monkeypatch.setattr(
        module, "run_in_processes", lambda *_, **__: inside.append("CUDA_MPS_PIPE_DIRECTORY" in os.environ)
    )
    points = grid(recipe("digits", epochs=1, eval_every=0, device=device), {"lr": [0.1, 0.3]})
    notes = Notes()
    sweep(points, control / "s", parallel=parallel, listener=notes)
    assert inside == ([served] if parallel > 1 else [])
    assert (notes.note is not None and "through MPS" in notes.note) == served
    assert (control / "asked").exists() == served
    again = Notes()
    monkeypatch.setattr("vmcr2.sweep._workers.multi_process_service", None)  # nothing left to do: nothing to start
    if parallel == 1:
        sweep(points, control / "s", parallel=2, listener=again)
        assert again.note is None


def test_its_sockets_can_be_named_whatever_the_temporary_folder(
    control: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with multi_process_service() as said:
        assert said == "the processes share the GPU through MPS"
        pipe = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
        assert len(f"{pipe}/control_privileged") < 100
        assert not pipe.startswith(str(deep))
    assert not Path(pipe).exists()

"""`torchrun -m vmcr2 train`: one process speaks and writes, a lost one is survived, another number goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from command_line import in_process
from run_files import metrics, weights
from seeds import SEED

import vmcr2
from vmcr2.cli import _ranks
from vmcr2.cli._ranks import restarted
from vmcr2.runs import RunFolder, UserError, read_position

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")

ROOT = Path(vmcr2.__file__).parent.parent
NETWORK = '''
"""A network that ends its process, rank 1 of the first attempt, in a step that is asked for."""
import os
import signal

from torch import nn

DIES = os.environ.get("DIES_IN_STEP") if os.environ.get("RANK") == "1" else None


class Fragile(nn.Module):
    def __init__(self, dim):
        super().__init__()
        hidden = [nn.Linear(64, 48), nn.BatchNorm1d(48), nn.Tanh(), nn.Dropout(0.2)]
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(48, dim))
        self.steps = 0

    def forward(self, x):
        self.steps += self.training
        if DIES and self.steps == int(DIES) and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layers(x)


def make(dim):
    if DIES == "-1":
        os.kill(os.getpid(), signal.SIGKILL)
    return Fragile(dim)
'''
SETTINGS = ["--model", "fragile:make", "--epochs", "4", "--seed", str(SEED), "--device", "cpu"]
SETTINGS += ["--set", "dim=32", "--set", "atoms_per_class=3", "--set", "checkpoint_seconds=0"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "fragile.py").write_text(NETWORK)
    return tmp_path


def command(place: Path, *arguments: str, dies: int = 0) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(place)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    if dies:
        environment["DIES_IN_STEP"] = str(dies)
    line = [sys.executable, "-m", *arguments]
    return subprocess.run(line, check=False, cwd=place, env=environment, capture_output=True, text=True, timeout=200)


def torchrun(count: int, *more: str) -> list[str]:
    return ["torch.distributed.run", "--standalone", "--nproc-per-node", str(count), *more, "-m"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process."""
    place = tmp_path_factory.mktemp("undisturbed")
    (place / "fragile.py").write_text(NETWORK)
    done = command(place, "vmcr2", "train", "digits", *SETTINGS, "--out", "run")
    assert done.returncode == 0, done.stderr
    return place / "run"


def check_same(folder: Path, undisturbed: Path) -> None:
    found, expected = weights(folder), weights(undisturbed)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        own = found[name]
        if name.endswith("dictionary"):  # an eigenvector has no sign
            own = own * torch.where((own * value).sum(0) < 0, -1.0, 1.0)
        torch.testing.assert_close(own, value, rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
    assert [line["epoch"] for line in metrics(folder)] == [1, 2, 3, 4]


def said(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What it printed: one JSON object, from one process."""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_torchrun_starts_a_killed_run_again(place: Path, undisturbed: Path) -> None:
    """Rank 1 is killed in step 8, in the third epoch."""
    start = torchrun(2, "--max-restarts", "1")
    done = command(place, *start, "vmcr2", "train", "digits", *SETTINGS, "--out", "run", "--json", dies=8)
    assert done.returncode == 0, done.stderr
    assert said(done)["epochs"] == 4
    assert "another of the 2 processes has ended" in done.stderr
    check_same(place / "run", undisturbed)


TOLD_TO_END = """
from vmcr2.runs import _ranks

words = _ranks._how_to_go_on
_ranks._how_to_go_on = lambda folder: os.kill(os.getpid(), signal.SIGTERM) or words(folder)
"""


def test_its_last_words_come_though_torchrun_is_quicker(place: Path) -> None:
    """SIGTERM, as torchrun sends it, comes while rank 0 still looks for the checkpoint."""
    (place / "fragile.py").write_text(NETWORK + TOLD_TO_END)
    done = command(place, *torchrun(2), "vmcr2", "train", "digits", *SETTINGS, "--out", "run", dies=8)
    assert done.returncode != 0
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("vmcr2:"))
    assert "The last checkpoint is after epoch 2" in line


def test_a_run_goes_on_under_another_number_of_processes(place: Path, undisturbed: Path) -> None:
    done = command(place, *torchrun(2), "vmcr2", "train", "digits", *SETTINGS, "--out", "run", dies=8)
    assert done.returncode != 0
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("vmcr2:"))
    assert "another of the 2 processes has ended" in line
    assert "The last checkpoint is after epoch 2" in line
    assert read_position(RunFolder(place / "run").checkpoint).epoch == 2
    again = command(place, *torchrun(3), "vmcr2", "train", "--resume", "--out", "run", "--json")
    assert again.returncode == 0, again.stderr
    assert said(again)["epochs"] == 4
    check_same(place / "run", undisturbed)


def test_a_process_that_dies_before_the_run_begins(place: Path) -> None:
    done = command(place, *torchrun(2), "vmcr2", "train", "digits", *SETTINGS, "--out", "run", dies=-1)
    assert done.returncode != 0
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("vmcr2:"))
    assert "another of the 2 processes has ended before the run began" in line
    assert "[rank0]: Traceback" not in done.stderr


def test_a_mistake_is_said_once(place: Path) -> None:
    done = command(place, *torchrun(2), "vmcr2", "train", "digits", "--set", "batch_size=1", "--set", "dim=32")
    assert done.returncode != 0
    assert done.stderr.count("vmcr2: ") == 1
    assert "a batch has 1 rows, but there are 2 processes" in done.stderr
    assert not (place / "runs").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["train", "digits", "--bogus"], "No such option: --bogus"),
        (["train", "--resume"], "--resume needs --out"),
        (["sweep", "digits", "--grid", "lr=0.1", "--out", "s"], "torchrun is for `vmcr2 train`"),
    ],
    ids=["an option", "a folder", "a sweep"],
)
def test_a_mistake_that_every_process_finds_is_said_once(line: list[str], words: str, place: Path) -> None:
    done = command(place, *torchrun(2), "vmcr2", *line)
    assert done.returncode != 0
    assert done.stderr.count(words) == 1, done.stderr
    assert not (place / "s").exists()


MACHINES = """
import os
os.chdir(os.environ["RANK"])
from vmcr2.runs import _ranks
_ranks._SEEN_SECONDS = 0
from vmcr2.cli import main
main()
"""


def test_machines_without_a_shared_folder_are_told_before_the_run(place: Path) -> None:
    """Each process in a folder of its own, as on a machine of its own."""
    (place / "machines.py").write_text(MACHINES)
    for rank in "01":
        (place / rank).mkdir()
    more = ["--device", "cpu", "--epochs", "1", "--out", "run"]
    done = command(place, *torchrun(2)[:-1], "machines.py", "train", "digits", *more)
    assert done.returncode != 0
    assert done.stderr.count("vmcr2: rank 1: this process does not see") == 1, done.stderr
    assert "epoch 1" not in done.stdout


@pytest.mark.parametrize(("error", "words"), [(UserError("mine"), "mine"), (SystemExit(2), "usage")])
def test_a_mistake_of_one_process_is_said_by_it(
    error: BaseException, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where torchrun does not end it meanwhile."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    waited: list[float] = []
    monkeypatch.setattr("vmcr2.cli._ranks.time.sleep", waited.append)

    def mistaken() -> None:
        with _ranks.said_once():
            sys.stderr.write("usage")
            assert capsys.readouterr().err == ""
            raise error

    with pytest.raises(type(error)) as raised:
        mistaken()
    assert len(waited) == 1
    assert words in capsys.readouterr().err + str(raised.value)


def test_logs_have_a_name_that_torchrun_leaves_alone(place: Path) -> None:
    """Before Python 3.12 torchrun takes --log for the start of its own --log-dir and --logs-specs, and ends."""
    pytest.importorskip("tensorboard")
    more = ["--epochs", "1", "--device", "cpu", "--out", "run", "--logger", "tensorboard"]
    done = command(place, *torchrun(2), "vmcr2", "train", "digits", *more)
    assert done.returncode == 0, done.stderr
    writers = {path.name.split(".")[-2] for path in (place / "run").rglob("events.out.tfevents.*")}
    assert len(writers) == 1, "the number of a process: rank 0 alone logs"


def test_the_command_that_started_a_run_continues_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun does when it starts the processes again; also a run that is finished meanwhile."""
    out = str(tmp_path / "run")
    line = ["train", "digits", "--objective", "ce", "--epochs", "2", "--device", "cpu", "--set", "dim=32", "--out", out]
    assert in_process(*line).code == 0
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    again = in_process(*line)
    assert again.code == 0, again.err
    assert "was already finished" in again.out
    longer = [word if word != "2" else "3" for word in line]
    for other in ([*line[:-3], "dim=48", "--out", out], longer, ["train", "digits", "--objective", "ce", "--out", out]):
        refused = in_process(*other)
        assert refused.code == 2, "a run of others, which the first attempt refused"
        assert "leave all other settings out" in refused.err
    assert RunFolder(tmp_path / "run").read_config().optim.epochs == 2


def test_restarts_need_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert not restarted(Path("run"))
    with pytest.raises(UserError, match="--max-restarts needs --out"):
        restarted(None)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert restarted(Path("run"))

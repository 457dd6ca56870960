"""Kills commands with SIGKILL, at random moments and in the middle of writing, and gives the same command again.

    PYTHONPATH=.:tests python -m tests.faults.kill --kills 200

In the end nothing may differ from a command that nobody disturbed: weights bit for bit on one CPU thread, lines,
tables. No checkpoint may be unreadable after a kill, and no half file may be left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_formats import write_mnist
from digits_trainer import quick
from picture_folders import write_split
from run_files import metrics, weights, without_clocks

from vmcr2.data import Split, open_data
from vmcr2.runs import RunFolder, fit, read_record, read_tensors

ROOT = Path(__file__).parent.parent.parent
HOOK = Path(__file__).parent / "hook"
SMALL = ["--set", "hidden=32", "--set", "dim=32", "--set", "checkpoint_seconds=0", "--device", "cpu"]
ATOMS = ["--set", "atoms_per_class=3"]
_IN_A_ROW = 4
"""Kills before a command may end."""


class Zygote:
    """A process that has everything imported, and forks for every command."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
        environment |= {"CUDA_VISIBLE_DEVICES": ""}
        line = [sys.executable, "-m", "tests.faults.zygote"]
        self.process = subprocess.Popen(
            line, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def start(self, argv: list[str], place: Path, environment: dict[str, str], output: str = "log") -> int:
        """The pid of the command's process; :meth:`end` waits for it."""
        asked = {"argv": argv, "env": environment, "cwd": str(place), "output": output}
        asked["log"] = str(place.with_suffix(".log"))
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self) -> int:
        return self._answer()

    def _answer(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@dataclass(frozen=True)
class Command:
    """What is killed. The same command again must go on, or start again."""

    name: str
    argv: Callable[[Path], list[str]]
    outcome: Callable[[Path], Any]
    ranks: int = 1
    share: int = 2
    """Of twenty kills."""
    ended: Callable[[Path], bool] = lambda place: False
    """Whether the same command would be refused, because all is done."""
    prepare: Callable[[Path], None] = lambda place: None


@dataclass
class Found:
    """What became of a command."""

    kills: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)


def run_outcome(folder: Path) -> Any:
    """Of a finished run: weights, lines and figures, and that there is a page."""
    summary = {name: value for name, value in read_record(folder / "summary.json").items() if name != "seconds"}
    own = {name: tensor.numpy().tobytes() for name, tensor in weights(folder).items()}
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return own, without_clocks(folder), summary, files


def sweep_outcome(place: Path) -> Any:
    """Of a sweep: its lines, and which files there are."""
    out = place / "out"
    clocks = {"seconds", "wall_seconds", "date", "git_commit"}
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    kept = sorted(({k: v for k, v in line.items() if k not in clocks} for line in lines), key=lambda line: line["id"])
    return kept, sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


def _digits(folder: Path) -> None:
    train = open_data("digits").train()
    few = Split(train.images[:200], train.labels[:200])
    write_split(folder, few, tuple(map(str, range(10))))


def _standard_files(place: Path) -> None:
    write_mnist(place / "raw", 600, 100)


def _is_packed(place: Path) -> bool:
    return (place / "m.safetensors").exists()


def _packed(place: Path) -> bytes:
    return (place / "m.safetensors").read_bytes()


def _answers(place: Path) -> str:
    return (place / "out.csv").read_text().replace(str(place), "")


def _trained(place: Path) -> None:
    _digits(place / "new")
    trained = place.parent / "trained"
    if not trained.exists():
        fit(quick(epochs=2), out=trained)
    shutil.copytree(trained, place / "run")


def commands() -> dict[str, Command]:
    """Those that are killed, by name. Each is given again as it is."""
    digits = ["train", "digits", "--resume", "--out"]
    best = ["--holdout", "200", "--patience", "50", "--set", "epochs=6", *SMALL, *ATOMS]
    grid = ["--grid", "lr=0.05,0.1", "--epochs", "3", *SMALL, *ATOMS]
    photos = ["--set", "epochs=2", "--model", "mlp", *SMALL]
    four = ["--set", "epochs=4", *SMALL, *ATOMS]

    def of_run(place: Path) -> Any:
        return run_outcome(place / "run")

    def argv_of_predict(place: Path) -> list[str]:
        return ["predict", str(place / "run"), str(place / "new"), "-o", str(place / "out.csv"), "--force"]

    def argv_of_pack(place: Path) -> list[str]:
        return ["data", "pack", "mnist", "--from", str(place / "raw"), "--to", str(place / "m.safetensors")]

    def photos_argv(place: Path) -> list[str]:
        return ["train", str(place / "photos"), "--resume", "--out", str(place / "run"), *photos]

    made = [
        Command("train", lambda place: [*digits, str(place / "run"), *best], of_run, share=6),
        Command("train on pictures", photos_argv, of_run, share=4, prepare=lambda place: _digits(place / "photos")),
        Command("sweep", lambda at: ["sweep", "digits", "--out", str(at / "out"), *grid], sweep_outcome, share=4),
        Command("data pack", argv_of_pack, _packed, ended=_is_packed, prepare=_standard_files),
        Command("predict", argv_of_predict, _answers, prepare=_trained),
        Command("train with 2 ranks", lambda place: [*digits, str(place / "run"), *four], of_run, ranks=2),
    ]
    return {command.name: command for command in made}


class Harness:
    """Kills one command, again and again."""

    def __init__(self, command: Command, base: Path, zygote: Zygote, seed: int) -> None:
        self.command, self.base, self.zygote = command, base, zygote
        self.rng = random.Random(f"{seed} {command.name}")
        self.found = Found()
        place = self._place("whole")
        log = base / "moments.log"
        start = time.monotonic()
        code = self._attempt(place, {"VMCR2_KILL_LOG": str(log)}, None)
        self.seconds = time.monotonic() - start
        assert code == 0, place.with_suffix(".log").read_text()
        self.moments = log.read_text().splitlines()
        self.expected = command.outcome(place)

    def disturb(self, kills: int) -> Found:
        """So many kills, over as many runs of the command as that takes."""
        number = 0
        while self.found.kills < kills:
            number += 1
            place = self._place(f"killed-{number}")
            for _ in range(self.rng.randrange(1, _IN_A_ROW + 1)):
                if self.found.kills >= kills or self.command.ended(place) or not self._kill(place):
                    break  # it was quicker than the kill, and has ended
            code = 0 if self.command.ended(place) else self._attempt(place, {}, None)
            if code != 0:
                self._defect(place, f"the last command ended with {code}")
                continue
            if (got := self.command.outcome(place)) != self.expected:
                self._defect(place, f"another result: {_difference(got, self.expected)}")
            if left := [path for path in place.rglob(".*") if path.is_file() and path.name != ".lock"]:
                self._defect(place, f"left behind: {[path.name for path in left]}")
        return self.found

    def _kill(self, place: Path) -> bool:
        """One kill, at a moment of writing or at any time. Returns whether it came before the end."""
        if self.rng.random() < 0.6:
            at = self.rng.randrange(1, len(self.moments) + 1)
            environment, after = {"VMCR2_KILL_AT": str(at)}, None
            what = self.moments[at - 1]
        else:
            environment, after, what = {}, self.rng.uniform(0, self.seconds), "any time"
        code = self._attempt(place, environment, after)
        if code == 0:
            return False
        if code != -signal.SIGKILL and not (self.command.ranks > 1 and code != 0):
            self._defect(place, f"ended with {code}, which is no kill")
        self.found.kills += 1
        self.found.moments[what] += 1
        self._look(place)
        return True

    def _look(self, place: Path) -> None:
        """After a kill every file that is there is whole."""
        for path in place.rglob("[!.]*.safetensors"):
            try:
                read_tensors(path)
            except ValueError as error:
                self._defect(place, f"unreadable after a kill: {error}")
        for config in place.rglob("config.json"):
            RunFolder(config.parent).read_config()
            metrics(config.parent)

    def _attempt(self, place: Path, environment: dict[str, str], after: float | None) -> int:
        """The exit code of the command; it is killed ``after`` so many seconds."""
        environment = {"VMCR2_KILL_UNDER": str(place), "VMCR2_CACHE": str(place / "cache")} | environment
        if self.command.ranks > 1:
            return self._under_torchrun(place, environment, after)
        pid = self.zygote.start(self.command.argv(place), place, environment)
        killer = threading.Timer(after or 0.0, _kill_now, [pid])
        if after is not None:
            killer.start()
        code = self.zygote.end()
        killer.cancel()
        return code

    def _under_torchrun(self, place: Path, environment: dict[str, str], after: float | None) -> int:
        paths = os.pathsep.join(map(str, (HOOK, ROOT)))
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | environment
        ranks = ["--standalone", "--nproc-per-node", str(self.command.ranks)]
        line = [sys.executable, "-m", "torch.distributed.run", *ranks, "-m", "vmcr2", *self.command.argv(place)]
        with place.with_suffix(".log").open("a") as log:
            process = subprocess.Popen(line, cwd=place, env=environment, stdout=log, stderr=log)
        try:
            return process.wait(after)
        except subprocess.TimeoutExpired:
            for pid in (*_children(process.pid), process.pid):
                _kill_now(pid)
            return process.wait()

    def _place(self, name: str) -> Path:
        place = self.base / name
        place.mkdir(parents=True)
        self.command.prepare(place)
        return place

    def _defect(self, place: Path, what: str) -> None:
        self.found.defects.append(f"{self.command.name}, {place.name}: {what}")


def _kill_now(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    """The processes below a process, by Linux's /proc."""
    found = []
    for task in Path("/proc").glob(f"{pid}/task/*/children"):
        for child in task.read_text().split():
            found += [*_children(int(child)), int(child)]
    return found


def _difference(got: Any, expected: Any) -> str:
    if isinstance(got, tuple) and isinstance(expected, tuple):
        return "; ".join(_difference(a, b) for a, b in zip(got, expected, strict=True) if a != b)
    if isinstance(got, dict) and isinstance(expected, dict):
        return str(sorted(k for k in got.keys() | expected.keys() if got.get(k) != expected.get(k)))[:300]
    return f"{str(got)[:200]} instead of {str(expected)[:200]}"


def disturbed(names: list[str], kills: int, seed: int = 0) -> dict[str, Found]:
    """Kill each of these commands so often."""
    found = {}
    with tempfile.TemporaryDirectory() as base, Zygote() as zygote:
        for name in names:
            harness = Harness(commands()[name], Path(base).resolve() / name.replace(" ", "-"), zygote, seed)
            found[name] = harness.disturb(kills)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=list(commands()))
    asked = parser.parse_args()
    names = asked.only or list(commands())
    start = time.monotonic()
    whole = sum(commands()[name].share for name in names)
    for name in names:
        found = disturbed([name], round(asked.kills * commands()[name].share / whole), asked.seed)[name]
        moments = dict(found.moments.most_common())
        print(
            json.dumps({"command": name, "kills": found.kills, "moments": moments, "defects": found.defects}),
            flush=True,
        )
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()

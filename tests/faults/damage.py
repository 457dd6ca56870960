"""Damage to a run folder: flipped bits, and values that no run has. What is harmless, what is noticed, what is not?

    PYTHONPATH=.:tests python -m tests.faults.damage --flips 1000 --values 2000

Every flip and every value is tried on a copy of a folder: loading and predicting, going on from the checkpoint, the
report. Harmless: the result is the same, bit for bit. Noticed: one sentence (a UserError). A value without a checksum
may also be taken as it is: then the run has other settings. Anything else is a defect, and printed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from digits_trainer import quick
from run_files import same, weights

from vmcr2.data import open_data
from vmcr2.report import page, read_run
from vmcr2.runs import Config, UserError, fit, load_run

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**9, 10**18, 10**400, 1e300, -1e300, float("nan"), float("inf"), 0.5),
    *("", "x" * 300, "../../evil", "<script>alert(1)</script>", "\ud800", "a\nb", "\x00"),
    *([], {}, [[[]]], [0], [10**9], {"a": {"b": 1}}, [None], ["x"]),
)
"""In the place of any value."""


_FINE = ("harmless", "noticed", "taken as it is")


class StoppedError(Exception):
    """Ends a run where a kill could."""


class StopAfter:
    """Ends a run after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.last = epoch

    def epoch(self, record: dict[str, Any]) -> None:
        if record["epoch"] == self.last:
            raise StoppedError


class Damage(NamedTuple):
    """What was done to which file."""

    file: str
    what: str


class Subject:
    """A finished run and a stopped one, and what they give when nothing is wrong."""

    def __init__(self, place: Path, objective: str = "vmcr2") -> None:
        self.config: Config = quick(objective, epochs=4, eval_every=0, kept_samples=20)
        self.finished, self.stopped = place / "finished", place / "stopped"
        fit(self.config, out=self.finished)
        with suppress(StoppedError):
            fit(self.config, out=self.stopped, callbacks=[StopAfter(3)])
        self.images = open_data("digits").test().images[:50]
        self.source = open_data("digits")
        self.answers = self._answers(self.finished)
        self.weights = weights(self.finished)

    def _answers(self, folder: Path) -> list[Any]:
        run = load_run(folder, device="cpu")
        found = run.answers(self.images)
        near = run.neighbors(self.images, 3)
        summary = [run.summary.get(name) for name in ("test_accuracy", "train_delta_r", "epochs")]
        return [*found, near.cosines, near.labels, near.names, run.class_names, summary, run.config.acting()]

    def loads(self, folder: Path) -> bool:
        """Whether the finished run in a damaged folder predicts as the whole one does."""
        return all(map(_equal, self._answers(folder), self.answers))

    def goes_on(self, folder: Path) -> bool:
        """Whether the stopped run in a damaged folder ends as the whole one did."""
        fit(self.config, out=folder, resume=True, source=self.source)
        return same(weights(folder), self.weights)

    def reports(self, folder: Path) -> bool:
        """The page is made; what is left out is said on it. Whether it lies is :meth:`loads`' question."""
        record = read_run(folder)
        return "</html>" in page([record])

    def checks(self) -> Iterator[tuple[str, Path, Callable[[Path], bool]]]:
        yield "load and predict", self.finished, self.loads
        yield "resume", self.stopped, self.goes_on
        yield "report", self.finished, self.reports


def _equal(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)


def flip(folder: Path, rng: random.Random) -> Damage:
    """One bit of one file; files are chosen by turns of luck, not by size: small ones matter too."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path = rng.choice(files)
    content = bytearray(path.read_bytes())
    # the first 2,000 bytes have the header, where most can go wrong
    place = rng.randrange(min(len(content), 2000)) if rng.random() < 0.5 else rng.randrange(len(content))
    content[place] ^= 1 << rng.randrange(8)
    _replace(path, bytes(content))
    return Damage(path.name, f"bit of byte {place}")


def put(folder: Path, rng: random.Random) -> Damage:
    """A value that no run has, in a JSON file or a line of metrics, without a checksum: as a stranger would."""
    path = rng.choice(sorted(path for path in folder.iterdir() if path.suffix in (".json", ".jsonl")))
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    at = rng.randrange(len(lines)) if lines else 0
    record = json.loads(lines[at])
    record.pop("checksum", None)
    inner, keys = record, []
    while isinstance(inner, dict) and inner:
        keys.append(key := rng.choice(sorted(inner)))
        if not isinstance(inner[key], dict) or rng.random() < 0.3:
            break
        inner = inner[key]
    value = rng.choice(HOSTILE)
    if rng.random() < 0.1:
        del inner[keys[-1]]
        value = "missing"
    else:
        inner[keys[-1]] = value
    lines[at] = json.dumps(record)
    _replace(path, "\n".join(lines).encode() + b"\n")
    return Damage(path.name, f"{'.'.join(keys)} = {str(value)[:40]!r}")


def _replace(path: Path, content: bytes) -> None:
    path.unlink()  # a copy of a checkpoint may be a second name of the same file
    path.write_bytes(content)


def tried(subject: Subject, damage: Callable[[Path, random.Random], Damage], count: int, seed: int) -> dict[str, Any]:
    """Damage so many copies; by check, how often it was harmless or noticed, and the defects."""
    rng = random.Random(seed)
    counts: dict[str, Counter[str]] = {}
    defects: list[str] = []
    checks = list(subject.checks())
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(count):
            name, folder, check = checks[number % len(checks)]
            copy = Path(shutil.copytree(folder, Path(place) / "run", dirs_exist_ok=False))
            done = damage(copy, rng)
            try:
                outcome = "harmless" if check(copy) else "OTHER RESULT" if damage is flip else "taken as it is"
            except UserError as error:
                outcome = "noticed" if "\n" not in str(error) else "MANY LINES"
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            counts.setdefault(name, Counter())[outcome if outcome in _FINE else "DEFECT"] += 1
            if outcome not in _FINE:
                defects.append(f"{name}: {done.file}, {done.what}: {outcome[:200]}")
            shutil.rmtree(copy)
    return {"counts": {name: dict(found) for name, found in counts.items()}, "defects": defects}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--values", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        subject = Subject(Path(place))
        for kind, count in ((flip, asked.flips), (put, asked.values)):
            found = tried(subject, kind, count, asked.seed)
            print(json.dumps({"damage": kind.__name__, "tried": count, **found}, indent=1))


if __name__ == "__main__":
    main()

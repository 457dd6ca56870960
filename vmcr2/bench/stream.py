"""`vmcr2 bench stream`: epochs over pictures that are on the device, and over pictures that stream to it."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ..data import Part, Reader, Source, Split
from ..runs import Trainer, recipe
from ..training import Loop
from ._measure import Say, caption, environment, silent

CLASSES = 100
HELD, STREAMED = "on the device", "streamed from a file"


class Case(NamedTuple):
    """Pictures of one size, and the size that the network sees."""

    images: int
    stored: int
    seen: int
    batch: int


CASES = {
    "cuda": (Case(50_000, 32, 32, 2000), Case(20_000, 128, 64, 1000)),
    "cpu": (Case(120, 32, 32, 60), Case(120, 64, 32, 60)),
}


class _Mapped(Reader):
    """Random pictures in a file that is mapped into memory, as a packed folder that is too large to be read."""

    def __init__(self, case: Case, file: Path) -> None:
        super().__init__(file, tuple(f"class {j}" for j in range(CLASSES)), (3, case.stored, case.stored))
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, (case.images, *self.shape), dtype=torch.uint8, generator=generator)
        save_file({"images": pixels}, file)
        self._handle = safe_open(file, framework="pt")
        mapped: torch.Tensor = self._handle.get_tensor("images")  # type: ignore[no-untyped-call]
        self._split = Split(mapped, torch.arange(case.images) % CLASSES)

    def load(self, part: Part) -> Split:
        return self._split

    def read(self, part: Part) -> Split:
        return self._split  # without a checksum: nobody asks for it


@contextmanager
def _loops(case: Case, device: torch.device) -> Iterator[dict[str, Loop]]:
    """Loops over the same pictures: held on the device, and streamed."""
    with tempfile.TemporaryDirectory() as folder:
        reader = _Mapped(case, Path(folder) / "pictures.safetensors")
        source = Source("given-pictures", reader.path, reader.class_names, reader, title="random pictures")
        loops = {}
        for title, stream in ((HELD, "no"), (STREAMED, "yes")):
            given = {"image_size": case.seen, "batch_size": case.batch, "device": device.type, "model": "resnet18"}
            config = recipe("auto", data=source, objective="ce", **given, epochs=10**6, average=0.0, stream=stream)
            trainer = Trainer(config, source, device)
            loops[title] = trainer.loop(images=10**9, say=lambda text: None)
        yield loops


def measure(case: Case, device: torch.device, rounds: int) -> dict[str, Any]:
    """Seconds per epoch of both, in turn, after one epoch each in which kernels are chosen and captured."""
    seconds: dict[str, list[float]] = {HELD: [], STREAMED: []}
    with _loops(case, device) as loops:
        for number in range(1 + rounds):
            for title, loop in loops.items():
                start = time.perf_counter()
                loop.train_epoch(number)  # ends with a synchronisation
                if number:
                    seconds[title].append(time.perf_counter() - start)
        seen = {title: loop.steps_per_epoch * loop.batch_size for title, loop in loops.items()}
        captured = {title: loop.engine.captured for title, loop in loops.items()}
    return {
        "case": case._asdict(),
        "rows": {
            title: {
                "seconds_per_epoch": statistics.median(times),
                "fastest": min(times),
                "slowest": max(times),
                "images_per_second": seen[title] / statistics.median(times),
                "captured": captured[title],
            }
            for title, times in seconds.items()
        },
    }


def run(
    device: torch.device, *, rounds: int = 5, cases: tuple[Case, ...] | None = None, say: Say = silent
) -> dict[str, Any]:
    """Everything that `vmcr2 bench stream` measures."""
    results = []
    for case in cases or CASES[device.type]:
        say(f"{case.images} pictures of {case.stored}×{case.stored}, seen at {case.seen}×{case.seen}")
        results.append(measure(case, device, rounds))
    return {"benchmark": "stream", "environment": environment(device), "results": results}


def table(record: dict[str, Any]) -> str:
    """The figures as Markdown, with the speed of streaming as a part of the other."""
    headings = ["pictures", "seen at", "where", "s per epoch (min–max)", "images/s", "speed / on the device"]
    lines = [caption(record["environment"]) + ".", "", "| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for result in record["results"]:
        case = Case(**result["case"])
        base = result["rows"][HELD]["seconds_per_epoch"]
        for title, row in result["rows"].items():
            cells = [
                f"{case.images:,} of {case.stored}×{case.stored}",
                f"{case.seen}×{case.seen}",
                title,
                f"{row['seconds_per_epoch']:.3f} ({row['fastest']:.3f}–{row['slowest']:.3f})",
                f"{row['images_per_second']:,.0f}",
                f"{base / row['seconds_per_epoch']:.2f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)

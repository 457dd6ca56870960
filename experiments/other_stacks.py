"""What the examples of docs/other-stacks.md print, over seeds; and V-MCR² with larger batches in parts.

python -m experiments.other_stacks            # some minutes on one core; writes results/other-stacks.json
python -m experiments.other_stacks --lines    # the lines of the documents, from the saved result
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ._study import RESULTS, run_all, save

FILE = "other-stacks.json"
SEEDS = {"own_loop": 5, "lightning_module": 5, "with_accelerate": 5, "frozen_backbone": 8, "self_supervised": 6}


class Large(NamedTuple):
    """A batch of 512 in parts, V-MCR²."""

    parts: int
    steps: int
    rate: float


LARGE = (Large(8, 60, 2e-3), Large(16, 60, 2e-3), Large(32, 150, 1e-3))
LARGE_SEEDS = 5


def example(name: str) -> ModuleType:
    """A script of the folder examples, imported but not run."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "examples" / f"{name}.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"there is no example {name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one(job: tuple[str, int]) -> Any:
    """What an example finds with a seed."""
    import torch

    torch.set_num_threads(1)
    name, seed = job
    with contextlib.redirect_stdout(io.StringIO()):
        return example(name).main(seed)


def large(job: tuple[Large, bool, int]) -> float:
    """ΔR of the training digits after the steps, in parts with one loss or by the usual accumulation."""
    import torch
    from sklearn.datasets import load_digits

    import vmcr2

    torch.set_num_threads(1)
    (parts, steps, rate), usual, seed = job
    module = example("own_loop")
    images, labels = (torch.tensor(array)[: module.TRAIN] for array in load_digits(return_X_y=True))
    images = images.float() / 16
    loop = module.Loop(vmcr2.VMCR2Loss(10, 64, atoms_per_class=6), seed)
    loop.optimiser.param_groups[0]["lr"] = rate
    for _ in range(steps):
        rows = torch.randperm(module.TRAIN)[:512]
        loop.step(images[rows], labels[rows], parts, usual)
    z = torch.nn.functional.normalize(loop.network(images), dim=1).detach()
    return float(vmcr2.rate_reduction(z, labels).delta)


def lines(found: dict[str, Any]) -> list[str]:
    """Of the documents: rows of tables, and parts of sentences."""
    return [*_own_loop(found["own_loop"]), *_accuracies(found), *_features(found), *_large(found["large"])]


def _own_loop(runs: list[dict[str, Any]]) -> list[str]:
    def row(title: str, way: str) -> str:
        cells = []
        for loss in ("MCR2Loss", "VMCR2Loss"):
            own = [run[f"{loss}, {way}"] for run in runs]
            cells += [f"{_mean(own, 0):.2f}", f"{_mean(own, 1):.3f}"]
        return f"| {title} | {' | '.join(cells)} |"

    return [
        row("in parts, one loss", "micro-batches"),
        row("float16 with a scaler, 7 or 8 steps skipped", "float16"),
        row("the usual accumulation", "usual accumulation"),
    ]


def _accuracies(found: dict[str, Any]) -> list[str]:
    said = []
    for name, how in (("lightning_module", ""), ("with_accelerate", " in bfloat16")):
        seen = [accuracy for accuracy, _ in found[name]]
        said.append(f"Test accuracy after 12 epochs{how}, seeds 0 to 4: {min(seen):.3f} to {max(seen):.3f}.")
    return said


def _features(found: dict[str, Any]) -> list[str]:
    said = []
    titles = {"raw embeddings": "raw embeddings", "head's features": "a head trained with `MCR2Loss`"}
    for key, title in titles.items():
        own = [run[key] for run in found["frozen_backbone"]]
        cells = [f"{_mean(own, at):.2f}" for at in (1, 2, 3)]
        said.append(f"| {title} | {_range(own)} | {' | '.join(cells)} |")
    titles = {"untrained": "the untrained network", "without the rate": "trained without the coding rate"}
    for key, title in (titles | {"with the rate": "trained with it"}).items():
        own = [run[key] for run in found["self_supervised"]]
        digits = 2 if key == "without the rate" else 1
        said.append(f"| {title} | {_range(own)} | {_mean(own, 1):.{digits}f}")
    pixels = found["self_supervised"][0]["pixels"]
    return [*said, f"| pixels | {pixels[0]:.3f} | {pixels[1]:.1f} "]


def _large(runs: list[dict[str, Any]]) -> list[str]:
    """(usual against one loss), in the order of ``LARGE``."""
    means = [[sum(run[way]) / len(run[way]) for way in ("usual", "one loss")] for run in runs]
    return [f"({usual:.1f} against {whole:.1f}" for usual, whole in means]


def _mean(rows: list[Any], at: int) -> float:
    return float(sum(row[at] for row in rows) / len(rows))


def _range(rows: list[Any]) -> str:
    seen = [row[0] for row in rows]
    return f"{_mean(rows, 0):.3f} ({min(seen):.3f}, {max(seen):.3f})"


def main() -> None:
    """Run, save, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lines", action="store_true")
    options = parser.parse_args()
    if not options.lines:
        found: dict[str, Any] = {}
        for name, seeds in SEEDS.items():
            found[name] = run_all(one, [(name, seed) for seed in range(seeds)], options.workers)
        found["large"] = []
        for case in LARGE:
            jobs = [(case, usual, seed) for usual in (True, False) for seed in range(LARGE_SEEDS)]
            deltas = run_all(large, jobs, options.workers)
            ways = {"usual": deltas[:LARGE_SEEDS], "one loss": deltas[LARGE_SEEDS:]}
            found["large"].append(case._asdict() | ways)
        save(FILE, found)
    print("\n".join(lines(json.loads((RESULTS / FILE).read_text()))))


if __name__ == "__main__":
    main()

"""The speed tables, from benchmarks/results/*.json: in benchmarks/README.md, docs/results.md and docs/scaling.md.

    python -m experiments.speed

They are written between marks; the rest of the pages is not touched. What was not measured says so. What older records
do not have at all, PreAct ResNet-18 and what stands below the table, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmcr2.bench import epoch, latch, objectives, scale
from vmcr2.bench._scale_contenders import CONTENDERS

from ._study import between_marks, table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
Record = dict[str, Any]

# data: its name, and Table 1 of the paper (MCR², V-MCR²; seconds per epoch, A100)
TABLE_1: dict[str, tuple[str, tuple[float, ...]]] = {
    "mnist": ("MNIST, batch 1000, d 128", (11.56, 6.29)),
    "cifar10": ("CIFAR-10, batch 1000, d 128", (33.06, 20.71)),
    "cifar100": ("CIFAR-100, batch 2000, d 500", (157.45, 31.14)),
    "tiny-imagenet": ("Tiny ImageNet at 32×32, batch 2000, d 500", (527.85, 44.23)),
    "cifar100-preact": ("CIFAR-100 with PreAct ResNet-18, batch 2000, d 500", ()),
}
CLAIMS = {
    "exact ΔR, against a class loop of `torch.logdet`": "exact: class loop / as shipped",
    "V-MCR² step (Algorithm 1), against d×d matrices per class": "V-MCR²: d×d / as shipped",
    "V-MCR² step, against exact ΔR as shipped": "V-MCR² / exact, as shipped",
    "soft exact ΔR, against batched d×d Cholesky with autograd": "soft exact: as shipped / batched d×d",
    "the same with a gradient in Π": "soft exact, gradient in Π too: as shipped / batched d×d",
}
NOT_MEASURED = "not measured"


def record_of(name: str) -> Record:
    """A committed record."""
    record: Record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return record


def epochs(record: Record | None = None) -> str:
    """The seconds per epoch, plain and carried exact MCR² apart; below, the first step and a real run."""
    record = record or record_of("epoch-h200")
    titles = [contender.title for contender in epoch.CONTENDERS]
    rows = []
    for data, (name, paper) in TABLE_1.items():
        seconds = {
            row["contender"]: f"{row['seconds_per_epoch']:.3f}"
            for row in record["results"]
            if row["data"] == data and not row["compiled"] and "failed" not in row
        }
        if not seconds and not paper:
            continue
        wanted = {contender.title for contender in epoch.ROWS[data]}
        cells = [seconds.get(title, NOT_MEASURED if title in wanted else "–") for title in titles]
        rows.append([name, *cells, *([f"{value:.2f}" for value in paper] or ["–", "–"])])
    gpu = record["environment"]["gpu"].removeprefix("NVIDIA ")
    header = [f"one {gpu}, seconds per epoch (the paper's Table 1)", *titles, "the paper, A100: MCR²", "V-MCR²"]
    return "\n\n".join([table(header, rows), *_beside_epochs(record), _measured_on(record)])


def _beside_epochs(record: Record) -> list[str]:
    """What was measured beside the epochs, a sentence each; nothing of older records."""
    found = []
    seconds = [f"{row['seconds']:.1f} s ({row['contender']})" for row in _whole(record, "first_step", "seconds")]
    if seconds:
        found.append(
            f"The first replayed step of a new process on CIFAR-100 ends {' and '.join(seconds)} after `import torch`, "
            "with the images in memory and the kernels compiled before."
        )
    ratios = [f"{row['ratio']:.2f} ({row['contender']})" for row in _whole(record, "real_run", "ratio")]
    if ratios:
        found.append(
            "A real run on as many pictures as Tiny ImageNet has, of 64×64, trains at "
            f"{' and '.join(ratios)} of the speed in this table."
        )
    return found


def _whole(record: Record, section: str, figure: str) -> list[Record]:
    return [row for row in record.get(section, []) if figure in row]


def cpu(record: Record | None = None) -> str:
    """The ratios on one CPU thread."""
    record = record or record_of("objectives-cpu")
    sizes = [result["size"] for result in record["results"]]
    header = [f"{size['data']} ({size['m']}, {size['d']}, {size['k']})" for size in sizes]
    rows = []
    for title, ratio in CLAIMS.items():
        values = [result["ratios"]["eager"].get(ratio) for result in record["results"]]
        rows.append([title, *(in_words(value, ratio in objectives.OURS_IS_DIVIDED_BY) for value in values)])
    threads = record["environment"]["threads"]
    first = f"forward + backward, {'one CPU thread' if threads == 1 else f'{threads} CPU threads'}, float32; (m, d, k)"
    return f"{table([first, *header], rows)}\n\n{_measured_on(record)}"


SCALE = ("scale-h200", "scale-cpu")
SCALED_TO = (100, 1_000, 10_000, 100_000)


def scale_record() -> Record:
    """The record of `vmcr2 bench scale` that pages show: of a GPU, if there is one."""
    return record_of(next(name for name in SCALE if (RESULTS / f"{name}.json").exists()))


def scale_table(name: str) -> str:
    """benchmarks/README.md's table of `vmcr2 bench scale`, or how to make it."""
    if not (RESULTS / f"{name}.json").exists():
        return f"Not measured yet: `vmcr2 bench scale --json benchmarks/results/{name}.json` measures it."
    return scale.table(record_of(name))


def many_classes(record: Record | None = None) -> str:
    """docs/scaling.md's milliseconds of a step, by objective and k."""
    record = record or scale_record()
    shape = record["shape"]
    rows = {result["k"]: result["contenders"] for result in record["results"]}
    first = f"milliseconds of a step; m {shape['m']}, d {shape['d']}, s {shape['atoms']}"
    header = [first, *(f"k = {k:,}" for k in SCALED_TO)]
    lines = [[name, *(_milliseconds(rows[k][name]) for k in SCALED_TO)] for name in CONTENDERS]
    return f"{table(header, lines)}\n\n{_measured_on(record)}"


def _milliseconds(row: Record) -> str:
    if "step" not in row:
        return "–"
    found = row["step"]["median_ms"]
    return f"{found:,.0f}" if found >= 100 else f"{found:.3g}"


def in_words(ratio: float | None, larger_is_better: bool) -> str:
    """«15.3× faster»."""
    if ratio is None:
        return "–"
    gain = ratio if larger_is_better else 1 / ratio
    return f"{gain:.1f}× faster" if gain >= 1 else f"{1 / gain:.1f}× slower"


def _measured_on(record: Record) -> str:
    machine = record["environment"]
    hardware = machine["gpu"] if machine["device"] == "cuda" else machine["cpu"]
    return f"{hardware}, torch {machine['torch']}, {machine['date']}."


Content = Callable[[], str]
PAGES: dict[Path, dict[str, Content]] = {
    ROOT / "docs" / "results.md": {"epochs": epochs, "speed on a CPU": cpu},
    ROOT / "benchmarks" / "README.md": {
        "objectives-h200": lambda: objectives.table(record_of("objectives-h200")),
        "objectives-cpu": lambda: objectives.table(record_of("objectives-cpu")),
        "epoch-h200": lambda: epoch.table(record_of("epoch-h200")),
        "latch-h200": lambda: latch.table(record_of("latch-h200")),
        "latch-cpu": lambda: latch.table(record_of("latch-cpu")),
        "scale-h200": lambda: scale_table("scale-h200"),
        "scale-cpu": lambda: scale_table("scale-cpu"),
    },
    ROOT / "docs" / "scaling.md": {"many classes": many_classes},
}


def written(page: str, contents: dict[str, Content]) -> str:
    """The page with its tables as the records have them."""
    for name, content in contents.items():
        begin, end = f"<!-- {name}: written by experiments/speed.py -->", f"<!-- end of {name} -->"
        page = between_marks(page, begin, end, content())
    return page


def main() -> None:
    """As the first lines of this file say."""
    for path, contents in PAGES.items():
        path.write_text(written(path.read_text(), contents))
        print(path)


if __name__ == "__main__":
    main()

"""What calibration costs and gives: digits, a tenth of the training samples set aside or none; seeds 0 to 4.

    python -m experiments.calibration [--workers 2]

Writes experiments/results/calibration.json and the table of docs/using.md. The test images are read once for each run,
at its end, and choose nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from experiments._study import RESULTS, between_marks, run_all, save, spread, table

PAGE = Path(__file__).parents[1] / "docs" / "using.md"
MARKS = "<!-- calibration: written by experiments/calibration.py -->", "<!-- end of calibration -->"
OBJECTIVES = ("vmcr2", "mcr2", "ce", "ce+mcr2")
SHARES = (0.0, 0.1)
RATE = 0.05
SPLITS = 20


class Job(NamedTuple):
    """One run."""

    objective: str
    share: float
    seed: int


def measure(job: Job) -> dict[str, Any]:
    """Train, and look at the test images."""
    import torch

    import vmcr2
    from vmcr2.data import open_data
    from vmcr2.inference import calibration_error

    torch.set_num_threads(1)
    # three batches an epoch with all training samples, too
    size = {} if job.share else {"batch_size": 479}
    if "+" in job.objective:
        size = {}
        config = vmcr2.recipe("auto", data="digits", objective=job.objective, calibration_share=job.share)
    else:
        config = vmcr2.recipe("digits", objective=job.objective, calibration_share=job.share)
    config = config.replace(seed=job.seed, device="cpu", **size)
    with tempfile.TemporaryDirectory() as folder:
        run = vmcr2.fit(config, out=f"{folder}/run")
    test = open_data("digits").test()
    found: dict[str, Any] = {
        **job._asdict(),
        "accuracy": run.summary["readout_accuracy"],
        "train_delta_r": run.summary["train_delta_r"],
        "train_images": run.summary["train_images"],
        "calibration_samples": run.summary["calibration_samples"],
    }
    if run.confidence is None:
        return found
    answers = run.answers(test.images)
    scores = run.readout_by(run.readout)
    features = run.features(test.images)
    with torch.no_grad():
        plain = torch.softmax(scores.scores(features, answers.residuals), dim=1)
    found["error"] = calibration_error(answers.probabilities, test.labels)
    found["error_at_1"] = calibration_error(plain, test.labels)
    found["refused"] = sum(name is None for name in run.predict(test.images, refuse=RATE)) / len(test.labels)
    return found


def refused_share(seed: int) -> float:
    """Of known digits at the rate 0.05, with another division into training and test samples for every seed."""
    import numpy as np
    import torch
    from sklearn.datasets import load_digits

    import vmcr2
    from vmcr2.data import from_arrays

    torch.set_num_threads(1)
    pixels, labels = load_digits(return_X_y=True)
    source = from_arrays(np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8), labels, split_seed=seed)
    config = vmcr2.recipe("auto", data=source, objective="mcr2", epochs=30, seed=seed, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        run = vmcr2.fit(config, source=source, out=f"{folder}/run", for_report=False)
    return sum(name is None for name in run.predict(source.test().images, refuse=RATE)) / len(source.test().labels)


def rows(runs: list[dict[str, Any]]) -> list[list[str]]:
    """One for each objective."""
    lines = []
    for objective in OBJECTIVES:
        own = {
            share: [run for run in runs if (run["objective"], run["share"]) == (objective, share)] for share in SHARES
        }

        def of(share: float, name: str, own: dict[float, list[dict[str, Any]]] = own) -> str:
            return spread([run[name] for run in own[share]])

        lines.append(
            [
                objective,
                *(of(share, "accuracy") for share in SHARES),
                *(of(share, "train_delta_r") for share in SHARES),
                *(of(0.1, name) for name in ("error_at_1", "error", "refused")),
            ]
        )
    return lines


def page(runs: list[dict[str, Any]]) -> str:
    """docs/using.md with the table of these runs."""
    header = [
        "digits, mean ± standard deviation over seeds 0–4",
        *("test accuracy, nothing set aside", "143 set aside"),
        *("full-train ΔR, nothing set aside", "143 set aside"),
        *("calibration error at T = 1", "calibrated", "known digits refused at 0.05"),
    ]
    return between_marks(PAGE.read_text(), *MARKS, table(header, rows(runs)))


def main() -> None:
    """Run all, write the result and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="write the table from the result that is there")
    arguments = parser.parse_args()
    if not arguments.table:
        jobs = [Job(o, share, seed) for o in OBJECTIVES for share in SHARES for seed in range(5)]
        runs = run_all(measure, jobs, arguments.workers)
        splits = run_all(refused_share, list(range(SPLITS)), arguments.workers)
        save("calibration.json", {"runs": runs, "refused_over_splits": splits})
    PAGE.write_text(page(json.loads((RESULTS / "calibration.json").read_text())["runs"]))


if __name__ == "__main__":
    main()

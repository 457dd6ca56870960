"""Classes that a network has not seen: ``run.add_class`` with a few pictures of each, and no training.

Networks are trained without some classes. Then these classes are added with n of their training pictures, drawn ten
times. Figures are test accuracies in the joint task of all trained and all added classes. Beside it: what
``run.predict(x, refuse=0.05)`` refuses before anything is added. The rule of ``add_class`` was chosen on other pairs of
digits, other seeds, and the other ten of CIFAR-100's left-out classes (docs/new-classes.md).

    python -m experiments.new_classes --mnist FOLDER --cifar100 FOLDER   # writes results/new-classes.json
    python -m experiments.new_classes --only cifar100 --cifar100 FOLDER --device cuda   # its rows anew, on a GPU
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ._study import RESULTS, environment, run_all, save, table

PICTURES = {"digits": (), "mnist": (1, 5, 20, 200), "cifar100": (1, 5, 20)}
DRAWS = 10
REFUSED = 0.05
NAMES = {
    "ce+mcr2": "cross-entropy + exact MCR² (auto)",
    "ce": "cross-entropy",
    "mcr2": "exact MCR²",
    "vmcr2": "V-MCR²",
}
TITLES = {"digits": "digits", "mnist": "MNIST", "cifar100": "CIFAR-100"}
SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"epochs": 20},
    "mnist": {"model": "mlp", "epochs": 15, "batch_size": 250},
    "cifar100": {"epochs": 7, "batch_size": 400, "flip": True},
}
TRAINED_ON = {"digits": None, "mnist": 12_000, "cifar100": 16_000}
"""The first so many training pictures of the known classes."""
ON_A_GPU: dict[str, dict[str, Any]] = {"cifar100": {"flip": True}}
"""There these data sets have time for all their training pictures, and as many epochs as the rule says."""


class Job(NamedTuple):
    """One network."""

    data: str
    left_out: tuple[int, ...]
    """classes that it is trained without"""
    added: tuple[int, ...]
    """those of them that are added"""
    objective: str
    seed: int

    @property
    def folder(self) -> str:
        """Its run's name."""
        return f"{self.data}-{self.objective}-without-{'-'.join(map(str, self.left_out))}-seed-{self.seed}"


def all_jobs() -> list[Job]:
    """The longest first."""
    left = tuple(range(2, 100, 5))
    jobs = [Job("cifar100", left, left[10:], objective, 0) for objective in ("ce+mcr2", "ce")]
    for seed, pair in enumerate([(0, 5), (2, 7), (4, 9)]):
        jobs += [Job("mnist", pair, pair, objective, seed) for objective in ("ce+mcr2", "ce", "mcr2")]
    for seed in range(10):
        pair = (seed, (seed + 5) % 10)
        jobs += [Job("digits", pair, pair, objective, seed) for objective in ("ce+mcr2", "ce", "vmcr2")]
    return jobs


def one(job: Job, work: Path, folders: dict[str, str], device: str = "cpu") -> dict[str, Any]:
    """Train, or take the finished run; measure."""
    import vmcr2
    from vmcr2.data import from_arrays

    torch.set_num_threads(1)
    train, test, names = _parts(job, folders)
    left_out = torch.tensor(job.left_out)
    long = device == "cuda" and job.data in ON_A_GPU
    settings, most = (ON_A_GPU[job.data], None) if long else (SETTINGS[job.data], TRAINED_ON[job.data])
    seen = torch.where(~torch.isin(train.labels, left_out))[0][:most]
    known = ~torch.isin(test.labels, left_out)
    source = from_arrays(
        train.inputs[seen],
        [names[j] for j in train.labels[seen]],
        test=(test.inputs[known], [names[j] for j in test.labels[known]]),
    )
    if (work / job.folder / "summary.json").exists():
        run = vmcr2.load_run(work / job.folder, device=device)
    else:
        own = {"objective": job.objective, "seed": job.seed, "device": device}
        config = vmcr2.recipe("auto", data=source, **own, **settings)
        run = vmcr2.fit(config, source=source, out=work / job.folder)
    features = run.features(test.inputs)
    refused = (run.answers_of(features).novelty.double() > run.threshold(REFUSED)).double().cpu()
    result = {
        **job._asdict(),
        "model": run.config.model.name,
        "epochs": run.config.optim.epochs,
        "training_pictures": run.summary["train_images"],
        "calibration_samples": run.summary["calibration_samples"],
        "known_accuracy": run.summary["readout_accuracy"],
        "known_accuracy_of_subspaces": run.summary["test_accuracy"],
        "refused_known": float(refused[known].mean()),
        "refused_left_out": float(refused[~known].mean()),
    }
    truth = [names[label] for label in test.labels]
    return result | {"added_with": _draws(job, run, train, names, features, truth)}


def _parts(job: Job, folders: dict[str, str]) -> tuple[Any, Any, tuple[str, ...]]:
    """Training and test pictures, and the names of the classes. Each seed splits the few digits in its own way."""
    from vmcr2.data import from_arrays, open_data

    given = open_data(job.data, folders.get(job.data))
    if job.data == "digits":
        both = [given.train(), given.test()]
        inputs, labels = (torch.cat(part) for part in zip(*both, strict=True))
        given = from_arrays(inputs, labels, split_seed=job.seed)
    return given.train(), given.test(), given.class_names


def _draws(
    job: Job, run: Any, train: Any, names: tuple[str, ...], features: Any, truth: list[str]
) -> dict[str, list[dict[str, float]]]:
    """For every n, the figures of ten draws. ``truth`` are the test pictures' classes."""
    added = [names[j] for j in job.added]
    places = {name: at for at, name in enumerate((*run.class_names, *added))}
    labels = torch.tensor([places.get(name, -1) for name in truth])
    features, labels = features[(labels >= 0).to(features.device)], labels[labels >= 0]
    new = labels >= len(run.class_names)
    found: dict[str, list[dict[str, float]]] = {}
    for n in PICTURES[job.data]:
        for draw in range(DRAWS):
            random, larger = torch.Generator().manual_seed(draw), run
            for j, name in zip(job.added, added, strict=True):
                own = torch.where(train.labels == j)[0]
                chosen = own[torch.randperm(len(own), generator=random)[:n]]
                larger = larger.add_class(name, train.inputs[chosen])
            answers = larger.answers_of(features)
            right = (answers.labels.cpu() == labels).double()
            refused = (answers.novelty.double().cpu() > larger.threshold(REFUSED)).double()
            bare = replace(larger, confidence=None).answers_of(features)  # residuals as they are
            bare_right = (bare.labels.cpu() == labels).double()
            figures = {"new": right[new], "known": right[~new], "refused_new": refused[new]}
            figures |= {"bare_new": bare_right[new], "bare_known": bare_right[~new]}
            found.setdefault(str(n), []).append({key: float(values.mean()) for key, values in figures.items()})
    return found


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.2f} ± {np.std(values):.2f}"


def tables(runs: list[dict[str, Any]]) -> list[str]:
    """Markdown: accuracies with added classes; what is refused."""
    columns = (1, 5, 20, 200)
    rows, refused = [], []
    for data, objective in dict.fromkeys((run["data"], run["objective"]) for run in runs):
        own = [run for run in runs if (run["data"], run["objective"]) == (data, objective)]
        name = f"{TITLES[data]}, {NAMES[objective]}"
        draws = [[draw for run in own for draw in run["added_with"].get(str(n), [])] for n in columns]
        if any(draws):
            keys = ("known_accuracy", "known_accuracy_of_subspaces")
            before = [f"{np.mean([run[key] for run in own]):.3f}" for key in keys]
            rows.append([name, *before, *(_accuracies(some, "new", "known") for some in draws)])
            if objective == "ce+mcr2":
                bare = (_accuracies(some, "bare_new", "bare_known") for some in draws)
                rows.append(["the same, by bare residuals", *before, *bare])
        shares = [_spread([run[key] for run in own]) for key in ("refused_known", "refused_left_out")]
        later = [f"{np.mean([draw['refused_new'] for draw in some]):.2f}" if some else "–" for some in draws]
        refused.append([name, *shares, *later])
    heads = [f"{n} picture{'s' if n > 1 else ''}" for n in columns]
    return [
        table(["found of new classes; known classes", "known before", "by subspaces", *heads], rows),
        table(["refused at 0.05", "known", "left out", *(f"added, {head}" for head in heads)], refused),
    ]


def _accuracies(draws: list[dict[str, float]], *keys: str) -> str:
    new, known = ([draw[key] for draw in draws] for key in keys)
    return f"{_spread(new)}; {np.mean(known):.3f}" if draws else "–"


def main() -> None:
    """Run, save, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", help="the folder with MNIST's four files")
    parser.add_argument("--cifar100", help="the folder with CIFAR-100, or its packed file")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/new-classes"), help="finished runs here are not made again"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=list(TITLES), help="one data set; the saved results of the others stay")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--tables", action="store_true", help="print the tables of the saved results")
    options = parser.parse_args()
    if not options.tables:
        folders = {name: path for name in ("mnist", "cifar100") if (path := getattr(options, name))}
        measure(options.only, partial(one, work=options.work, folders=folders, device=options.device), options.workers)
    print("\n\n".join(tables(json.loads((RESULTS / "new-classes.json").read_text())["runs"])))


def measure(only: str | None, function: Any, workers: int) -> None:
    """Run the study, or one data set of it, and save it. Every run has the environment that it was made in."""
    jobs = [job for job in all_jobs() if only in (None, job.data)]
    found = run_all(function, jobs, workers)
    here = environment()  # not before: it may start CUDA, which processes that are forked after it cannot use
    made = [run | {"environment": here} for run in found]
    others = []
    if only is not None:
        before = json.loads((RESULTS / "new-classes.json").read_text())
        others = [{"environment": before["environment"]} | run for run in before["runs"] if run["data"] != only]
    order = list(TITLES)[::-1]  # as in the documents
    runs = sorted([*made, *others], key=lambda run: order.index(run["data"]))
    save("new-classes.json", {"settings": SETTINGS, "on a GPU": ON_A_GPU, "draws": DRAWS, "runs": runs})


if __name__ == "__main__":
    main()

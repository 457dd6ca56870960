"""The verdict in words: accuracy against a guess, orthogonality, collapse, and advice that the documentation backs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_folders import HOSTILE, write_run

import vmcr2
from vmcr2.data import DATASETS
from vmcr2.report import RunRecord, page, read_run
from vmcr2.report._advice import advice
from vmcr2.report._verdict import Verdict, comparison, verdict
from vmcr2.runs import RECIPES

ROOT = Path(vmcr2.__file__).parent.parent


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return read_run(write_run(tmp_path_factory.mktemp("verdict") / "run"))


def changed(run: RunRecord, *, tensors: dict[str, Any] | None = None, **figures: Any) -> RunRecord:
    """With other figures of the summary, and other tensors."""
    return dataclasses.replace(run, summary=run.summary | figures, tensors=run.tensors | (tensors or {}))  # type: ignore[operator]


def told(run: RunRecord) -> str:
    return " ".join(verdict(run).sentences)


def test_accuracy_stands_beside_what_the_largest_class_would_give(plain: RunRecord) -> None:
    table = np.diag([30, 5, 5]) + np.array([[0, 10, 0], [0, 0, 5], [5, 0, 0]])
    names = ("a", "b", "c")
    own = {"confusion": table.astype(np.int32), "num_classes": np.array(3), "shown_classes": np.arange(3)}
    run = dataclasses.replace(changed(plain, tensors=own, test_accuracy=40 / 60, test_images=60), class_names=names)
    assert "right on 66.7% of the samples that it has not seen (40 of 60 test samples" in told(run)
    assert "largest class, «a», would be right on 66.7%" in told(run)
    assert verdict(run).headline == "No better than a guess"
    better = changed(run, test_accuracy=0.9)
    assert verdict(better).headline.startswith("The classes are told apart")
    # the head counts where the run predicts by it
    assert "right on 95.0%" in told(changed(run, readout="head", head_accuracy=0.95))


@pytest.mark.parametrize(
    ("overlap", "headline"),
    [(0.003, "subspaces that are nearly orthogonal"), (0.08, "partly orthogonal"), (0.3, "their subspaces overlap")],
)
def test_how_orthogonal(plain: RunRecord, overlap: float, headline: str) -> None:
    """Random subspaces of 6 of 60 dimensions overlap by 0.1."""
    run = changed(plain, subspace_overlap=overlap)
    assert headline in verdict(run).headline
    assert f"overlap by {overlap:.2g} on average" in told(run)
    assert "random subspaces of this size: 0.1)" in told(run)
    assert "mean |cosine| of 0.410, and two of different classes 0.020, 20.5 times smaller." in told(run)


def test_collapsed_and_stalled_as_the_losses_judge(plain: RunRecord) -> None:
    assert "The features have not collapsed" in told(plain)
    parallel = changed(plain, expansion=2.5, compression=2.49, train_delta_r=0.01)
    assert verdict(parallel).headline == "Collapsed: the classes were not separated"
    assert "they have collapsed" in told(parallel)
    slow = changed(plain, expansion=20.0, compression=18.5, train_delta_r=1.5)
    assert verdict(slow).headline.startswith("Stalled")
    assert "have not collapsed" in told(slow)
    said = changed(plain, warning="stalled: ΔR is 1. Try this")  # what the run itself found counts
    assert verdict(said).headline.startswith("Stalled")


def test_skewed_classes_have_their_mean_recall_said(plain: RunRecord) -> None:
    assert "times as many samples" not in told(plain)
    sizes = np.array([1000] + [20] * 9, np.int32)
    table = plain.tensors["confusion"]
    recall = (np.diag(table) / table.sum(1)).mean()
    skewed = told(changed(plain, tensors={"train_sizes": sizes}))
    assert "has 50 times as many samples as the smallest" in skewed
    assert f"{recall:.1%}" in skewed


def test_a_run_that_did_not_finish_is_not_judged(made: dict[str, Path]) -> None:
    found = verdict(read_run(made["failed"]))
    assert found.headline == "Not finished"
    assert "7 of 50 epochs are done" in found.sentences[0]
    assert found.advice == []
    assert "nothing to judge" in verdict(read_run(made["at-once"])).sentences[0]


def test_real_runs_are_judged_by_what_they_learned(real: dict[str, Path]) -> None:
    """Three epochs: each has learned something, and cross-entropy leaves the least orthogonal subspaces."""
    runs = {name: read_run(path) for name, path in real.items()}
    for run in runs.values():
        assert isinstance(verdict(run), Verdict)
        assert verdict(run).headline != "No better than a guess"
    names = list(runs)
    sentences = comparison(list(runs.values()), names)
    overlaps = {name: run.figure("subspace_overlap") for name, run in runs.items()}
    assert f"Most orthogonal classes: {min(overlaps, key=lambda name: overlaps[name] or 0)}," in sentences[1]
    assert sentences[0].startswith("Most accurate on test samples: ")
    shown = page(list(runs.values()))
    for sentence, word in zip(sentences, ("Most accurate", "Most orthogonal", "Largest ΔR"), strict=True):
        assert sentence.startswith(word)
        assert shown.count(f"<li>{word}") == 1


def test_names_of_people_are_text_in_the_verdict(tmp_path: Path) -> None:
    names = HOSTILE[:2] + [f"n{j}" for j in range(8)]
    run = read_run(write_run(tmp_path / "run", names=names))
    table = run.tensors["confusion"].copy()
    table[0] *= 3  # the first class is the largest
    text = page([dataclasses.replace(run, tensors=run.tensors | {"confusion": table})])
    assert "largest class, «&lt;img src=x onerror=alert(1)&gt;»" in text
    assert "<img src=x" not in text


# ---- advice

RISING = [{"epoch": e, "seconds": 1.0 * e, "batch_delta_r": 0.2 * e} for e in range(1, 101)]
LEVEL = [{"epoch": e, "seconds": 1.0 * e, "batch_delta_r": 20.0 + (e % 2)} for e in range(1, 101)]
HELD_OUT = {"train_accuracy": 0.55, "holdout_accuracy": 0.5, "holdout_accuracy_by_components": {"3": 0.6, "6": 0.5}}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = {
    # what the advice names: objective and settings, figures, metrics
    "--epochs 200": ("vmcr2", {"epochs": 100}, {}, RISING),
    "--objective ce+vmcr2": ("ce+mcr2", {"batch_size": 30, "memory": 0}, {}, LEVEL),
    "memory=20000": ("mcr2", {"batch_size": 2000, "memory": 0}, {"batch_delta_r": 30.0, "train_delta_r": 8.0}, LEVEL),
    "batch_expansion=0.1": ("vmcr2", {"batch_expansion": 0}, {}, LEVEL),
    "dropout_until=0.8": ("vmcr2", {"dropout_until": 1.0}, {}, LEVEL),
    "atoms_per_class": ("vmcr2", {"atoms_per_class": 40}, {}, LEVEL),
    "augmentation=crop": ("vmcr2", {"augmentation": "none"}, {"train_accuracy": 0.95}, LEVEL),
    "flip=true": ("vmcr2", {"augmentation": "crop", "flip": False}, {"train_accuracy": 0.95}, LEVEL),
    "input_noise=0.5": ("vmcr2", {"input_noise": 0}, {"train_accuracy": 0.95}, LEVEL),
    "weight_decay": ("vmcr2", {"augmentation": "crop", "flip": True}, {"train_accuracy": 0.95}, LEVEL),
    "components=3": ("vmcr2", {"holdout": 500}, HELD_OUT, LEVEL),
}


def advised(plain: RunRecord, case: tuple[str, dict[str, Any], dict[str, Any], list[dict[str, Any]]]) -> list[str]:
    objective, settings, figures, metrics = case
    calm = {"objective": objective, "batch_size": 1000, "atoms_per_class": 6, "epochs": 100, "dim": 60, "eps_sq": 0.5}
    start = {"test_accuracy": 0.6, "train_accuracy": 0.65, "batch_delta_r": 21.0, "train_delta_r": 20.0}
    run = dataclasses.replace(plain, config=calm | settings, metrics=metrics)
    return advice(changed(run, **(start | figures)))


@pytest.mark.parametrize("named", CASES)
def test_one_symptom_one_piece_of_advice(plain: RunRecord, named: str) -> None:
    assert advised(plain, ("vmcr2", {}, {}, LEVEL)) == []
    (found,) = advised(plain, CASES[named])
    assert f"`{named}`" in found or f"`--set {named}" in found
    # whoever follows it finds the measurements
    ((document, heading),) = re.findall(r"\((docs/\w+\.md), «([^»]+)»", found)
    headings = re.findall(r"^#+ (.*)$", (ROOT / document).read_text(), flags=re.MULTILINE)
    assert heading in headings, f"{document} has no «{heading}»"


def test_cross_entropy_is_not_told_to_raise_a_rate(plain: RunRecord) -> None:
    assert advised(plain, ("ce", {"dropout_until": 1.0}, {}, RISING)) == []


@pytest.mark.parametrize("name", sorted(name for name in RECIPES if not name.endswith("-paper")))
def test_no_recipe_is_advised_to_have_other_settings(name: str, plain: RunRecord) -> None:
    """What the recipes have was searched: only a run's own course may ask for something else."""
    config = RECIPES[name]().config
    classes = DATASETS[config.data.name].classes
    run = dataclasses.replace(plain, config=config.acting(), metrics=LEVEL)
    figures = {"train_accuracy": 0.65, "test_accuracy": 0.6, "batch_delta_r": 21.0, "train_delta_r": 20.0}
    figures["train_images"] = {"digits": 1294, "mnist": 59_000}.get(config.data.name, 49_000)
    assert advice(changed(run, tensors={"num_classes": np.array(classes)}, **figures)) == []

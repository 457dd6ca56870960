"""``run.plot``: figures of matplotlib that have the run's own numbers, and the map of features."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from run_folders import HOSTILE, write_run
from safetensors.numpy import load_file, save_file

import vmcr2
from vmcr2.report import plots_of, read_run
from vmcr2.report._class_table import class_rows
from vmcr2.report._feature_map import feature_map, map_sentence
from vmcr2.runs import UserError, load_run

NAMES = ("convergence", "heat_map", "spectra", "feature_map", "recall")


def test_every_plot_of_a_run_is_a_figure_that_a_notebook_shows(real: dict[str, Path]) -> None:
    run = load_run(real["vmcr2"], device="cpu")
    for name in NAMES:
        figure = getattr(run.plot, name)()
        assert isinstance(figure, Figure)
        assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
        assert name in repr(run.plot)


def test_nobody_pays_for_matplotlib_before_a_plot(real: dict[str, Path]) -> None:
    script = (
        "import sys, vmcr2; run = vmcr2.load_run(sys.argv[1], device='cpu'); plot = run.plot; "
        "assert 'matplotlib' not in sys.modules; plot.recall(); assert 'matplotlib' in sys.modules; "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(real["ce"])], check=True, cwd=Path(vmcr2.__file__).parent.parent)


def test_convergence_has_the_metrics_and_a_single_point_is_a_number(real: dict[str, Path]) -> None:
    record = read_run(real["vmcr2"])
    axes = {ax.get_ylabel() or ax.get_title(): ax for ax in plots_of(real["vmcr2"]).convergence().axes}
    delta = axes[r"$\Delta R$, the rate reduction"]
    lines = {str(line.get_label()): line for line in delta.lines}
    assert list(lines["batch"].get_xdata()) == [1, 2, 3]
    assert list(lines["batch"].get_ydata()) == [line["batch_delta_r"] for line in record.metrics]
    assert lines["full train"].get_ydata()[-1] == record.figure("train_delta_r")  # type: ignore[index]
    accuracy = axes["Accuracy, nearest subspace"]
    assert not accuracy.lines
    assert [text.get_text() for text in accuracy.texts] == [f"test: {record.figure('test_accuracy'):.4g}"]
    over_time = plots_of(real["vmcr2"]).convergence(seconds=True).axes[0]
    assert list(over_time.lines[0].get_xdata()) == [line["seconds"] for line in record.metrics]


def test_the_heat_map_and_the_spectra_are_the_folder_s(real: dict[str, Path]) -> None:
    tensors = load_file(real["mcr2"] / "evaluation.safetensors")
    (image,) = plots_of(real["mcr2"]).heat_map().axes[0].images
    rows = np.concatenate([np.flatnonzero(tensors["labels"] == j)[:100] for j in range(10)])
    z = tensors["features"][rows].astype(np.float64)
    assert np.abs(image.get_array() - np.abs(z @ z.T)).max() < 2e-3  # type: ignore[operator]
    drawn = [line.get_ydata() for line in plots_of(real["mcr2"]).spectra().axes[0].lines]
    assert np.allclose(drawn[0], tensors["spectra"][0].clip(1e-8))
    assert np.allclose(drawn[10], np.median(tensors["spectra"], axis=0).clip(1e-8))


def test_recall_is_worst_first(made: dict[str, Path]) -> None:
    for name in ("plain", "hundred"):
        table = read_run(made[name]).tensors["confusion"]
        recall = np.sort(np.diag(table) / table.sum(1))
        axes = plots_of(made[name]).recall().axes[0]
        if name == "plain":
            assert [bar.get_width() for bar in axes.patches] == pytest.approx(recall)  # type: ignore[attr-defined]
            first = axes.get_yticklabels()[0].get_text()
            assert first == f"class {(np.diag(table) / table.sum(1)).argmin()}"
        else:
            assert list(axes.lines[0].get_ydata()) == pytest.approx(recall)


def test_what_a_folder_does_not_have_is_said(made: dict[str, Path], tmp_path: Path) -> None:
    failed = plots_of(made["failed"])
    assert isinstance(failed.convergence(), Figure)
    for name in NAMES[1:]:
        with pytest.raises(UserError, match="did not get as far as its evaluation"):
            getattr(failed, name)()
    with pytest.raises(UserError, match="before its first one"):
        plots_of(made["at-once"]).convergence()
    with pytest.raises(UserError, match="not a run folder"):
        plots_of(tmp_path)


def test_a_published_run_says_that_its_own_folder_is_needed(real: dict[str, Path], tmp_path: Path) -> None:
    load_run(real["vmcr2"], device="cpu").save_pretrained(tmp_path / "published")
    with pytest.raises(UserError, match="needs the run's own folder"):
        _ = vmcr2.from_pretrained(tmp_path / "published", device="cpu").plot


# ---- the map


def on_subspaces(path: Path, overlap: float) -> Path:
    """A run whose classes are lines: e_j, but for the last, which leans towards the first."""
    run = write_run(path, classes=4, dim=8)
    z, labels = np.eye(8)[[0, 1, 2, 3]].repeat(5, axis=0), np.repeat(np.arange(4), 5)
    z[labels == 3] = [overlap, 0, 0, (1 - overlap**2) ** 0.5, 0, 0, 0, 0]
    tensors = load_file(run / "evaluation.safetensors")
    new = np.stack([np.eye(8)[1], (np.eye(8)[1] + np.eye(8)[2]) / 2**0.5, np.eye(8)[7]]).astype(np.float16)
    own = {"features": z.astype(np.float16), "labels": labels, "unseen_features": new}
    save_file(tensors | own | {"unseen_labels": np.array([1, 1, 2])}, run / "evaluation.safetensors")
    return run


def test_the_map_puts_samples_where_their_shares_are(tmp_path: Path) -> None:
    """In a subspace: at its place. Half in two: halfway. Outside all: in the middle."""
    run = read_run(on_subspaces(tmp_path / "run", 0.0))
    found = feature_map(run)
    assert found is not None
    assert found.unseen
    place = {number: found.anchors[at] for at, number in enumerate(found.classes)}
    assert np.allclose(np.linalg.norm(found.anchors, axis=1), 1)
    assert np.allclose(found.points[0], place[1], atol=1e-3)
    assert np.allclose(found.points[1], (place[1] + place[2]) / 2, atol=1e-3)
    assert np.allclose(found.points[2], 0, atol=1e-3)
    assert "50% lies in the subspace of its own class" in map_sentence(run, found)  # 1, ½ and 0
    two = feature_map(run, classes=[2, 1])
    assert two is not None
    assert sorted(map(tuple, two.points.round(2).tolist())) == [(0.0, 0.0), (0.0, 1.0), (0.5, 0.5)]


def test_neighbours_on_the_map_have_much_in_common(tmp_path: Path) -> None:
    run = read_run(on_subspaces(tmp_path / "run", 0.6))
    found = feature_map(run)
    assert found is not None
    assert abs(found.classes.index(1) - found.classes.index(2)) == 1  # a sample of 1 lies half in 2


def test_separated_classes_have_their_samples_near_their_places(tmp_path: Path) -> None:
    """Drawn features of 6-dimensional subspaces with a little noise: most of every sample lies at its own place."""
    run = read_run(write_run(tmp_path / "run", classes=10, dim=60))
    found = feature_map(run)
    assert found is not None
    nearest = np.linalg.norm(found.points[:, None] - found.anchors, axis=2).argmin(1)
    assert (nearest == found.labels).mean() > 0.95
    again = feature_map(run)
    assert again is not None
    assert np.array_equal(found.points, again.points)


def test_classes_of_the_map_can_be_named(made: dict[str, Path]) -> None:
    plot = plots_of(made["hostile"])
    figure = plot.feature_map([HOSTILE[2], HOSTILE[3], 7])
    names = {text.get_text() for text in figure.axes[0].texts}
    assert names == {r"\$x_1^", "a & b", "h"}
    assert plot.feature_map().savefig
    for wrong, words in ((["nobody"], "has no class 'nobody'"), ([10], "classes are 0 to 9"), ([], "1 to 16")):
        with pytest.raises(UserError, match=words):
            plot.feature_map(wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="different classes"):
        plot.feature_map([1, 1])


# ---- the table of classes


def test_the_table_says_size_rank_and_the_class_it_is_taken_for(made: dict[str, Path]) -> None:
    run = read_run(made["plain"])
    table = run.tensors["confusion"]
    off = table - np.diag(np.diag(table))
    rows = class_rows(run)
    assert sorted(row.number for row in rows) == list(range(10))
    shares = [row.recall for row in rows]
    assert shares == sorted(shares, key=lambda share: share or 0)
    for row in rows:
        assert (row.right, row.total) == (table[row.number, row.number], table[row.number].sum())
        assert row.train_size == 5000
        assert row.rank == pytest.approx(6.6)
        assert row.other == f"class {off[row.number].argmax()}"
        assert row.why == f"taken for it {off[row.number].max()} times"
    assert [row.number for row in class_rows(run, most=3)] == [row.number for row in rows[:3]]


def test_without_a_mistake_the_closest_subspace_is_named(made: dict[str, Path]) -> None:
    run = read_run(made["plain"])
    right = {"confusion": np.diag(np.full(10, 7)).astype(np.int32)}
    angles = run.tensors["smallest_angles"].astype(float) + 9 * np.eye(10)
    for row in class_rows(dataclasses.replace(run, tensors=run.tensors | right)):
        assert row.recall == 1.0
        assert row.other == f"class {angles[row.number].argmin()}"
        assert row.why == f"no mistake; the closest, at {np.degrees(angles[row.number].min()):.0f}°"

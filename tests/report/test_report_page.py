"""The page as a file: size, time, what stands in it, and whose files are left alone."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from run_folders import pictures, write_run
from safetensors.numpy import load_file
from typer.testing import CliRunner

import vmcr2
from vmcr2.cli import _report, app
from vmcr2.report import page, read_run, write_figures, write_report
from vmcr2.report._figures._write import _pictures
from vmcr2.report._pictures import strips
from vmcr2.runs import UserError

ROOT = Path(vmcr2.__file__).parent.parent


def payload(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.split('id="payload">')[1].split("</script>", maxsplit=1)[0])
    return found


def test_a_hundred_classes_and_two_thousand_epochs(made: dict[str, Path], tmp_path: Path) -> None:
    """Noise for pictures, the hardest to compress. Under 3 MB, and under 10 s of computing (0.5 s measured)."""
    start = time.process_time()
    target = write_report([read_run(made["hundred"])], tmp_path / "report.html")
    assert time.process_time() - start < 10
    assert 100_000 < target.stat().st_size < 3_000_000


def test_two_hundred_classes_and_many_runs_stay_small(made: dict[str, Path]) -> None:
    assert len(page([read_run(made["two-hundred"])]).encode()) < 3_000_000
    many = [read_run(made[name]) for name in ("hundred", "plain", "seed1", "seed2", "ce", "mcr2", "holdout", "old")]
    assert len(page(many * 2).encode()) < 3_000_000


def test_a_hundred_thousand_classes_stay_small(made: dict[str, Path]) -> None:
    """What the folder of such a run has: pictures of 200 classes under their own numbers, and lists of mistakes."""
    few = read_run(made["two-hundred"])
    k, shown = 100_000, np.linspace(0, 99_999, 200).astype(np.int64)
    sizes = np.full(k, 10, np.int32)
    right = (np.arange(k) % 11).astype(np.int32)
    tensors = {name: value for name, value in few.tensors.items() if name not in ("confusion", "codes")} | {
        "num_classes": np.array(k),
        "shown_classes": shown,
        "labels": shown[few.tensors["labels"]],
        "effective_ranks": np.ones(k, np.float32),
        "class_sizes": sizes,
        "class_right": right,
        "confused": np.array([[70_001, 3, 9], [5, 99_998, 8]], np.int32),
    }
    names = tuple(f"kind {label}" for label in range(k))
    text = page([dataclasses.replace(few, tensors=tensors, class_names=names)])
    assert len(text.encode()) < 3_000_000
    assert text.count("kind ") < 3000
    assert "<td>kind 70001</td><td>kind 3</td><td>9</td><td>10</td>" in text
    worst = re.findall(r'<th scope="row">kind (\d+)</th><td data-value="([\d.]+)">', text)
    assert worst == [(str(11 * at), "0.0") for at in range(200)]  # the first of those that were never right
    data = payload(text)
    assert "confusion-0" not in data
    assert data["angles-0"]["names"] == data["spectra-0"]["names"] == [f"kind {label}" for label in shown]
    assert data["inner-0"]["names"] == [f"kind {shown[at]}" for at in (0, 22, 44, 66, 88, 111, 133, 155, 177, 199)]
    assert dict(_pictures([dataclasses.replace(few, tensors=tensors, class_names=names)])).keys() >= {
        "angles",
        "spectra",
    }


def test_it_needs_neither_weights_nor_data(real: dict[str, Path], tmp_path: Path) -> None:
    names = ("config.json", "manifest.json", "metrics.jsonl", "summary.json", "evaluation.safetensors")
    for name in names:
        (tmp_path / name).write_bytes((real["vmcr2"] / name).read_bytes())
    whole, bare = (payload(page([read_run(folder)])) for folder in (real["vmcr2"], tmp_path))
    assert whole == bare


def test_nothing_is_asked_of_the_network(made: dict[str, Path]) -> None:
    text = page([read_run(made["plain"])])
    assert not re.findall(r"(?:src|href)=[\"']?(?!data:|#)[a-z/]", text)
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert "url(" not in text


def test_the_payload_holds_what_was_measured(real: dict[str, Path]) -> None:
    run = read_run(real["vmcr2"])
    data = payload(page([run]))
    batch = data["curve-delta"]["curves"][0]
    assert batch["e"] == [1, 2, 3]
    assert batch["y"] == pytest.approx([line["batch_delta_r"] for line in run.metrics], rel=1e-4)
    assert batch["s"] == pytest.approx([line["seconds"] for line in run.metrics], rel=1e-4)
    confusion = np.frombuffer(base64.b64decode(data["confusion-0"]["layers"][0]["data"]), "<u2").reshape(10, 10)
    assert np.array_equal(confusion, load_file(real["vmcr2"] / "evaluation.safetensors")["confusion"])
    inner = np.frombuffer(base64.b64decode(data["inner-0"]["layers"][0]["data"]), np.uint8).reshape(300, 300)
    assert (np.diag(inner) == 255).all()
    spectra = load_file(real["vmcr2"] / "evaluation.safetensors")["spectra"]
    assert np.allclose(data["spectra-0"]["values"], spectra, rtol=5e-3)
    atoms = data["atoms-0"]
    codes = load_file(real["vmcr2"] / "evaluation.safetensors")["codes"].astype(float)
    assert atoms["index"][4][0] == codes[:, 4].argmax()
    assert atoms["share"][4][0] == pytest.approx(codes[:, 4].max() / codes[:, 4].sum(), rel=5e-3)


def test_pictures_are_the_folder_s(real: dict[str, Path]) -> None:
    """Digits are small enough to be kept as they are."""
    text = page([read_run(real["vmcr2"])])
    found = re.search(r'<img src="data:image/png;base64,([^"]+)" alt="8 training pictures of 0"', text)
    assert found is not None
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(found[1]))))
    kept = load_file(real["vmcr2"] / "evaluation.safetensors")["nearest_pictures"][0, :, 0]
    assert np.array_equal(shown, np.concatenate(list(kept), axis=1))


@pytest.mark.parametrize(
    ("budget", "number", "kind"), [(10**7, 8, "png"), (30_000, 8, "jpeg"), (9_000, 4, "jpeg"), (10, 0, "")]
)
def test_pictures_keep_to_a_budget(budget: int, number: int, kind: str) -> None:
    found = strips(pictures((2, 8, 3, 32, 32), np.random.default_rng(0), smooth=False), budget)
    assert sum(len(strip.uri) for strip in found) <= budget
    assert [strip.number for strip in found] == ([number] * 2 if number else [])
    assert all(strip.uri.startswith(f"data:image/{kind};") for strip in found)


def test_an_unfinished_run_says_so_and_how_to_go_on(made: dict[str, Path]) -> None:
    text = page([read_run(made["failed"])])
    assert "This run has not finished" in text
    assert "7 of 50 epochs" in text
    assert f"vmcr2 train --resume --out {made['failed']}" in text
    assert "has not finished" not in page([read_run(made["plain"])])
    assert "did not get as far as its evaluation" in text


def test_a_run_of_a_sweep_says_how_its_features_are_kept(made: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(made["plain"], tmp_path / "run"))
    (run / "evaluation.safetensors").unlink()
    text = page([read_run(run)])
    assert "a sweep keeps them with --keep-weights" in text
    assert "did not get as far" not in text


def test_an_old_folder_says_what_it_lacks(made: dict[str, Path]) -> None:
    text = page([read_run(made["old"])])
    assert "made before angles were kept" in text
    assert "made before they were kept" in text


def test_hostile_names_never_leave_their_quotes(made: dict[str, Path]) -> None:
    text = page([read_run(made["hostile"])])
    assert "<img src=x" not in text
    assert text.count("<script") == 2
    assert "{{ 7*7 }}" in text
    assert payload(text)["spectra-0"]["names"][0] == "<img src=x onerror=alert(1)>"


# ---- files


def test_a_page_is_made_anew_but_never_over_another_s_file(made: dict[str, Path], tmp_path: Path) -> None:
    runs = [read_run(made["plain"])]
    target = tmp_path / "deep" / "report.html"
    write_report(runs, target)
    write_report([read_run(made["ce"])], target)
    assert "cifar100-ce" in target.read_text()
    foreign = tmp_path / "thesis.html"
    foreign.write_text("<html>my work</html>")
    with pytest.raises(UserError, match=r"thesis\.html exists and was not made by vmcr2 report"):
        write_report(runs, foreign)
    assert foreign.read_text() == "<html>my work</html>"
    with pytest.raises(UserError, match="is a folder"):
        write_report(runs, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


OF_CLASSES = {"inner-products", "spectra", "angles", "angle-histogram", "confusion", "nearest-pictures"}
OF_CLASSES |= {"worst-mistakes"}


@pytest.mark.parametrize("name", ["hostile", "failed", "ce"])
def test_which_figures_there_are(made: dict[str, Path], name: str) -> None:
    stems = {stem for stem, _ in _pictures([read_run(made[name])])}
    assert {"convergence-delta-epochs", "convergence-delta-seconds", "convergence-rates-epochs"} <= stems
    assert (stems >= OF_CLASSES) == (name != "failed")
    assert ("atoms" in stems) == (name == "hostile")


def test_figures_as_svg_and_png(made: dict[str, Path], tmp_path: Path) -> None:
    run = read_run(made["hostile"])
    written = write_figures([run], tmp_path)
    stems = {stem for stem, _ in _pictures([run])}
    assert {path.name for path in tmp_path.iterdir()} == {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")}
    for path in written:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert min(image.size) > 200
                assert len(set(np.asarray(image.convert("L")).flatten())) > 5
        else:
            assert "<svg" in path.read_text()


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    """And a picture of ours may be made anew."""
    run = read_run(write_run(tmp_path / "run", epochs=3, done=1, recipe="cifar100-ce"))
    first = {path: path.read_bytes() for path in write_figures([run], tmp_path / "pictures")}
    assert {path: path.read_bytes() for path in write_figures([run], tmp_path / "pictures")} == first


def test_another_s_picture_is_left_alone(made: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "convergence-delta-epochs.svg").write_text("<svg>mine</svg>")
    with pytest.raises(UserError, match="was not made by vmcr2 report"):
        write_figures([read_run(made["failed"])], tmp_path)


# ---- the command


def run_command(*args: str | Path) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, args)])


def test_the_page_goes_beside_its_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    said = run_command(run)
    assert said.exit_code == 0, said.output
    assert said.stdout == f"report: {run}/report.html\n"
    assert "vmcr2 report" in (run / "report.html").read_text()[:2000]


def test_several_runs_go_here(made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = run_command(made["plain"], made["ce"], "--json")
    assert json.loads(said.stdout) == {"report": "report.html"}
    assert "2 runs compared" in Path("report.html").read_text()
    Path("report.html").write_text("mine")
    assert isinstance(run_command(made["plain"], made["ce"]).exception, UserError)
    assert Path("report.html").read_text() == "mine"


def test_a_table_alone_is_printed_and_nothing_written(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run_command(made["plain"], made["seed1"], "--table", "md")
    assert said.stdout.startswith("| Recipe |")
    assert list(tmp_path.iterdir()) == []
    assert run_command(made["plain"], "--table", "latex").stdout.startswith(r"\begin{tabular}")
    assert run_command(made["plain"], "--table", "html").stdout.startswith("<table>")
    both = run_command(made["plain"], "--table", "md", "-o", "p.html")
    assert "report: p.html" not in both.stdout
    assert Path("p.html").exists()


def test_what_is_no_run(tmp_path: Path) -> None:
    said = run_command(tmp_path)
    assert isinstance(said.exception, UserError)
    assert "is not a run folder" in str(said.exception)


def test_a_report_that_fails_does_not_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run")
    (run / "report.html").write_text("mine")
    assert _report.report_after(run) is None
    assert "the run is done, but there is no report" in capsys.readouterr().err
    (run / "report.html").unlink()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a page")

    monkeypatch.setattr("vmcr2.report.write_report", broken)
    assert _report.report_after(run) is None
    assert "its report failed (ZeroDivisionError: a page)" in capsys.readouterr().err

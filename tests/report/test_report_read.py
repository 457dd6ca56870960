"""Run folders as records: whole, unfinished, old, damaged."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from vmcr2.report import RunRecord, page, read_run
from vmcr2.report._class_table import class_rows
from vmcr2.report._classes import angles, codes, spectra
from vmcr2.report._inner import chosen_classes, inner_products
from vmcr2.report._mistakes import answers, answers_sentence, most_confused
from vmcr2.runs import UserError, read_record


def test_a_whole_run(real: dict[str, Path]) -> None:
    run = read_run(real["vmcr2"])
    assert run.summary == read_record(real["vmcr2"] / "summary.json")
    assert [line["epoch"] for line in run.metrics] == [1, 2, 3]
    assert (run.recipe, run.objective, run.unseen, run.num_classes) == ("digits-vmcr2", "vmcr2", "test", 10)
    assert run.names() == [str(j) for j in range(10)]
    assert run.most_delta == pytest.approx(50.83, abs=0.01)
    assert run.most_expansion == pytest.approx(64 * math.log(3))
    assert run.problems == ()
    assert set(run.tensors) == set(load_file(real["vmcr2"] / "evaluation.safetensors"))


def test_new_tensors_are_in_a_real_run(real: dict[str, Path]) -> None:
    tensors = load_file(real["vmcr2"] / "evaluation.safetensors")
    learned = load_file(real["vmcr2"] / "objective.safetensors")
    assert np.array_equal(tensors["codes"], learned["codes"].astype(np.float16))
    assert tensors["smallest_angles"].shape == tensors["mean_angles"].shape == (10, 10)
    for objective in ("mcr2", "ce"):
        assert "codes" not in load_file(real[objective] / "evaluation.safetensors")


def test_an_unfinished_run(made: dict[str, Path]) -> None:
    run = read_run(made["failed"])
    assert run.summary is None
    assert (run.epochs_done, run.seconds) == (7, pytest.approx(0.98))
    assert run.tensors == {}
    assert run.num_classes == 100  # by the data set's name
    assert run.figure("test_accuracy") is None
    assert inner_products(run, 30) is None
    assert spectra(run) is codes(run) is angles(run) is None


def test_names_are_invented_where_there_are_none(made: dict[str, Path]) -> None:
    assert read_run(made["plain"]).names()[:2] == ["class 0", "class 1"]


@pytest.mark.parametrize(
    ("file", "content", "word"),
    [
        ("manifest.json", "{", "manifest.json"),
        ("manifest.json", None, "manifest.json"),
        ("summary.json", "[1", "summary.json"),
        ("evaluation.safetensors", "not tensors", "evaluation.safetensors"),
    ],
)
def test_a_damaged_part_is_absent_and_named(
    made: dict[str, Path], tmp_path: Path, file: str, content: str | None, word: str
) -> None:
    folder = shutil.copytree(made["plain"], tmp_path / "run")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    run = read_run(folder)
    assert len(run.problems) == 1
    assert word in run.problems[0]
    assert word in page([run])


def test_lines_that_were_cut_off_and_figures_that_are_not_finite(made: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(made["plain"], tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    broken = json.loads(lines[3]) | {"mismatch": math.nan, "expansion": math.inf, "batch_delta_r": None}
    (folder / "metrics.jsonl").write_text("\n".join([*lines[:3], json.dumps(broken), "17", lines[5][:30]]))
    run = read_run(folder)
    assert [line["epoch"] for line in run.metrics] == [1, 2, 3, 4]

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    text = page([run]).split('id="payload">')[1].split("</script>")[0]
    curves = json.loads(text, parse_constant=refuse)["curve-mismatch"]["curves"]
    assert curves[0]["e"] == [1, 2, 3]


@pytest.mark.parametrize("what", ["nothing", "damaged", "format"])
def test_what_is_no_run_is_the_users_mistake(made: dict[str, Path], tmp_path: Path, what: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    if what == "damaged":
        (folder / "config.json").write_text("{")
    if what == "format":
        shutil.copy(made["plain"] / "config.json", folder)
        (folder / "manifest.json").write_text('{"format": 99}')
    words = {"nothing": "not a run folder", "damaged": "damaged", "format": "format 99"}
    with pytest.raises(UserError, match=words[what]):
        read_run(folder)


# ---- what is computed from the tensors


def test_inner_products_by_hand(made: dict[str, Path]) -> None:
    run = read_run(made["hundred"])
    found = inner_products(run, per_class=20)
    assert found is not None
    assert found.classes == chosen_classes(100) == [0, 11, 22, 33, 44, 55, 66, 77, 88, 99]
    assert found.sizes == [20] * 10
    labels = run.tensors["labels"]
    rows = [i for j in found.classes for i in np.flatnonzero(labels == j)[:20]]
    z = run.tensors["features"][rows].astype(np.float64)
    within, between = [], []
    for a in range(200):
        for b in range(200):
            cosine = abs(z[a] @ z[b]) / np.linalg.norm(z[a]) / np.linalg.norm(z[b])
            assert found.values[a, b] == pytest.approx(cosine, abs=1e-9)
            if a != b:
                (within if labels[rows[a]] == labels[rows[b]] else between).append(cosine)
    assert found.within == pytest.approx(np.mean(within))
    assert found.between == pytest.approx(np.mean(between))


@pytest.mark.parametrize(
    ("classes", "expected"), [(1, [0]), (10, list(range(10))), (11, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10])]
)
def test_the_chosen_classes(classes: int, expected: list[int]) -> None:
    assert chosen_classes(classes) == expected


def test_blocks_of_codes_by_hand(made: dict[str, Path]) -> None:
    run = read_run(made["plain"])
    found = codes(run)
    assert found is not None
    raw = run.tensors["codes"].astype(np.float64)
    per = raw.shape[0] // 10
    for i in range(10):
        for j in range(10):
            share = raw[j * per : (j + 1) * per, i].sum() / raw[:, i].sum()
            assert found.blocks[i, j] == pytest.approx(share)
    assert np.allclose(found.blocks.sum(1), 1)


def test_angles_in_degrees_and_their_histogram(made: dict[str, Path]) -> None:
    run = read_run(made["plain"])
    found = angles(run)
    assert found is not None
    assert np.allclose(found.smallest, np.degrees(run.tensors["smallest_angles"].astype(np.float64)).clip(0, 90))
    assert len(found.pairs) == sum(found.histogram) == 45
    assert found.histogram[-1] == (found.pairs >= 87).sum()


def test_the_most_confused() -> None:
    table = np.array([[5, 3, 0], [0, 8, 1], [4, 0, 6]], np.int32)
    run = RunRecord(Path(), {}, tensors={"confusion": table}, class_names=("a", "b", "c"))
    found = answers(run)
    assert found is not None
    expected = [("c", "a", 4, 10), ("a", "b", 3, 8), ("b", "c", 1, 9)]
    assert [tuple(mistake) for mistake in most_confused(run, found)] == expected


def test_lists_of_many_classes_say_what_their_table_would() -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 3, (40, 40)).astype(np.int32) + np.diag(rng.integers(0, 60, 40)).astype(np.int32)
    table[7] = 0  # a class without samples
    off = table - np.diag(np.diag(table))
    rows, columns = np.nonzero(off)
    order = np.argsort(-off[rows, columns], kind="stable")
    confused = np.stack([rows, columns, off[rows, columns]], axis=1)[order]
    lists = {"class_sizes": table.sum(1), "class_right": np.diag(table), "confused": confused}
    records = [
        RunRecord(Path(), {}, tensors={"num_classes": np.array(40), **tensors})
        for tensors in ({"confusion": table}, lists)
    ]
    told = []
    for run in records:
        found = answers(run)
        assert found is not None
        told.append((answers_sentence(run, found), most_confused(run, found), class_rows(run)))
    assert told[0] == told[1]
    rows = told[0][2]
    recall = np.diag(table) / np.maximum(table.sum(1), 1)
    assert [row.recall for row in rows[:-1]] == sorted(recall[j] for j in range(40) if j != 7)
    assert (rows[-1].number, rows[-1].recall) == (7, None)
    assert all(row.other == f"class {off[row.number].argmax()}" for row in rows[:-1] if off[row.number].any())


def test_the_confusion_s_sentence_says_which_images(made: dict[str, Path]) -> None:
    for name, word in (("plain", "test samples"), ("holdout", "hold-out samples")):
        run = read_run(made[name])
        table = run.tensors["confusion"]
        found = answers(run)
        assert found is not None
        said = answers_sentence(run, found)
        assert word in said
        assert f"{np.trace(table):,} of {table.sum():,}" in said

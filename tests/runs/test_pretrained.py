"""Runs as people publish them: config.json, model.safetensors and a model card, and back."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_runs import answers_of, drawn_run, same_confidence, samples
from run_files import rewrite
from safetensors.torch import load_file, save_file

import vmcr2
from vmcr2.data import Preparation, open_data
from vmcr2.objectives import OBJECTIVES
from vmcr2.report import read_run
from vmcr2.runs import Run, RunFolder, UserError, evaluate_run, from_pretrained, load_run, read_record

FILES = {"config.json", "model.safetensors", "README.md", "kept_samples.safetensors"}
NETWORKS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 28, 28), {"model": "mnist-cnn", "image_size": 32, "objective": "ce"}),
    ((3, 40, 40), {"model": "resnet18", "image_size": 32, "mean": (0.5,) * 3, "std": (0.2,) * 3}),
    ((3, 8, 8), {"model": "preact18", "image_size": 8, "objective": "mcr2"}),
    ((5,), {"model": "mlp", "objective": "ce+vmcr2"}),
]


def same_answers(one: Run, two: Run, x: torch.Tensor) -> bool:
    return all(torch.equal(a, b) for a, b in zip(answers_of(one, x), answers_of(two, x), strict=True))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    drawn_run(tmp_path / "none", (1, 8, 8), hidden=(16,)).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_trained_run_comes_back_whole(objective: str, finished: Callable[[str], Run], tmp_path: Path) -> None:
    run, images = finished(objective), open_data("digits").test().images
    run.save_pretrained(tmp_path / "new" / "saved")
    moved = tmp_path / "moved"
    shutil.move(tmp_path / "new" / "saved", moved)
    assert {path.name for path in moved.iterdir()} == FILES
    torch.manual_seed(7)
    before = torch.get_rng_state()
    for again in (vmcr2.from_pretrained(moved, device="cpu"), load_run(moved, device="cpu")):
        assert torch.equal(torch.get_rng_state(), before)
        assert same_answers(again, run, images)
        assert again.predict(images[:50], refuse=0.05) == run.predict(images[:50], refuse=0.05)
        assert (again.readout, again.class_names, again.summary) == (run.readout, run.class_names, run.summary)
        assert (again.config, again.form, again.folder) == (run.config, run.form, moved)
        assert same_confidence(again.confidence, run.confidence)
        state = run.objective.state_dict()
        assert all(torch.equal(value, state[name]) for name, value in again.objective.state_dict().items())
        ours, theirs = again.neighbors(images[:4], 3), run.neighbors(images[:4], 3)
        assert torch.equal(ours.cosines, theirs.cosines)
        assert ours.pictures is not None
        assert torch.equal(ours.pictures, theirs.pictures)  # type: ignore[arg-type]


@pytest.mark.parametrize(("shape", "settings"), NETWORKS, ids=[own["model"] for _, own in NETWORKS])
@pytest.mark.parametrize("calibrated", [True, False])
def test_every_network(tmp_path: Path, shape: tuple[int, ...], settings: dict[str, Any], calibrated: bool) -> None:
    run = drawn_run(tmp_path / "none", shape, calibrated=calibrated, **settings)
    run.save_pretrained(tmp_path / "saved")
    again = Run.from_pretrained(tmp_path / "saved", device="cpu")
    assert same_answers(again, run, samples(shape, 6, seed=3))
    assert same_confidence(again.confidence, run.confidence)
    assert (again.confidence is not None) is calibrated
    kept = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert (kept["model_type"], kept["architectures"]) == ("vmcr2", [type(run.model).__name__])
    assert kept["settings"]["model"] == settings["model"]


def test_rows_are_prepared_as_before(tmp_path: Path) -> None:
    table = {"age": [20, 40, None, 60], "colour": ["red", None, "red", "blue"]}
    preparation = Preparation.fit(table)
    run = drawn_run(tmp_path / "none", (len(preparation.columns),), model="mlp", preparation=preparation)
    run.save_pretrained(tmp_path / "saved")
    again = from_pretrained(tmp_path / "saved", device="cpu")
    assert again.form == run.form
    assert torch.equal(again.predict_proba(table), run.predict_proba(table))
    assert "tabular-classification" in (tmp_path / "saved" / "README.md").read_text()


def test_added_classes_and_a_new_calibration_go_along(finished: Callable[[str], Run], tmp_path: Path) -> None:
    images = open_data("digits").test().images
    run = finished("ce").add_class("new", samples((1, 8, 8), 8))
    run = run.calibrate(images[:90], open_data("digits").test().labels[:90])
    run.save_pretrained(tmp_path / "saved")
    again = from_pretrained(tmp_path / "saved", device="cpu")
    assert (again.added, again.class_names[-1], again.readout) == (("new",), "new", "subspace")
    assert same_answers(again, run, images)
    assert same_confidence(again.confidence, run.confidence)
    twice = again.add_class("newer", samples((1, 8, 8), 8, seed=4))
    assert twice.class_names[-2:] == ("new", "newer")
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "Added without training, and not measured: new" in card
    assert "model-index" not in card, "the accuracy was measured without the new class"


def test_private_things_stay_at_home(finished: Callable[[str], Run], tmp_path: Path) -> None:
    run = finished("vmcr2")
    flat = run.config.flat() | {"data_path": "/home/anna/secret/digits", "start_from": "/home/anna/first"}
    own = replace(run, config=vmcr2.Config.from_flat(flat))
    own.save_pretrained(tmp_path / "saved", kept_samples=False)
    assert {path.name for path in (tmp_path / "saved").iterdir()} == FILES - {"kept_samples.safetensors"}
    assert not any(b"anna" in path.read_bytes() for path in (tmp_path / "saved").iterdir())
    again = from_pretrained(tmp_path / "saved", device="cpu")
    assert (again.config.data.path, again.config.run.start_from) == ("digits", "first")
    with pytest.raises(UserError, match="keeps no training samples"):
        again.neighbors(open_data("digits").test().images[:1])
    assert "kept_samples" not in (tmp_path / "saved" / "README.md").read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    run = drawn_run(tmp_path / "none", (1, 8, 8), hidden=(16,))
    for name in ("file", "folder/notes.txt", "clone/.git/HEAD", "clone/.gitattributes"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="is a file: name a new or an empty folder"):
        run.save_pretrained(tmp_path / "file")
    with pytest.raises(UserError, match="is not empty, and nothing is overwritten"):
        run.save_pretrained(tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["notes.txt"]
    run.save_pretrained(tmp_path / "clone")
    assert (tmp_path / "clone/.git/HEAD").read_text() == "mine"
    assert from_pretrained(tmp_path / "clone", device="cpu").class_names == run.class_names


def test_a_network_of_ones_own_is_imported_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "published_net.py").write_text("from torch import nn\ndef make():\n    return nn.Flatten()\n")
    monkeypatch.chdir(tmp_path / "here")
    run = drawn_run(tmp_path / "none", (1, 8, 8), model="published_net:make", image_size=8)
    assert not run.classifier.bases.is_contiguous(), "another layout than that of a file must not change an answer"
    run.save_pretrained(tmp_path / "saved")
    assert same_answers(from_pretrained(tmp_path / "saved", device="cpu"), run, samples((1, 8, 8), 3))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "published_net")
    with pytest.raises(UserError, match=r"there is no module 'published_net' in .* start in the folder that has it"):
        from_pretrained(tmp_path / "saved", device="cpu")


def test_which_function_reads_what(finished: Callable[[str], Run], saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is a run's own folder: use vmcr2\.load_run"):
        from_pretrained(finished("ce").folder)
    with pytest.raises(UserError, match=r"was written by run\.save_pretrained, .* needs the run's own folder"):
        evaluate_run(saved)
    with pytest.raises(UserError, match=r"was written by run\.save_pretrained"):
        read_run(saved)
    with pytest.raises(UserError, match=r"there is no folder nobody/model: .*snapshot_download"):
        from_pretrained("nobody/model")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"has no config\.json: it was not written by run\.save_pretrained"):
        from_pretrained(tmp_path / "empty")
    assert RunFolder(saved).is_pretrained
    assert not RunFolder(finished("ce").folder).is_pretrained


def changed(saved: Path, **values: Any) -> None:
    rewrite(saved / "config.json", **values)


def test_configurations_that_cannot_be_used(saved: Path) -> None:
    whole = read_record(saved / "config.json")
    wrong: dict[str, dict[str, Any]] = {
        "is a model of the type bert, not of vmcr2": {"model_type": "bert"},
        r"has the format 7 of vmcr2 9\.9, but this vmcr2 .* reads format 1: use that version": {
            "format": 7,
            "vmcr2_version": "9.9",
        },
        r"model\.safetensors does not fit its config\.json: size mismatch for layers": {
            "settings": whole["settings"] | {"hidden": [33]}
        },
        r"does not fit its config\.json: size mismatch for dictionary": {"class_names": ["a", "b", "c"]},
        r"the subspaces of 5 classes with 12 features are 5×12×r, and it has 4×12×3": {
            "class_names": [*"abcde"],
            "added_classes": ["e"],
        },
        r"config\.json cannot be used: it has future=1, a setting that this vmcr2 does not know": {
            "settings": whole["settings"] | {"future": 1}
        },
        r"config\.json cannot be used": {"settings": 5},
    }
    for said, values in wrong.items():
        changed(saved, **whole | values)
        with pytest.raises(UserError, match=said) as error:
            from_pretrained(saved, device="cpu")
        assert "\n" not in str(error.value)
    lacking = {name: value for name, value in whole.items() if name != "sample_shape"}
    (saved / "config.json").write_text(json.dumps(lacking))
    with pytest.raises(UserError, match=r"config\.json has no 'sample_shape'"):
        from_pretrained(saved)
    (saved / "config.json").write_text('{"model_type":')
    with pytest.raises(UserError, match=r"config\.json is damaged: save or download the model again"):
        from_pretrained(saved)


def test_tensors_that_cannot_be_used(saved: Path) -> None:
    path = saved / "model.safetensors"
    tensors = load_file(path)
    save_file({name: value for name, value in tensors.items() if name != "subspaces.bases"}, path)
    with pytest.raises(UserError, match="with 12 features are 4×12×r, and it has none"):
        from_pretrained(saved)
    save_file({name: value for name, value in tensors.items() if name != "calibration.temperature.subspace"}, path)
    with pytest.raises(UserError, match=r"does not fit its config\.json: it has no calibration\.temperature\.subspace"):
        from_pretrained(saved)
    missing = next(name for name in tensors if name.startswith("network.") and name.endswith("weight"))
    save_file({name: value for name, value in tensors.items() if name != missing}, path)
    with pytest.raises(
        UserError, match=f"does not fit its config.json: Missing key.*{missing.removeprefix('network.')}"
    ):
        from_pretrained(saved)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=r"model\.safetensors is missing or damaged"):
        from_pretrained(saved)
    path.unlink()
    with pytest.raises(UserError, match=r"model\.safetensors is missing or damaged"):
        from_pretrained(saved)


# ---- the model card


def test_the_hub_reads_the_card(finished: Callable[[str], Run], tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    run = finished("ce")
    run.save_pretrained(tmp_path / "saved")
    card = hub.ModelCard.load(tmp_path / "saved" / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("vmcr2", "image-classification")
    assert card.data.tags == ["vmcr2", "coding-rate-reduction", "ce", "image-classification"]
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("accuracy", run.summary["readout_accuracy"])
    assert (result.dataset_name, card.data.model_name) == ("digits", run.config.title)
    assert f"{run.summary['readout_accuracy']:.4f} (360 samples)" in card.text
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9" in card.text


def test_names_cannot_break_the_card(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    run = drawn_run(tmp_path / "none", (1, 8, 8), hidden=(16,))
    names = ("<script>alert(1)</script>", "a|b\n---\n# c", "[x](http://y)", "größe \x85 \U0001f600")
    title = 'it\'s: "mine" \x85 {} #\n---'
    config = vmcr2.Config.from_flat(run.config.flat() | {"data": "pictures", "data_path": f"/x/{title}"})
    replace(run, class_names=names, config=config).save_pretrained(tmp_path / "saved")
    assert from_pretrained(tmp_path / "saved", device="cpu").class_names == names
    card = hub.ModelCard.load(tmp_path / "saved" / "README.md")
    assert card.data.library_name == "vmcr2"
    assert card.data.eval_results[0].dataset_name == 'it\'s: "mine" {} # ---'
    for shown in (r"\<script\>", r"a\|b \-\-\- \# c", r"\[x\]\(http\:\/\/y\)", "größe \U0001f600"):
        assert shown in card.text
    assert [line for line in card.text.splitlines() if line.startswith("# ")] == [
        r"# it\'s\: \"mine\" \{\} \# \-\-\-\-vmcr2"
    ]

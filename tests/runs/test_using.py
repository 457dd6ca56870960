"""A trained run in use: names, probabilities, refusal, neighbours, and inputs of every kind."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digits_trainer import quick
from PIL import Image
from run_files import rewrite
from seeds import SEED
from torch.utils.data import DataLoader, TensorDataset

from vmcr2 import Run, fit, load_run, recipe
from vmcr2._shared import UserError
from vmcr2.data import DataError, aside_rows, from_arrays, open_data, parted
from vmcr2.inference import calibration_error

SOME: dict[str, Any] = {"epochs": 20, "hidden": (64,), "dim": 64, "device": "cpu", "seed": SEED, "eval_every": 0}


@pytest.fixture(scope="module", params=["mcr2", "ce", "ce+mcr2"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = recipe("digits", objective=request.param, lr={"mcr2": 0.03}.get(request.param, 0.3), **SOME)
    return load_run(fit(config, out=tmp_path_factory.mktemp("using") / "run").folder, device="cpu")


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return open_data("digits").test().images


@pytest.fixture(scope="module")
def labels() -> torch.Tensor:
    return open_data("digits").test().labels


def test_names_by_default_and_numbers_on_request(run: Run, images: torch.Tensor, labels: torch.Tensor) -> None:
    numbers = run.predict(images, labels=True)
    assert numbers.dtype == torch.int64
    assert run.predict(images) == [run.class_names[label] for label in numbers.tolist()]
    assert (numbers == labels).double().mean().item() == run.summary["readout_accuracy"] > 0.9
    assert torch.equal(run.answers(images).labels, numbers)


def test_the_likeliest_classes_of_each(run: Run, images: torch.Tensor) -> None:
    order = run.predict_proba(images).argsort(dim=1, descending=True)
    numbers = run.predict(images, labels=True, top=3)
    assert torch.equal(numbers, order[:, :3])
    assert run.predict(images, top=3) == [[run.class_names[label] for label in row] for row in numbers.tolist()]
    found = run.top_answers(images, 3)
    assert torch.allclose(found.probabilities, run.predict_proba(images).gather(1, numbers), atol=1e-6)
    foreign = run.predict(images, refuse=0.3, top=2)
    refused = [name is None for name in run.predict(images, refuse=0.3)]
    assert [row == [None, None] for row in foreign] == refused
    assert any(refused)
    assert run.predict(images[:1], top=50, labels=True).shape == (1, 10)
    with pytest.raises(UserError, match="at least 1, got 0"):
        run.predict(images[:1], top=0)


def test_probabilities_are_calibrated_on_what_was_set_aside(
    run: Run, images: torch.Tensor, labels: torch.Tensor
) -> None:
    """Of 8 seeds and three objectives: the error is at most 0.028, and at least 0.76 for residuals at T = 1."""
    assert run.summary["calibration_samples"] == 143
    assert run.summary["train_images"] == 1437 - 143
    assert run.confidence is not None
    assert run.confidence.origin == "set aside from training"
    probabilities = run.predict_proba(images)
    assert torch.allclose(probabilities.sum(1), torch.ones(360), atol=1e-5)
    assert torch.equal(probabilities.argmax(1), run.predict(images, labels=True))
    error = calibration_error(probabilities, labels)
    assert error == pytest.approx(run.summary["calibration_error"], abs=1e-6)
    assert error < 0.08
    if run.readout == "subspace":
        raw = torch.softmax(-run.answers(images).residuals, dim=1)
        assert calibration_error(raw, labels) > 0.2


def test_refusal_keeps_its_rate_and_finds_noise(run: Run, images: torch.Tensor) -> None:
    """Of 8 seeds and three objectives: 0.058 to 0.117 of known digits are refused at 0.05, 0.26 to 0.36 at 0.3; of 200
    pictures of noise at least 186, and 106 by cross-entropy."""
    refused = [sum(name is None for name in run.predict(images, refuse=rate)) / 360 for rate in (0.05, 0.3)]
    assert refused[0] < 0.2
    assert refused[0] < refused[1] < 0.5
    numbers = run.predict(images, labels=True, refuse=0.3)
    assert torch.equal(numbers == -1, run.novelty(images).double() > run.threshold(0.3))
    if run.config.objective.name != "ce":
        noise = torch.randint(0, 256, (200, 1, 8, 8), generator=torch.Generator().manual_seed(SEED)).to(torch.uint8)
        assert sum(name is None for name in run.predict(noise, refuse=0.05)) > 100


def test_all_kinds_of_inputs_agree(run: Run, images: torch.Tensor, tmp_path: Path) -> None:
    few = images[:7]
    expected = run.features(few)
    for at, pixels in enumerate(few[:, 0].numpy()):
        Image.fromarray(pixels).save(tmp_path / f"{at}.png")
    data = TensorDataset(few, torch.zeros(7))
    kinds: list[Any] = [
        few.numpy(),
        few[:, 0].numpy(),
        tmp_path,
        sorted(tmp_path.iterdir()),
        [Image.open(path) for path in sorted(tmp_path.iterdir())],
        DataLoader(data, batch_size=3),
        DataLoader(few, batch_size=4),  # type: ignore[arg-type]
        DataLoader([{"image": one / 255, "label": 0} for one in few], batch_size=4),  # type: ignore[arg-type]
    ]
    for kind in kinds:
        assert torch.allclose(run.features(kind), expected, atol=1e-6)
    one = run.predict(Image.open(tmp_path / "3.png"))
    assert one == run.predict(few)[3:4]


def test_a_loader_s_lists_of_samples_are_all_answered(run: Run, images: torch.Tensor, tmp_path: Path) -> None:
    """Paths, and what a person's own collate_fn leaves alone, come as lists: the first sample is not all of them."""
    few = images[:5]
    for at, pixels in enumerate(few[:, 0].numpy()):
        Image.fromarray(pixels).save(tmp_path / f"{at}.png")
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    pictures = [Image.open(path) for path in paths]
    expected = run.features(few)
    samples: list[list[Any]] = [paths, pictures, list(few), [{"image": one} for one in pictures]]
    for kind in samples:
        loader = DataLoader(kind, batch_size=2, collate_fn=list)  # type: ignore[arg-type]
        assert torch.allclose(run.features(loader), expected, atol=1e-6)
        pairs = DataLoader(
            [(one, 0) for one in kind],  # type: ignore[arg-type]
            batch_size=2,
            collate_fn=lambda batch: tuple(zip(*batch, strict=True)),
        )
        assert torch.allclose(run.features(pairs), expected, atol=1e-6)
    assert torch.allclose(run.features(DataLoader(paths, batch_size=2)), expected, atol=1e-6)  # type: ignore[arg-type]
    assert torch.allclose(run.features(DataLoader(TensorDataset(few), batch_size=None)), expected, atol=1e-6)


def test_samples_that_come_one_by_one_go_through_the_network_together(
    run: Run, images: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    hook = run.model.register_forward_pre_hook(lambda module, given: sizes.append(len(given[0])))
    pictures = [Image.fromarray(pixels) for pixels in images[:50, 0].numpy()]
    try:
        expected = run.features(images[:50])
        for given in (pictures, list(images[:50].numpy()), DataLoader(TensorDataset(images[:50]), batch_size=1)):
            sizes.clear()
            assert torch.allclose(run.features(given), expected, atol=1e-6)
            assert sizes == [50]
        monkeypatch.setattr("vmcr2.runs._inputs._TOGETHER", 20)
        sizes.clear()
        assert torch.allclose(run.features(pictures), expected, atol=1e-6)
        assert sizes == [20, 20, 10]  # in bounded memory
    finally:
        hook.remove()


def test_a_loader_of_dicts_says_where_pictures_must_be(run: Run, images: torch.Tensor) -> None:
    loader = DataLoader([{"pixels": one, "label": 0} for one in images[:2]])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="got a dict with pixels, label, and the pictures must be under 'image'"):
        run.predict(loader)


@pytest.mark.parametrize("given", [torch.randn(2, 1, 8, 8), np.zeros((2, 9, 9), dtype=np.uint8), [], [{"a": 1}]])
def test_what_it_was_not_trained_on_is_one_sentence(run: Run, given: Any) -> None:
    with pytest.raises(UserError) as caught:
        run.predict(given)
    assert "\n" not in str(caught.value)


def test_an_empty_loader_is_said(run: Run) -> None:
    class Nothing(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(())

    with pytest.raises(UserError, match="there are no samples to look at"):
        run.predict(DataLoader(Nothing()))


def test_the_nearest_of_a_training_sample_is_itself(run: Run) -> None:
    train = open_data("digits").train()  # with what was set aside: places are those in the person's own training set
    asked = (~aside_rows(train.labels, 0.1, 10)).nonzero()[:50, 0]
    found = run.neighbors(train.images[asked], count=3)
    assert found.cosines.shape == found.labels.shape == found.places.shape == (50, 3)
    assert torch.equal(found.places[:, 0], asked)
    assert (found.cosines[:, 0] > 0.999).all()
    assert (found.cosines.diff(dim=1) <= 0).all()
    assert torch.equal(found.labels, train.labels[found.places])
    assert found.names[4] == [run.class_names[label] for label in found.labels[4].tolist()]
    assert found.pictures is not None
    assert torch.equal(found.pictures, train.images[found.places])
    with pytest.raises(UserError, match="count must be at least 1"):
        run.neighbors(train.images[:1], count=0)


def test_a_run_that_knows_nothing_of_its_confidence(images: torch.Tensor, labels: torch.Tensor, tmp_path: Path) -> None:
    run = fit(quick("mcr2", calibration_share=0.0, kept_samples=0, epochs=10), out=tmp_path / "run")
    for ask in (lambda: run.predict_proba(images), lambda: run.predict(images, refuse=0.05)):
        with pytest.raises(UserError, match=r"is not calibrated: .* run\.calibrate\(inputs, labels\)"):
            ask()
    assert run.novelty(images).shape == (360,)
    with pytest.raises(UserError, match=r"keeps no training samples \(kept_samples\)"):
        run.neighbors(images[:1])
    assert not (tmp_path / "run" / "calibration.safetensors").exists()
    again = run.calibrate(images[:200], labels[:200])
    named = run.calibrate(images[:200], [str(label) for label in labels[:200].tolist()])
    assert torch.equal(again.predict_proba(images), named.predict_proba(images))
    assert calibration_error(again.predict_proba(images[200:]), labels[200:]) < 0.15
    for label in ("ten", 7.6, None, True, 10):
        with pytest.raises(UserError, match=f"has no class {label!r}: its classes are 0, 1"):
            run.calibrate(images[:1], [label])
    with pytest.raises(UserError, match="3 samples but 2 labels"):
        run.calibrate(images[:3], [0, 1])


def test_kept_samples_are_few_and_of_all_classes(tmp_path: Path) -> None:
    kept = fit(quick("mcr2", epochs=1, kept_samples=50), out=tmp_path / "run").kept
    assert kept.features.dtype == torch.float16
    assert kept.labels.bincount().tolist() == [5] * 10


def test_a_hold_out_serves_for_calibration_too(tmp_path: Path) -> None:
    run = fit(recipe("digits", objective="mcr2", holdout=200, **SOME | {"epochs": 2}), out=tmp_path / "run")
    assert run.summary["train_images"] == 1237
    assert run.summary["calibration_samples"] == 200
    assert "calibration_error" not in run.summary  # it was fitted to these samples
    assert run.confidence is not None
    assert run.confidence.origin == "the hold-out"


def test_every_seed_sets_the_same_aside_and_two_of_a_class_stay() -> None:
    split = open_data("digits").train()
    train, aside = parted(split, aside_rows(split.labels, 0.1, 10))
    assert (len(train.labels), len(aside.labels)) == (1294, 143)
    assert aside.labels.bincount().min() >= 12
    few = torch.tensor([0] * 100 + [1, 1] + [2, 2])
    held = aside_rows(few, 0.5, 3)
    assert held.sum() >= 10
    assert few[~held].bincount().tolist()[1:] == [2, 2]
    assert not aside_rows(few, 0.05, 3).any()  # five samples say nothing
    assert not aside_rows(few, 0.0, 3).any()


def test_what_was_set_aside_at_the_start_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory decides once: what earlier epochs have trained on must not be called unseen after a resume."""
    heard: list[str] = []

    class Ears:
        def note(self, text: str) -> None:
            heard.append(text)

        def epoch(self, record: dict[str, Any]) -> bool:
            raise RuntimeError("stop")

    monkeypatch.setattr("vmcr2.data._holdout.free_memory", lambda: 0.0)
    with pytest.raises(RuntimeError, match="stop"):
        fit(quick("ce"), out=tmp_path / "run", callbacks=[Ears()])
    assert "do not fit into memory twice" in heard[0]
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run = fit(quick("ce"), out=tmp_path / "run", resume=True)
    assert (run.summary["train_images"], run.summary["calibration_samples"]) == (1437, 0)


def test_too_few_samples_are_said(tmp_path: Path) -> None:
    heard: list[str] = []
    train = open_data("digits").train()
    source = from_arrays(train.images[:60], train.labels[:60])

    class Ears:
        def note(self, text: str) -> None:
            heard.append(text)

    config = recipe("auto", data=source, epochs=2, device="cpu")
    run = fit(config, source=source, out=tmp_path / "run", callbacks=[Ears()])
    assert "no samples are set aside to calibrate on: 48 training samples of 10 classes are too few" in heard
    assert run.confidence is None


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run on a table of numbers and words, and the table without its labels."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(SEED)
    rows = [(f"{rng.normal(3 * (at % 2)):.3f}", ["red", "blue"][at % 2], ["low", "high"][at % 2]) for at in range(200)]
    for name, columns in (("things.csv", 3), ("new.csv", 2)):
        with (folder / name).open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerows([("size", "colour", "kind")[:columns], *(row[:columns] for row in rows)])
    config = recipe("auto", data=folder / "things.csv", label="kind", epochs=10, device="cpu", seed=SEED)
    return fit(config, out=folder / "run"), folder / "new.csv"


def test_rows_of_a_table_in_every_form(table: tuple[Run, Path]) -> None:
    run, path = table
    with path.open() as stream:
        rows = list(csv.DictReader(stream))
    expected = run.predict(rows)
    assert sum(name == ["low", "high"][at % 2] for at, name in enumerate(expected)) > 190
    columns = {name: [row[name] for row in rows] for name in ("colour", "size")}  # another order
    pandas = pytest.importorskip("pandas")
    for given in (path, str(path), columns, pandas.DataFrame(rows)):
        assert run.predict(given) == expected
    assert run.predict({**columns, "more": [1] * 200}) == expected  # a column that training did not have
    assert run.predict(rows[0]) == run.predict({"size": rows[0]["size"], "colour": "red"}) == expected[:1]  # one row
    for collate in (None, list):
        assert run.predict(DataLoader(rows, batch_size=64, collate_fn=collate)) == expected  # type: ignore[arg-type]
    pairs = DataLoader([(row, 0) for row in rows], batch_size=run.form.shape[0])  # type: ignore[arg-type]
    assert run.predict(pairs) == expected
    assert torch.equal(run.features_of(run.prepare(rows)), run.features(rows))
    assert run.predict_proba(rows).shape == (200, 2)
    assert run.neighbors(rows[:1]).pictures is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"size": 1}], "the rows have no column colour"),
        ([], "the list is empty"),
        ([{"size": 1, "colour": "red"}, {"size": 2}], "row 2 has no column colour: give it, or None"),
        (torch.zeros(2, 9), "the rows have no column size"),
        ([{"size": "big", "colour": "red"}], "has the value 'big' in row 1, but numbers"),
        ({"size": 1, "colour": ["red", "blue"]}, r"some columns have one value and no list \(size\)"),
    ],
)
def test_rows_that_do_not_fit_are_said(table: tuple[Run, Path], given: Any, said: str) -> None:
    with pytest.raises((DataError, UserError), match=said):
        table[0].predict(given)


def test_a_table_s_file_that_does_not_fit(table: tuple[Run, Path], tmp_path: Path) -> None:
    (tmp_path / "less.csv").write_text("size\n1\n2\n")
    with pytest.raises(DataError, match="no column colour"):
        table[0].predict(tmp_path / "less.csv")
    (tmp_path / "x.png").write_text("")
    with pytest.raises(DataError, match=r"x\.png is no table that can be read"):
        table[0].predict(tmp_path / "x.png")


def test_rows_made_in_python_and_files_of_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED)
    labels = np.arange(120) % 3
    rows = rng.normal(size=(120, 4)) + 4 * np.eye(4)[labels]
    source = from_arrays(rows, labels)
    config = recipe("auto", data=source, epochs=10, device="cpu", seed=SEED)
    run = fit(config, source=source, out=tmp_path / "run")
    expected = run.predict(rows)
    np.save(tmp_path / "rows.npy", rows)
    np.savez(tmp_path / "rows.npz", x=rows, other=labels)
    assert run.predict(tmp_path / "rows.npy") == run.predict(tmp_path / "rows.npz") == expected
    tensor = torch.from_numpy(rows)
    loader = DataLoader(TensorDataset(tensor, torch.zeros(120)), batch_size=50)
    assert run.predict(tensor) == run.predict(tensor.float()) == run.predict(loader) == expected
    gap = tensor.clone()
    gap[0, 3] = torch.nan  # a missing value, which is filled
    assert run.predict(gap)[1:] == expected[1:]
    assert sum(int(name) == label for name, label in zip(expected, labels, strict=True)) > 110


def test_runs_that_cannot_be_used_are_one_sentence(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    text = manifest.read_text()
    rewrite(manifest, format=7)
    with pytest.raises(UserError, match=r"has run-folder format 7, .* use the version named in its manifest\.json"):
        load_run(tmp_path / "run")
    manifest.write_text(text)
    (tmp_path / "run" / "calibration.safetensors").write_bytes(b"no")
    with pytest.raises(UserError, match=r"calibration\.safetensors is missing or damaged"):
        load_run(tmp_path / "run")
    (tmp_path / "run" / "calibration.safetensors").unlink()
    config = tmp_path / "run" / "config.json"
    settings = config.read_text()
    rewrite(config, of_tomorrow=1)
    rewrite(manifest, vmcr2="9.1.0")
    with pytest.raises(UserError, match=r"of_tomorrow=1, .* does not know \(vmcr2 9\.1\.0 wrote it, and this is"):
        load_run(tmp_path / "run")
    config.write_text(settings)
    (tmp_path / "run" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors is missing"):
        load_run(tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(UserError, match=r"has no summary\.json: the run did not finish\. `vmcr2 train --resume --out "):
        load_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"nowhere is not a run folder: it does not exist$"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"is not a run folder: it is a file$"):
        load_run(manifest)

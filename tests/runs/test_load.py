"""A run from its folder alone: what it learned, and what it says of images that it has never seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from digits_trainer import quick
from run_files import rewrite

import vmcr2
from vmcr2.data import Source, Split, open_data
from vmcr2.objectives import OBJECTIVES
from vmcr2.runs import Run, UserError, fit, load_run, read_record


@pytest.fixture(params=OBJECTIVES)
def made(request: pytest.FixtureRequest, finished: Callable[[str], Run]) -> Run:
    return finished(request.param)


def test_it_is_the_run_that_was_made(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    test = open_data("digits").test()
    monkeypatch.setattr("vmcr2.runs._fit.open_settings", None)  # no data are needed
    torch.manual_seed(7)
    before = torch.get_rng_state()
    run = vmcr2.load_run(made.folder, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert (run.config, run.summary) == (made.config, read_record(made.folder / "summary.json"))
    assert torch.equal(run.features(test.images), made.features(test.images))
    predicted = run.predict(test.images, labels=True)
    assert run.predict(test.images) == made.predict(test.images) == [str(label) for label in predicted.tolist()]
    by = "test_accuracy" if run.config.objective.name in ("vmcr2", "mcr2") else "head_accuracy"
    assert (predicted == test.labels).double().mean().item() == run.summary[by]
    state = made.objective.state_dict()
    assert run.objective.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in run.objective.state_dict().items())


def test_weights_that_do_not_fit_are_said(made: Run, tmp_path: Path) -> None:
    for path in made.folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    rewrite(tmp_path / "config.json", hidden=[33])
    with pytest.raises(UserError, match=r"the weights in .* do not fit its config\.json"):
        load_run(tmp_path, device="cpu")


def test_a_folder_that_is_not_a_whole_run(made: Run, tmp_path: Path) -> None:
    (tmp_path / "sweep" / "runs").mkdir(parents=True)
    with pytest.raises(UserError, match=r"is a folder of runs: name one of .*sweep/runs/\*"):
        load_run(tmp_path / "sweep")
    kept = ("config.json", "manifest.json", "metrics.jsonl", "summary.json")
    for name in kept:
        (tmp_path / name).write_bytes((made.folder / name).read_bytes())
    with pytest.raises(UserError, match=r"model\.safetensors is missing: a sweep keeps .* with --keep-weights"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        load_run(tmp_path)


def test_as_many_classes_as_its_own_data_had(tmp_path: Path) -> None:
    class Three:
        """Of digits; packed files may have fewer classes than were published."""

        def __init__(self) -> None:
            self._source = open_data("digits")
            self.num_classes = 3
            self.class_names = ("0", "1", "2")

        def __getattr__(self, name: str) -> Any:
            return getattr(self._source, name)

        def _some(self, split: Split) -> Split:
            return Split(split.images[split.labels < 3], split.labels[split.labels < 3])

        def train(self) -> Split:
            return self._some(self._source.train())

        def test(self) -> Split:
            return self._some(self._source.test())

    source = cast(Source, Three())
    made = fit(quick(epochs=2), out=tmp_path / "run", source=source)
    assert load_run(made.folder, device="cpu").predict(source.test().images) == made.predict(source.test().images)


def test_a_name_is_not_a_configuration() -> None:
    with pytest.raises(TypeError, match=r"fit takes a Config, got 'digits': vmcr2\.recipe\('digits'\)"):
        fit("digits")  # type: ignore[arg-type]


def test_a_run_is_announced_before_it_latches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Listener:
        def started(self, *_: object) -> None:
            said.append("started")

        def epoch(self, record: dict[str, Any]) -> None:
            said.append("epoch")

        def note(self, text: str) -> None:
            said.append(text)

    latch = vmcr2.VMCR2Loss.latch
    monkeypatch.setattr(vmcr2.VMCR2Loss, "latch", lambda *a, **k: (said.append("latch"), latch(*a, **k))[0])
    fit(quick(epochs=1, eval_every=0), out=tmp_path / "run", callbacks=[Listener()])
    assert said == ["started", "latch", "epoch"], "latching on a large set takes a while"

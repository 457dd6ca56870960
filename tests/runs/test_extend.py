"""More epochs for a run: what it ends as, what is kept, what is refused, and that a kill at any moment is harmless."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from command_line import in_process
from digits_trainer import quick
from run_files import metrics, same, timeless, weights, without_clocks

from vmcr2.runs import Callback, Config, RunFolder, UserError, _extend, _records, fit, load_run, read_record
from vmcr2.training import learning_rate


class Notes(Callback):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.first: int | None = None

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        self.first = first_epoch

    def note(self, text: str) -> None:
        self.said.append(text)


class Killed(BaseException):
    """Stands for a kill."""


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- what it ends as


@pytest.mark.parametrize(
    ("objective", "changes"),
    [("vmcr2", {"latch_every": 3}), ("vmcr2", {"latch_every": 2}), ("mcr2", {"average": 0.9}), ("ce", {})],
)
def test_at_a_constant_rate_it_is_the_run_of_all_epochs(
    objective: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    """Bit for bit: also the latching that a run leaves out after its last epoch."""
    config = quick(objective, schedule="constant", eval_every=1, **changes)
    whole = fit(config, out=tmp_path / "whole")
    short = fit(config.replace(epochs=3), out=tmp_path / "run")
    notes = Notes()
    extended = fit(config, out=tmp_path / "run", resume=True, callbacks=[notes])
    assert (notes.first, notes.said) == (3, ["3 epochs are done, 6 are asked for"])
    assert same(weights(extended.folder), weights(whole.folder))
    assert timeless(extended) == timeless(whole)
    assert RunFolder(extended.folder).read_config() == config
    assert read_record(extended.folder / "summary-3-epochs.json") == short.summary
    assert load_run(extended.folder).summary == extended.summary
    # the line of epoch 3 is that of a run's last epoch, which is measured otherwise
    assert [line["epoch"] for line in metrics(extended.folder)] == [1, 2, 3, 4, 5, 6]
    assert without_clocks(extended.folder)[3:] == without_clocks(whole.folder)[3:]


def test_the_schedule_is_that_of_the_new_number_and_this_is_said(tmp_path: Path) -> None:
    config = quick("ce", epochs=4, schedule="cosine")
    fit(config, out=tmp_path / "run")
    notes, longer = Notes(), config.replace(epochs=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(longer, out=tmp_path / "run", resume=True, callbacks=[notes])
    old, new = learning_rate(config.optim, 11, 3), learning_rate(longer.optim, 12, 3)
    assert old < 0.1 * new
    (said,) = notes.said
    assert f"the cosine schedule is now that of 8 epochs, so the learning rate goes from {old:.2g} to {new:.2g}" in said
    rates = [line["lr"] for line in metrics(tmp_path / "run")]
    expected = [learning_rate((config if n <= 4 else longer).optim, 3 * n - 1, 3) for n in range(1, 9)]
    assert rates == pytest.approx(expected, rel=1e-6)


def test_a_run_can_be_extended_again_and_again(tmp_path: Path) -> None:
    config = quick("ce", epochs=1)
    for epochs in (1, 2, 4):
        assert fit(config.replace(epochs=epochs), out=tmp_path / "run", resume=True).summary["epochs"] == epochs
    assert {path.name for path in (tmp_path / "run").glob("summary*")} == {
        "summary.json",
        "summary-1-epochs.json",
        "summary-2-epochs.json",
    }


def test_a_run_that_did_not_finish_goes_on_to_another_number(tmp_path: Path) -> None:
    class Stop:
        def epoch(self, record: dict[str, Any]) -> None:
            if record["epoch"] == 3:
                raise ValueError("enough")

    config = quick("ce", schedule="constant")
    whole = fit(config.replace(epochs=4), out=tmp_path / "whole")
    with pytest.raises(ValueError, match="enough"):
        fit(config, out=tmp_path / "run", callbacks=[Stop()])
    with pytest.raises(UserError, match="has done 3 epochs already: give --epochs above that"):
        fit(config.replace(epochs=3), out=tmp_path / "run", resume=True)
    run = fit(config.replace(epochs=4), out=tmp_path / "run", resume=True)  # also fewer than planned
    assert same(weights(run.folder), weights(whole.folder))


def test_patience_counts_from_where_a_run_goes_on(tmp_path: Path) -> None:
    """A run that stopped early would else stop again at its next measurement."""
    config = quick("ce", epochs=60, eval_every=0, holdout=1200, batch_size=79, patience=6)
    first = fit(config, out=tmp_path / "run")
    end = first.summary["epochs"]
    assert first.summary["stopped_by"] == "patience"
    longer = fit(config.replace(epochs=end + 40), out=tmp_path / "run", resume=True)
    assert end + 6 <= longer.summary["epochs"] <= end + 40
    assert longer.summary["readout_accuracy"] >= first.summary["readout_accuracy"], "the best of both parts"
    assert (tmp_path / "run" / f"summary-{end}-epochs.json").exists()


# ---- kills


@pytest.mark.parametrize("moment", ["summary-3-epochs.json", "config.json", "unlink", "metrics.jsonl", "checkpoint"])
def test_a_kill_at_any_moment_of_an_extension(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after a file was written: before config.json nothing has happened, after it a plain --resume goes on."""
    config = quick("vmcr2", schedule="constant", latch_every=3, eval_every=0)
    whole = fit(config, out=tmp_path / "whole")
    short = fit(config.replace(epochs=3), out=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")

    with monkeypatch.context() as killing:
        write, drop = _records.write_text, _extend.drop_old_summary

        def killed_after(path: Path, text: str) -> None:
            write(path, text)
            if path.name == moment:
                raise Killed

        def killed_after_unlink(*given: Any) -> None:
            drop(*given)
            if moment == "unlink":
                raise Killed

        killing.setattr(_records, "write_text", killed_after)
        killing.setattr(_extend, "drop_old_summary", killed_after_unlink)
        killing.setattr("vmcr2.runs._folder.write_text", killed_after)

        class Kill:
            def epoch(self, record: dict[str, Any]) -> None:
                if record["epoch"] == 5:
                    raise Killed

        with pytest.raises(Killed):
            fit(config, out=tmp_path / "run", resume=True, callbacks=[Kill()])
    went_on = moment != "summary-3-epochs.json"
    assert folder.read_config().optim.epochs == (6 if went_on else 3)
    resumed = fit(folder.read_config(), out=tmp_path / "run", resume=True)  # as a plain --resume does
    if not went_on:
        assert resumed.summary == short.summary
        resumed = fit(config, out=tmp_path / "run", resume=True)
    assert timeless(resumed) == timeless(whole)
    assert same(weights(resumed.folder), weights(whole.folder))
    assert read_record(tmp_path / "run" / "summary-3-epochs.json") == short.summary
    assert not list((tmp_path / "run").rglob("*.tmp"))


# ---- what is refused


def test_what_cannot_be_extended_is_left_alone(tmp_path: Path) -> None:
    config = quick("ce", epochs=3)
    folder = fit(config, out=tmp_path / "run").folder
    before = files(folder)
    for other, words in (
        (config.replace(epochs=2), "has done 3 epochs already: give --epochs above that"),
        (config.replace(epochs=9, lr=0.5), "was started with other settings"),
    ):
        with pytest.raises(UserError, match=words):
            fit(other, out=folder, resume=True)
    with pytest.raises(UserError, match="already exists"):
        fit(config.replace(epochs=9), out=folder)
    assert files(folder) == before
    (folder / "summary.json").unlink()  # killed while it was measured
    with pytest.raises(UserError, match="has ended, but is not measured yet: --resume it without --epochs first"):
        fit(config.replace(epochs=9), out=folder, resume=True)
    fit(config, out=folder, resume=True)
    shutil.rmtree(folder / "checkpoint")  # as a sweep leaves its runs
    with pytest.raises(UserError, match=r"has no checkpoint to go on from .a sweep keeps it with --keep-weights."):
        fit(config.replace(epochs=9), out=folder, resume=True)
    assert RunFolder(folder).finished


# ---- the command


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_process("train", "--objective", "ce", "--epochs", "2", "--out", "run", "--json").code == 0
    for epochs in ("1", "2"):
        said = in_process("train", "--resume", "--out", "run", "--epochs", epochs)
        assert (said.code, said.out) == (2, "")
        assert said.err == "vmcr2: run has done 2 epochs already: give --epochs above that\n"
    said = in_process("train", "--resume", "--out", "run", "--epochs", "4", "--seed", "1")
    assert "--resume uses the settings of run: leave all other settings out" in said.err
    said = in_process("train", "--resume", "--out", "run", "--epochs", "4")
    assert (said.code, said.err) == (0, "")
    assert "2 epochs are done, 4 are asked for" in said.out
    assert "run, resumed after epoch 2\n" in said.out
    assert "was already finished" not in said.out
    assert "report: run/report.html" in said.out
    assert json.loads(Path("run/summary.json").read_text())["epochs"] == 4

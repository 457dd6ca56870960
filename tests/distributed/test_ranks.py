"""The trainer in several processes: the numbers of one process, files of one, and one decision for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from digits_trainer import RUN_FILES
from layers import LAYERS, computed
from run_files import metrics, weights
from runs_of_ranks import RUNS, STOPPED, run_of
from steps import CASES, trained

from vmcr2.distributed import ALONE, Ranks
from vmcr2.runs import Run

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")


def compare(found: dict[str, Any], expected: dict[str, Any], close: float) -> None:
    """All within ``close``. An atom and its opposite are the same atom: an eigenvector has no sign."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        own = found[name]
        if name.endswith("dictionary"):
            entries = 0 if own.ndim == 2 else 2  # an atom is a column, or a row of a class's block
            own = own * torch.where((own * value).sum(entries, keepdim=True) < 0, -1.0, 1.0).to(own.dtype)
        torch.testing.assert_close(own, value, rtol=close, atol=close, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_sees_the_whole_batch(name: str, results: dict[str, Any]) -> None:
    """Outputs, gradients, running statistics; and random numbers go on from the same state."""
    compare(results["layers"][name], computed(name, ALONE), 1e-11)
    assert torch.equal(results["layers"][name]["next draw"], computed(name, ALONE)["next draw"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_twenty_steps_of_the_loop(case: str, dtype: torch.dtype, results: dict[str, Any]) -> None:
    """Uneven shares, classes that a process lacks, noise, dropout, BatchNorm, latching, the mean of the weights."""
    close = 1e-9 if dtype == torch.float64 else 1e-4
    compare(results["steps"][f"{case}, {dtype}"], trained(case, dtype), close)


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The runs of one process, each made once."""
    made: dict[str, Run] = {}

    def of(name: str) -> Run:
        if name not in made:
            made[name] = run_of(name, tmp_path_factory.mktemp("alone") / "run")
        return made[name]

    return of


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_the_weights_of_one_process(name: str, alone: Any, results: dict[str, Any]) -> None:
    one, folder = alone(name), results["folder"] / name
    compare(weights(folder), weights(one.folder), 1e-4)
    summary = results["runs"]["summaries"][name]
    assert summary.keys() == one.summary.keys()
    for figure in ("train_delta_r", "expansion", "batch_delta_r", "within_cosine"):
        assert summary[figure] == pytest.approx(one.summary[figure], rel=1e-3), figure
    for figure in ("epochs", "calibration_samples", "best_epoch", "stopped_by", "train_images"):
        assert summary.get(figure) == one.summary.get(figure)
    lines, expected = metrics(folder), metrics(one.folder)
    assert [line["epoch"] for line in lines] == [line["epoch"] for line in expected]
    assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in expected], rel=1e-3)


def test_files_are_those_of_one_process(results: dict[str, Any]) -> None:
    folder, files = results["folder"] / "vmcr2", RUN_FILES | {"checkpoint/before.safetensors"}
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == files


def test_only_rank_0_has_callbacks(results: dict[str, Any]) -> None:
    """The results are rank 0's; a run of 7 epochs has 7 lines."""
    lines = sum(len(metrics(results["folder"] / name)) for name in RUNS)
    assert results["runs"]["told"] == lines


def test_a_signal_to_one_process_stops_all_with_a_checkpoint(alone: Any, results: dict[str, Any]) -> None:
    assert results["runs"]["stopped"] == 128 + 15
    compare(weights(results["folder"] / "stopped"), weights(alone(STOPPED).folder), 1e-4)


@pytest.mark.parametrize(("total", "count"), [(10, 1), (10, 3), (4, 4), (3, 4), (0, 2)])
def test_shares_cover_all_rows_once(total: int, count: int) -> None:
    covered: list[int] = []
    for rank in range(count):
        ranks = Ranks(active=False)
        ranks.rank, ranks.count = rank, count
        covered += range(total)[ranks.share(total)]
        assert ranks.sizes(total)[rank] == len(range(total)[ranks.share(total)])
    assert covered == list(range(total))


def test_fewer_rows_than_processes(tmp_path: Path) -> None:
    from vmcr2._shared import UserError
    from vmcr2.runs._ranks import check_batch

    ranks = Ranks(active=False)
    ranks.count = 4
    check_batch(ranks, 4)
    with pytest.raises(UserError, match="a batch has 3 rows, but there are 4 processes"):
        check_batch(ranks, 3)

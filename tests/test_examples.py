"""The examples do what their headers say, and run as scripts."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def output_of(name: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    script = ROOT / "examples" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_penalty_recovers_the_order_and_nothing_else_does(seed: int) -> None:
    example = load("system_identification")
    result = example.run(seed)
    assert result.true_order in (3, 4)
    assert result.penalised.order == result.true_order
    assert result.unpenalised.order > result.true_order + 2
    assert result.least_squares.order > result.true_order + 2
    assert result.penalised.error < 0.5 * result.least_squares.error


def test_the_hankel_matrix_of_a_random_system_has_the_rank_of_its_order() -> None:
    example = load("system_identification")
    orders = set()
    for seed in range(8):
        order, response = example.random_system(torch.Generator().manual_seed(seed))
        spectrum = torch.linalg.svdvals(response[example.ENTRY])
        assert spectrum[order] < 1e-12 * spectrum[0]
        assert spectrum[order - 1] > example.THRESHOLD * spectrum[0]
        assert torch.allclose(example.mean_antidiagonals(response[example.ENTRY]), response)
        orders.add(order)
    assert orders == {3, 4}


@pytest.mark.parametrize("seed", [0, 1])
def test_the_flow_layer_is_exact_and_reaches_the_best_likelihood(seed: int) -> None:
    flow = load("flow_layer").run(seed)
    assert flow.error < 1e-12
    assert flow.excess > 1e-3
    assert -1e-10 < flow.orthogonal - flow.optimum < 1e-8
    assert -1e-10 < flow.free - flow.optimum < 1e-8
    assert 0 < flow.truth - flow.optimum < 0.02  # 45 parameters fitted to 4000 samples: about 45/8000


def test_the_flow_likelihood_is_that_of_a_gaussian() -> None:
    example = load("flow_layer")
    factors = example.orthogonalise(torch.randn(example.DIM, example.RANK, dtype=torch.float64))
    x = torch.randn(50, example.DIM, dtype=torch.float64)
    layer = torch.eye(example.DIM, dtype=torch.float64) + factors @ factors.T
    gaussian = torch.distributions.MultivariateNormal(torch.zeros(example.DIM, dtype=torch.float64), layer @ layer.T)
    expected = -gaussian.log_prob(x).mean()  # type: ignore[no-untyped-call]
    assert torch.allclose(example.negative_log_likelihood(factors, x), expected, rtol=1e-12)


def test_system_identification_runs_as_a_script() -> None:
    rows = [line.split() for line in output_of("system_identification").splitlines() if line.split()[0].isdigit()]
    assert [row[0] for row in rows] == list("01234")
    for _seed, order, plain, free, penalised, *_errors in rows:
        assert penalised == order
        assert int(free) > int(order)
        assert int(plain) > int(order)


def test_flow_layer_runs_as_a_script() -> None:
    output = output_of("flow_layer")
    gaps = [float(gap) for gap in re.findall(r"gap (\S+)", output)]
    assert len(gaps) == 2
    assert max(map(abs, gaps)) < 1e-8
    ratio = re.search(r"ratio to variational +d x d (\d+)", output)
    assert ratio is not None
    assert int(ratio[1]) > 3  # 46 on an idle core; the test only says that it is faster, on any machine


def test_the_digits_gallery_draws_and_spares_foreign_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, ROOT / "examples" / "sklearn_digits.py"]
    options: dict[str, Any] = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run(command, encoding="utf-8", check=False, **options)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"nearest subspace (\S+), \|cosine\| within (\S+), between (\S+)", done.stdout)
    pixels, before, after = [tuple(map(float, row)) for row in rows]
    assert after[0] > 0.96
    assert after[1] / after[2] > 3
    assert max(pixels[1] / pixels[2], before[1] / before[2]) < 1.5
    picture = tmp_path / "digits-features.png"
    assert 10_000 < picture.stat().st_size < 150_000
    assert load("sklearn_digits").ours(picture)
    foreign = tmp_path / "mine.png"
    foreign.write_bytes(b"a holiday")
    done = subprocess.run([*command, foreign], encoding="utf-8", check=False, **options)
    assert done.returncode != 0
    assert "is not a picture of this example: name another file" in done.stderr
    assert foreign.read_bytes() == b"a holiday"

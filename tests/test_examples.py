"""The examples do what their headers say. Scripts run in this process: a new one would import torch again."""

from __future__ import annotations

import re
import runpy
from functools import partial
from pathlib import Path

import pytest
import torch
from example_files import EXAMPLES, load
from seeds import SEED


def run_as_script(name: str) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


def test_the_penalty_recovers_the_order_and_nothing_else_does(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 24 systems: all orders found, too large by at least 5 without the penalty, error at most 0.47 of the other."""
    run_as_script("system_identification")
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[0].isdigit()]
    assert [row[0] for row in rows] == list("01234")
    for row in rows:
        order, plain, free, penalised = map(int, row[1:5])
        assert order in (3, 4)
        assert penalised == order
        assert free > order + 2
        assert plain > order + 2
        plain_error, _, error = map(float, row[5:8])
        assert error < 0.75 * plain_error


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


def test_the_flow_layer_is_exact_and_reaches_the_best_likelihood() -> None:
    """The worst of 30 seeds: excess 5e-3, gaps 1.4e-12 and 4e-8, truth 0.004 to 0.008 above the optimum."""
    flow = load("flow_layer").run(SEED + 1)
    assert flow.error < 1e-12
    assert flow.excess > 1e-3
    assert -1e-10 < flow.orthogonal - flow.optimum < 1e-8
    assert -1e-10 < flow.free - flow.optimum < 1e-6
    assert 0 < flow.truth - flow.optimum < 0.02  # 45 parameters fitted to 4000 samples: about 45/8000


def test_the_flow_likelihood_is_that_of_a_gaussian() -> None:
    example = load("flow_layer")
    factors = example.orthogonalise(torch.randn(example.DIM, example.RANK, dtype=torch.float64))
    x = torch.randn(50, example.DIM, dtype=torch.float64)
    layer = torch.eye(example.DIM, dtype=torch.float64) + factors @ factors.T
    gaussian = torch.distributions.MultivariateNormal(torch.zeros(example.DIM, dtype=torch.float64), layer @ layer.T)
    expected = -gaussian.log_prob(x).mean()  # type: ignore[no-untyped-call]
    assert torch.allclose(example.negative_log_likelihood(factors, x), expected, rtol=1e-12)


def test_flow_layer_runs_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    run_as_script("flow_layer")
    output = capsys.readouterr().out
    gaps = [float(gap) for gap in re.findall(r"gap (\S+)", output)]
    assert len(gaps) == 2
    assert max(map(abs, gaps)) < 1e-6
    ratio = re.search(r"ratio to variational +d x d (\d+)", output)
    assert ratio is not None
    assert int(ratio[1]) > 3  # 46 on an idle core; the test only says that it is faster, on any machine


def test_the_digits_gallery_draws_and_spares_foreign_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    example = load("sklearn_digits")
    monkeypatch.setattr(example, "learn", partial(example.learn, epochs=20))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["sklearn_digits.py"])
    example.main()
    rows = re.findall(r"nearest subspace (\S+), \|cosine\| within (\S+), between (\S+)", capsys.readouterr().out)
    pixels, before, after = [tuple(map(float, row)) for row in rows]
    # of 20 seeds: accuracy at least 0.970, the ratio of cosines at least 3.2 after, at most 1.23 before
    assert after[0] > 0.95
    assert after[1] / after[2] > 2.2
    assert max(pixels[1] / pixels[2], before[1] / before[2]) < 1.5
    picture = tmp_path / "digits-features.png"
    assert 10_000 < picture.stat().st_size < 150_000
    assert example.ours(picture)
    foreign = tmp_path / "mine.png"
    foreign.write_bytes(b"a holiday")
    monkeypatch.setattr("sys.argv", ["sklearn_digits.py", str(foreign)])
    with pytest.raises(SystemExit, match="is not a picture of this example: name another file"):
        example.main()
    assert foreign.read_bytes() == b"a holiday"


def test_a_hugging_face_dataset_is_trained_on(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasets")
    assert load("hugging_face").main() > 0.95
    assert "10 classes (zero, one, two, …)" in capsys.readouterr().out

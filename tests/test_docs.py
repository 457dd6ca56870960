"""What the documents show must run, and what they point to must be there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page for place in ("*", "docs/*", "benchmarks/*", "experiments/**/*") for page in ROOT.glob(f"{place}.md")
)


def test_the_readme_s_loop_learns() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["accuracy"] > 0.95
    best = scope["vmcr2"].functional.maximal_rate_reduction(12, 3)
    assert scope["vmcr2"].rate_reduction(scope["features"], scope["labels"]).delta > 0.5 * best


def test_the_estimators_as_the_documents_show_them() -> None:
    from sklearn.datasets import load_wine
    from sklearn.model_selection import train_test_split

    X, y = load_wine(return_X_y=True)
    names = ("X_train", "X_test", "y_train", "y_test")
    scope: dict[str, Any] = dict(zip(names, train_test_split(X, y, stratify=y, random_state=0), strict=True))
    (code,) = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(code, scope)
    assert scope["model"].score(scope["X_test"], scope["y_test"]) > 0.9
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/sklearn.md").read_text(), re.DOTALL)
    scope = {}
    exec(code, scope)
    assert scope["model"].score(X, y) > 0.95


def test_predictions_as_the_documents_show_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/using.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    right = (scope["labels"] == scope["open_data"]("digits").test().labels).double().mean().item()
    assert right == scope["run"].summary["test_accuracy"] > 0.9
    assert scope["similar"].diagonal().sub(1).abs().max() < 1e-5
    assert scope["names"] == [str(label) for label in scope["labels"].tolist()]
    assert set(scope["careful"]) == {*scope["names"], None}
    assert scope["nearest"].names[0][0] == scope["names"][0]


def test_the_figures_of_calibration() -> None:
    from statistics import mean

    from experiments.calibration import PAGE, page

    result = json.loads((ROOT / "experiments/results/calibration.json").read_text())
    text = PAGE.read_text()
    assert text == page(result["runs"]), "python -m experiments.calibration --table writes it"
    refused = result["refused_over_splits"]
    assert f"Over {len(refused)} divisions of digits" in text
    assert f"exact MCR² refused {mean(refused):.3f}" in text
    assert f"(from {min(refused):.3f} to {max(refused):.3f})" in text


def test_plots_as_the_documents_show_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/report.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert (tmp_path / "recall.pdf").read_bytes().startswith(b"%PDF")
    recall = [bar.get_width() for bar in scope["figure"].axes[0].patches]
    assert len(recall) == 10
    assert recall == sorted(recall)
    for name in re.findall(r"run\.plot\.(\w+)", code):
        assert hasattr(scope["run"].plot, name)


def test_own_data_as_the_documents_show_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/own-data.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    truth = [scope["source"].class_names[j] for j in scope["source"].test().labels]
    assert sum(a == b for a, b in zip(scope["names"], truth, strict=True)) > 0.95 * len(truth)


def test_watching_as_the_documents_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over five seeds ΔR passed 20 after 16 of the 100 epochs."""
    from vmcr2.runs import RunFolder

    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/watching.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    run = scope["run"]
    assert run.summary["stopped_by"] == "callback"
    assert 4 < run.summary["epochs"] < 60
    assert run.summary["train_delta_r"] > 20
    said = capsys.readouterr().out
    assert said.startswith("runs/watched: epochs 1 to 100\n1 ")
    assert said.endswith(f"{run.summary['epochs']} {run.summary['train_delta_r']}\n")
    # every figure of a record is in the page's table
    table = page[page.index("| key |") :]
    records = RunFolder(Path("runs/watched")).read_metrics()
    named = set(re.findall(r"`(\w+)`", table))
    assert {name for record in records for name in record} - named == {"codes_trace"}


def test_the_own_network_of_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vmcr2.models import build

    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/networks.md").read_text(), re.DOTALL)
    (tmp_path / "mynet.py").write_text(code)
    network = build("mynet:make", dim=5, input_shape=(1, 8, 8))
    assert network(torch.rand(3, 1, 8, 8)).shape == (3, 5)


def test_the_figures_of_own_data() -> None:
    page, results = (ROOT / "docs/own-data.md").read_text(), ROOT / "benchmarks/results"
    packing = json.loads((results / "packing-cpu.json").read_text())
    assert f"{median(packing['per_second']['packing']):,.0f} pictures per second" in page
    assert f"{packing['packing / (cores × alone)']:.2f} of what two cores do" in page
    assert f"at most {packing['peak_mib']['main_process']:.0f} MiB" in page
    assert f"again takes {packing['opened_again_seconds']:.1f} s" in page.replace("\n", " ")
    for result in json.loads((results / "stream-cpu.json").read_text())["results"]:
        held, streamed = (row["images_per_second"] for row in result["rows"].values())
        assert f"| {held:.0f} | {streamed:.0f} | {streamed / held:.2f} |" in page


def test_the_figures_of_serving() -> None:
    from benchmarks.serve_load import END, START, gain, table

    found = json.loads((ROOT / "benchmarks/results/serve-cpu.json").read_text())
    assert f"{START}\n{table(found)}\n{END}" in (ROOT / "docs/serving.md").read_text()
    assert gain(found["results"], "resnet18") > 2, "the page says that batching pays"
    for result in found["results"]:
        assert all(set(row["statuses"]) <= {"200", "503"} for row in result["rows"])
        assert sum(result["rows"][-1]["statuses"].values()) == 1000


def anchor(heading: str) -> str:
    """What GitHub makes of a heading, of letters, digits, spaces and hyphens."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, section in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        if target.startswith("http"):
            continue
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} points to {target}"
        if section:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert section in map(anchor, headings), f"{page.name} points to {target}#{section}"


def test_the_paper_s_figures_in_the_faq() -> None:
    from vmcr2.functional import maximal_rate_reduction

    faq = (ROOT / "docs/faq.md").read_text()
    assert f"−{maximal_rate_reduction(128, 10):.1f} at d = 128" in faq
    assert f"−{maximal_rate_reduction(500, 100):.1f} at d = 500" in faq


def test_the_search_s_figures_in_the_documents() -> None:
    from statistics import mean

    from experiments.search import held_out, read

    page = "".join((ROOT / f"docs/{name}.md").read_text() for name in ("tuning", "tuning-log"))
    for study, digits in (("long", 3), ("rest", 3), ("forces", 3), ("details", 3), ("stand-in", 4)):
        for line in read(study):
            assert f"{held_out(line):.{digits}f}" in page, f"{study}: {line['called']}"
    rates: dict[tuple[str, str], list[float]] = {}
    for line in read("codes"):
        rates.setdefault((line["called"], line["variant"]), []).append(line["train_delta_r"])
    for called, values in rates.items():
        assert f"{mean(values):.1f}" in page, called


def test_the_studies_figures_in_the_documents() -> None:
    import json
    from statistics import mean, stdev

    page = (ROOT / "docs/sklearn.md").read_text()
    for name in ("label-noise", "label-noise-mnist"):
        file = ROOT / f"experiments/results/{name}.json"
        groups: dict[tuple[str, float], list[float]] = {}
        for run in json.loads(file.read_text())["runs"]:
            groups.setdefault((run["method"], run["noise"]), []).append(run["accuracy"])
        for values in groups.values():
            assert f"{mean(values):.3f} ± {stdev(values):.3f}" in page
    aurocs: dict[str, list[float]] = {}
    for run in json.loads((ROOT / "experiments/results/refusal.json").read_text())["runs"]:
        for method, value in run["auroc"].items():
            aurocs.setdefault(method, []).append(value)
    for values in aurocs.values():
        assert f"{mean(values):.3f} ± {stdev(values):.3f}" in page


def test_the_page_of_settings_is_the_code_s() -> None:
    from docs.settings import PAGE, page

    assert PAGE.read_text() == page(), "python -m docs.settings writes it"

"""Requests with rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from test_serve_pictures import sentence

from vmcr2.runs import Run
from vmcr2.serve import Limits, create_app

ROW = {"alcohol": 13.2, "ash": 2.3, "flavanoids": 2.8, "proline": 1050, "colour": "deep"}


@pytest.fixture(scope="module")
def rows(wine_run: Run) -> Iterator[TestClient]:
    with TestClient(create_app(wine_run, refuse=0, limits=Limits(samples=5))) as opened:
        yield opened


def test_rows_in_json(rows: TestClient, wine_run: Run) -> None:
    given = [ROW, {**ROW, "flavanoids": 0.6, "proline": 500}, {**ROW, "alcohol": None, "colour": "green"}]
    told = rows.post("/predict?neighbors=2", json=given)
    assert told.status_code == 200
    answers = told.json()["answers"]
    assert [one["class"] for one in answers] == wine_run.predict(given)
    assert len({one["class"] for one in answers}) > 1
    expected = wine_run.predict_proba(given).max(1).values.tolist()
    assert [one["probability"] for one in answers] == pytest.approx(expected, abs=1e-4)
    assert [near["picture"] for near in answers[0]["neighbors"]] == [None, None]
    assert "file" not in answers[0]
    alone = rows.post("/predict?neighbors=2", json=ROW).json()["answers"]
    assert alone[0]["class"] == answers[0]["class"]
    by_curl = rows.post(
        "/predict",
        content=b'[{"alcohol": 13.2, "ash": 2.3, "flavanoids": 2.8, "proline": 1050, "colour": "deep", "more": 1}]',
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert by_curl.json()["answers"][0]["class"] == answers[0]["class"]


def test_health_tells_the_columns(rows: TestClient) -> None:
    health = rows.get("/health").json()
    assert health["takes"] == "rows"
    assert {one["name"]: one["kind"] for one in health["columns"]} == {
        **dict.fromkeys(("alcohol", "ash", "flavanoids", "proline"), "number"),
        "colour": "category",
    }
    assert health["columns"][-1]["values"] == ["deep", "pale"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ([{**ROW, "ash": "grey"}], 422, "the column ash has the value 'grey' in row 1"),
        ([{"alcohol": 13.2}], 422, "the rows have no column ash, flavanoids, proline, colour"),
        ([{**ROW, "ash": [1, 2]}], 422, "the column ash has a list or an object"),
        ([{**ROW, "ash": 10**400}], 422, "a number that is too large"),
        ([{**ROW, "ash": 1e300}], 422, "far outside the training rows"),
        ([], 422, "must be a list of rows"),
        ("text", 422, "must be a list of rows"),
        ([1, 2], 422, "rows must all be objects"),
        ([ROW, [1, 2]], 422, "rows must all be objects"),
        ([[1, 2], [3]], 422, "rows must all be objects"),
        ([[13.2, 2.3, 2.8, 1050]], 422, "the rows have no column alcohol"),
        ([ROW] * 6, 413, "may have 5 rows, and this one has 6"),
    ],
)
def test_rows_that_cannot_be_used(rows: TestClient, body: Any, status: int, said: str) -> None:
    assert said in sentence(rows.post("/predict", json=body), status)


def test_what_is_no_json(rows: TestClient) -> None:
    assert "the body is no JSON" in sentence(rows.post("/predict", content=b"alcohol,ash\n1,2"), 400)
    assert "the body is no JSON" in sentence(rows.post("/predict", content=b"\xff\xfe\x00"), 400)
    assert "nested too deep" in sentence(rows.post("/predict", content=b"[" * 5_000), 400)
    assert "the body is no JSON" in sentence(rows.post("/predict"), 400)
    half = rows.post("/predict", content=b'[{"\\ud800": [1]}]')  # JSON, but half a character
    assert "the column ? has a list" in sentence(half, 422)
    picture = rows.post("/predict", files=[("file", ("cat.png", b"x"))])
    assert "this run takes rows of a table, not pictures" in sentence(picture, 415)


def test_rows_that_are_numbers_already(wine_run: Run) -> None:
    """A run on arrays that were prepared elsewhere keeps no preparation."""
    from dataclasses import replace

    bare = replace(wine_run, form=replace(wine_run.form, preparation=None))
    (width,) = wine_run.form.shape
    with TestClient(create_app(bare, refuse=0)) as client:
        told = client.post("/predict", json=[[0.5] * width, [-0.5] * width])
        expected = bare.predict(torch.tensor([[0.5] * width, [-0.5] * width]))
        assert [one["class"] for one in told.json()["answers"]] == expected
        assert "must be float, n×" in sentence(client.post("/predict", json=[[0.5] * (width + 1)]), 422)
        assert "only finite numbers" in sentence(client.post("/predict", json=[[None] * width]), 422)
        assert "preparation" in sentence(client.post("/predict", json=[ROW]), 422)

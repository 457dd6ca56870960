"""Requests at the same time: together through the network, one at fault alone, too many refused."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from served import GOOD
from torch import Tensor

from vmcr2.inference import TopAnswers
from vmcr2.runs import Run
from vmcr2.serve import Limits, create_app
from vmcr2.serve._batching import Batcher
from vmcr2.serve._limits import RequestError
from vmcr2.serve._reading import Body, Held


class Stubborn:
    """A run that waits until it is let go, and fails on 13."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.sizes: list[int] = []
        self.class_names = ("a", "b")

    def features_of(self, inputs: Tensor) -> Tensor:
        self.go.wait(60)
        self.sizes.append(len(inputs))
        if (inputs == 13).any():
            raise RuntimeError("an unlucky number")
        return inputs

    def top_answers_of(self, features: Tensor, count: int) -> TopAnswers:
        return TopAnswers(features[:, :1].long(), features[:, :1], features[:, :1], features[:, 0])


def gathered(run: Any, most: int, values: list[list[float]]) -> list[Any]:
    """What comes back for jobs of these values: the first alone, all others while it is computed."""

    async def ask() -> list[Any]:
        batcher = Batcher(run, most)
        first = asyncio.create_task(batcher.find(torch.tensor(values[0])[:, None], 0))
        await asyncio.sleep(0)  # it is in the queue
        await asyncio.sleep(0)  # and in the thread, where it waits
        rest = [asyncio.create_task(batcher.find(torch.tensor(own)[:, None], 0)) for own in values[1:]]
        await asyncio.sleep(0)
        run.go.set()
        found = await asyncio.gather(first, *rest, return_exceptions=True)
        batcher.close()
        return found

    return asyncio.run(ask())


def test_what_comes_while_the_network_is_busy_goes_together() -> None:
    run = Stubborn()
    found = gathered(run, 64, [[1.0], *([float(n)] * 2 for n in range(2, 12))])
    assert run.sizes == [1, 20]
    assert [one.answers.labels[:, 0].tolist() for one in found] == [[1], *([n] * 2 for n in range(2, 12))]


def test_batches_have_a_most_and_a_large_request_goes_alone() -> None:
    run = Stubborn()
    gathered(run, 4, [[1.0], [2.0] * 3, [3.0], [4.0] * 9, [5.0], [6.0]])
    assert run.sizes == [1, 4, 9, 2]
    run = Stubborn()
    gathered(run, 1, [[float(n)] for n in range(5)])
    assert run.sizes == [1] * 5


def test_one_that_fails_does_not_fail_the_others() -> None:
    found = gathered(Stubborn(), 64, [[1.0], [2.0], [13.0], [4.0]])
    assert isinstance(found[2], RuntimeError)
    assert [one.answers.labels[:, 0].tolist() for at, one in enumerate(found) if at != 2] == [[1], [2], [4]]


def test_an_answer_that_takes_too_long(digits_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(digits_run, limits=Limits(seconds=0.2))
    go = threading.Event()
    with TestClient(app) as client:
        batcher = app.state.service.batcher
        real = batcher._together
        monkeypatch.setattr(batcher, "_together", lambda jobs: go.wait(60) and real(jobs))
        late = client.post("/predict", content=GOOD)
        assert late.status_code == 503
        assert late.headers["retry-after"] == "1"
        assert "had no answer within 0.2 s" in late.json()["error"]
        again = client.post("/predict", content=GOOD)  # waits behind the first
        assert again.status_code == 503
        go.set()
        batches = batcher.batches
        assert client.post("/predict", content=GOOD).status_code == 200
        assert batcher.batches <= batches + 1, "nobody waits for the second any more: it is not computed"


def test_memory_for_waiting_requests_is_bounded() -> None:
    class Small(Limits):
        held_bytes = 100  # type: ignore[assignment]

    def body() -> Body:
        parts = iter([True, True, False])

        async def receive() -> Any:
            return {"type": "http.request", "body": bytes(30), "more_body": next(parts)}

        return Body(SimpleNamespace(headers={}, receive=receive), held)  # type: ignore[arg-type]

    held = Held(Small(waiting=2))
    first, second, third = body(), body(), body()
    with held.one(first):
        assert len(asyncio.run(first.read())) == held.bytes == 90
        with pytest.raises(RequestError, match="100 bytes of requests are waiting") as refused, held.one(second):
            asyncio.run(second.read())
        assert refused.value.status == 503
        assert (held.requests, held.bytes) == (1, 90)
        with held.one(second), pytest.raises(RequestError, match="2 requests are waiting"), held.one(third):
            pass
    assert (held.requests, held.bytes) == (0, 0)

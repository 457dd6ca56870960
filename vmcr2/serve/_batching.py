"""Requests that come at the same time go through the network together."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from ..inference import Neighbors, TopAnswers
from ..runs import Run


class Found(NamedTuple):
    """What the network says of the samples of one request."""

    answers: TopAnswers
    """of the two likeliest classes"""
    neighbors: Neighbors | None


class _Job(NamedTuple):
    inputs: Tensor
    neighbors: int
    done: asyncio.Future[Found]


class Batcher:
    """One thread for the network. While it computes, requests gather; then it takes as many of them as fit.

    So a request that comes alone does not wait for others, and the busier the server, the larger the batches.
    """

    def __init__(self, run: Run, most: int) -> None:
        self.run, self.most = run, most
        self.batches = 0
        self._waiting: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, "vmcr2-network")
        self._working: asyncio.Task[None] | None = None

    async def find(self, inputs: Tensor, neighbors: int) -> Found:
        """Answers for samples as the network takes them."""
        job = _Job(inputs, neighbors, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await job.done

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)

    async def _work(self) -> None:
        while jobs := self._next():
            self.batches += 1
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, jobs)
            for job, result in zip(jobs, results, strict=True):
                if job.done.done():  # its request ran out of time
                    continue
                if isinstance(result, Exception):
                    job.done.set_exception(result)
                else:
                    job.done.set_result(result)

    def _next(self) -> list[_Job]:
        """The jobs that waited longest, at least one if there is any."""
        jobs: list[_Job] = []
        samples = 0
        while self._waiting and (not jobs or samples + len(self._waiting[0].inputs) <= self.most):
            job = self._waiting.popleft()
            if not job.done.done():
                jobs.append(job)
                samples += len(job.inputs)
        return jobs

    def _compute(self, jobs: list[_Job]) -> list[Found | Exception]:
        """One result for each job. If they fail together, each is tried alone: one must not fail the others."""
        try:
            return list(self._together(jobs))
        except Exception as error:
            return [error] if len(jobs) == 1 else [self._compute([job])[0] for job in jobs]

    def _together(self, jobs: list[_Job]) -> list[Found]:
        features = self.run.features_of(torch.cat([job.inputs for job in jobs]))
        answers = TopAnswers(*(part.cpu() for part in self.run.top_answers_of(features, 2)))
        most = max(job.neighbors for job in jobs)
        near = self.run.kept.nearest(features, most, self.run.class_names) if most else None
        found, start = [], 0
        for job in jobs:
            rows = slice(start, start + len(job.inputs))
            own = TopAnswers(*(part[rows] for part in answers))
            found.append(Found(own, near.part(rows, job.neighbors) if near is not None and job.neighbors else None))
            start = rows.stop
        return found

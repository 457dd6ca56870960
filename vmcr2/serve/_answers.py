"""What a client gets to read: answers in JSON's types."""

from __future__ import annotations

import base64
import io
from typing import Any

from torch import Tensor

from .._shared import UserError
from ..inference import Neighbors
from ..runs import Run
from ._batching import Found
from ._limits import RequestError

USUAL_RATE = 0.05
_DIGITS = 6


class Writer:
    """Writes answers of one run."""

    def __init__(self, run: Run, refuse: float | None) -> None:
        """``refuse`` is the false-alarm rate of requests that name none; None: 0.05, if the calibration allows it."""
        self.run = run
        self.calibrated = run.confidence is not None
        self.notes: list[str] = []
        self.rate: float | None = None
        self._thumbnails: dict[int, str] = {}
        if not self.calibrated:
            self.notes.append(
                "This run is not calibrated: it gives no probabilities and refuses nothing. Train it with "
                "calibration_share above 0."
            )
        if self.calibrated or refuse:
            self._set_rate(refuse)
        self.kept = len(run.kept.labels) if run.has_kept else 0

    def _set_rate(self, refuse: float | None) -> None:
        if refuse == 0:
            return
        try:
            self.run.threshold(refuse or USUAL_RATE)
        except UserError as error:
            if refuse is not None:
                raise
            self.notes.append(f"This run refuses nothing: {error}.")
        else:
            self.rate = refuse or USUAL_RATE

    def threshold(self, refuse: float | None) -> float | None:
        """The novelty above which a sample is refused; None if none is."""
        rate = self.rate if refuse is None else refuse
        if not rate:
            return None
        if not self.calibrated:
            raise RequestError(422, "this run is not calibrated, so it cannot refuse: leave refuse out")
        try:
            return self.run.threshold(rate)
        except UserError as error:
            raise RequestError(422, str(error)) from None

    def check_neighbors(self, count: int) -> None:
        """An error if there is nothing to compare with."""
        if count and not self.kept:
            raise RequestError(422, "this run keeps no training samples: leave neighbors out")

    def answers(self, found: Found, threshold: float | None) -> list[dict[str, Any]]:
        """One for each sample."""
        written = []
        for row, labels in enumerate(found.answers.labels.tolist()):
            novelty = float(found.answers.novelty[row].double())
            refused = novelty > threshold if threshold is not None else None
            likeliest, *others = [
                self._likely(label, found.answers.probabilities[row, at]) for at, label in enumerate(labels)
            ]
            answer = {
                "class": None if refused else likeliest["class"],
                "refused": refused,
                "likeliest": likeliest["class"],
                "probability": likeliest["probability"],
                "second": others[0] if others else None,
                "residual": round(float(found.answers.residuals[row, 0]), _DIGITS),
                "novelty": round(novelty, _DIGITS) if self.run.has_novelty else None,
                "threshold": round(threshold, _DIGITS) if threshold is not None else None,
            }
            if found.neighbors is not None:
                answer["neighbors"] = self._neighbors(found.neighbors, row)
            written.append(answer)
        return written

    def _likely(self, label: int, probability: Tensor) -> dict[str, Any]:
        sure = round(float(probability), _DIGITS) if self.calibrated else None
        return {"class": self.run.class_names[label], "probability": sure}

    def _neighbors(self, near: Neighbors, row: int) -> list[dict[str, Any]]:
        numbers = zip(near.places[row].tolist(), near.names[row], near.cosines[row].tolist(), strict=True)
        return [
            {
                "class": name,
                "cosine": round(cosine, _DIGITS),
                "picture": self._thumbnail(place, near.pictures[row, at]) if near.pictures is not None else None,
            }
            for at, (place, name, cosine) in enumerate(numbers)
        ]

    def _thumbnail(self, place: int, picture: Tensor) -> str:
        """As a data URI. Every kept sample is encoded once."""
        if place not in self._thumbnails:
            self._thumbnails[place] = _data_uri(picture)
        return self._thumbnails[place]


def _data_uri(picture: Tensor) -> str:
    from PIL import Image

    pixels = picture.permute(1, 2, 0).contiguous().numpy()
    written = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels[:, :, :3]).save(written, "PNG")
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"

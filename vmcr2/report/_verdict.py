"""What came out of a run, in words for a person who is new to this."""

from __future__ import annotations

from typing import NamedTuple

from ..functional import diagnose
from ._advice import advice, room_of
from ._inner import cosines_in_words
from ._mistakes import Answers, answers
from ._read import RunRecord

_NEARLY = 0.5
"""Of the overlap of random subspaces: below it, subspaces are called nearly orthogonal."""
_SKEWED = 10
"""The largest class divided by the smallest: from here on the mean recall is said too."""
_BETTER = 0.02
"""Above the largest class's share: from here on a run has learned something."""


class Verdict(NamedTuple):
    """A headline of a few words, sentences, and what to try."""

    headline: str
    sentences: list[str]
    advice: list[str]


def verdict(run: RunRecord) -> Verdict:
    """Of one run. Settings are between backticks."""
    if run.summary is None:
        return Verdict("Not finished", _unfinished(run), [])
    found = answers(run)
    ill = _ill(run)
    sentences = [*_accuracy(run, found), *_skew(run, found), *_geometry(run), *_filled(run, ill)]
    return Verdict(_headline(run, found, ill), sentences, advice(run))


def comparison(runs: list[RunRecord], labels: list[str]) -> list[str]:
    """Of several runs: the most accurate on each kind of samples, the most orthogonal, the largest ΔR."""
    sentences = []
    for unseen in ("test", "holdout"):
        known = [accuracy_of(run) if run.unseen == unseen else None for run in runs]
        if best := _largest(known):
            words, right = runs[best[0]].unseen_words, best[1]
            sentences.append(f"Most accurate on {words} samples: {labels[best[0]]}, right on {right:.2%}.")
    overlaps = [run.figure("subspace_overlap") for run in runs]
    if best := _largest([None if overlap is None else -overlap for overlap in overlaps]):
        least = _small(-best[1])
        sentences.append(f"Most orthogonal classes: {labels[best[0]]}, whose subspaces overlap by {least} on average.")
    if best := _largest([_share_of_most(run) for run in runs]):
        sentences.append(
            f"Largest ΔR: {labels[best[0]]}, {best[1]:.0%} of what is possible with its features and classes."
        )
    return sentences


def _largest(values: list[float | None]) -> tuple[int, float] | None:
    """Where the largest known value is, the first of equals, and the value."""
    known = [(value, -at) for at, value in enumerate(values) if value is not None]
    if not known:
        return None
    value, at = max(known)
    return -at, value


def _share_of_most(run: RunRecord) -> float | None:
    """ΔR of the training set, divided by the largest possible one."""
    delta, most = run.figure("train_delta_r"), run.most_delta
    return delta / most if delta is not None and most else None


def accuracy_of(run: RunRecord) -> float | None:
    """Of what the run predicts by: its head, or the nearest subspace."""
    head = run.figure("head_accuracy")
    return head if run.readout == "its head" and head is not None else run.figure(f"{run.unseen}_accuracy")


def _unfinished(run: RunRecord) -> list[str]:
    done, total = run.epochs_done, run.config.get("epochs")
    if not done:
        return ["The run stopped before the end of its first epoch, so there is nothing to judge."]
    text = f"{done} of {total} epochs are done. Accuracy and subspaces are measured at the end."
    delta = run.metrics[-1].get("batch_delta_r")
    if isinstance(delta, int | float) and run.most_delta:
        text += f" ΔR of the last batch is {delta:.1f} of at most {run.most_delta:.1f}."
    return [text]


def _headline(run: RunRecord, found: Answers | None, ill: str) -> str:
    if ill:
        return f"{ill.capitalize()}: the classes were not separated"
    accuracy, largest = accuracy_of(run), largest_share(found)
    if accuracy is not None and largest is not None and accuracy < largest + _BETTER:
        return "No better than a guess"
    overlap, random = run.figure("subspace_overlap"), random_overlap(run)
    if overlap is None or random is None:
        return "The classes are told apart"
    if overlap <= _NEARLY * random:
        return "The classes are told apart, on subspaces that are nearly orthogonal"
    if overlap <= random:
        return "The classes are told apart, on subspaces that are partly orthogonal"
    return "The classes are told apart, but their subspaces overlap"


def _accuracy(run: RunRecord, found: Answers | None) -> list[str]:
    accuracy, largest = accuracy_of(run), largest_share(found)
    if accuracy is None:
        return []
    count = run.figure(f"{run.unseen}_images")
    of = f"{round(accuracy * count):,} of {count:,.0f} {run.unseen_words} samples" if count else run.unseen_words
    by = f", by {run.readout or 'nearest subspace'}"
    text = f"It is right on {accuracy:.1%} of the samples that it has not seen ({of}{by})."
    if largest is not None and found is not None:
        name = run.name(int(found.sizes.argmax()))
        text += f" Always answering the largest class, «{name}», would be right on {largest:.1%}."
    return [text]


def _skew(run: RunRecord, found: Answers | None) -> list[str]:
    sizes = run.tensors.get("train_sizes")
    if sizes is None and found is not None:
        sizes = found.sizes
    if sizes is None or found is None or not (sizes > 0).any():
        return []
    present = sizes[sizes > 0]
    if present.max() < _SKEWED * present.min():
        return []
    asked = found.sizes > 0
    recall = float((found.right[asked] / found.sizes[asked]).mean())
    return [
        f"The largest class has {present.max() / present.min():.0f} times as many samples as the smallest. The mean of "
        f"the classes' own shares of right answers is {recall:.1%}: a better figure if small classes matter as much."
    ]


def _geometry(run: RunRecord) -> list[str]:
    """How orthogonal the classes are."""
    within, between = run.figure("within_cosine"), run.figure("between_cosine")
    overlap, random = run.figure("subspace_overlap"), random_overlap(run)
    sentences = []
    if overlap is not None and random is not None:
        text = (
            f"Two classes' subspaces overlap by {_small(overlap)} on average (0: orthogonal, 1: the same; random "
            f"subspaces of this size: {_small(random)})."
        )
        if (run.num_classes or 0) > int(run.config.get("dim") or 0):
            text += " There are more classes than dimensions, so they cannot all be orthogonal."
        sentences.append(text)
    if within is not None and between is not None:
        sentences.append(f"Of the training features, {cosines_in_words(within, between)}")
    return sentences


def _filled(run: RunRecord, ill: str) -> list[str]:
    """Whether the features collapsed, and how much of the room they use."""
    if ill == "collapsed":
        return ["All features point almost the same way: they have collapsed."]
    rank, room, share = run.figure("effective_rank"), room_of(run), _share_of_most(run)
    if share is None:
        return []
    text = f"ΔR is {share:.0%} of what is possible"
    if ill:
        return [f"{text}: training made little progress, but the features have not collapsed."]
    text = f"The features have not collapsed: {text}"
    if rank is not None and room is not None:
        text += f", and a class fills {rank:.1f} dimensions where it has room for {room}"
    return [text + "."]


def _ill(run: RunRecord) -> str:
    """ "collapsed", "stalled", or empty: as the run itself found at its end, or by its figures."""
    if run.warning:
        return run.warning.split(":")[0]
    expansion, compression, k = run.figure("expansion"), run.figure("compression"), run.num_classes
    dim, eps_sq, sizes = run.config.get("dim"), run.config.get("eps_sq"), run.tensors.get("train_sizes")
    if expansion is None or compression is None or not k or not dim or not eps_sq:
        return ""
    shares = sizes.tolist() if sizes is not None and len(sizes) == k and sizes.any() else None
    found = diagnose(expansion, compression, num_classes=k, dim=dim, eps_sq=eps_sq, proportions=shares)
    return "" if found is None else found.split(":")[0]


def _small(value: float) -> str:
    """Two digits, and no power of ten."""
    return f"{value:.2g}" if value >= 0.001 else "less than 0.001"


def largest_share(found: Answers | None) -> float | None:
    """Of the unseen samples: what always answering the largest class would reach."""
    if found is None or not found.sizes.sum():
        return None
    return float(found.sizes.max() / found.sizes.sum())


def random_overlap(run: RunRecord) -> float | None:
    """r/d: the mean overlap of random subspaces of r = ⌊d/k⌋ dimensions, at least one."""
    room, dim = room_of(run), run.config.get("dim")
    return room / int(dim) if room and dim else None

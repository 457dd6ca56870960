"""What a person may have meant by a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], *, also_called: dict[str, str] | None = None) -> str:
    """``: did you mean lr?``, or an empty text if no known name is close.

    ``also_called`` maps names that others use to ours.

    >>> did_you_mean("learnin", ["lr", "learning_rate"])
    ': did you mean learning_rate?'
    >>> did_you_mean("wd", ["weight_decay"], also_called={"wd": "weight_decay"})
    ': did you mean weight_decay?'
    """
    names = list(known)
    meant = (also_called or {}).get(name)
    close = [meant] if meant in names else difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f": did you mean {' or '.join(close)}?" if close else ""

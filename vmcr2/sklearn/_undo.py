"""Makes a fit that fails leave its estimator unchanged."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

CALLER = 4
"""``stacklevel`` of a warning from a function that fit calls: above it are fit, and what undoes a fit that fails."""
Method = TypeVar("Method", bound=Callable[..., Any])


def undone_on_failure(*changed: str) -> Callable[[Method], Method]:
    """Restore all attributes of an estimator if a method raises, also those that scikit-learn's checks set.

    ``changed`` names the attributes that the method changes in place. It works on copies of them.
    """

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            before = dict(vars(self))
            # copied together: what two of them share, their copies share too
            vars(self).update(copy.deepcopy({name: before[name] for name in changed if name in before}))
            try:
                return method(self, *args, **kwargs)
            except BaseException:
                vars(self).clear()
                vars(self).update(before)
                raise

        return cast(Method, wrapper)

    return decorate

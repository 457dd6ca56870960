"""A fit that fails is as if it had not been tried."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def undone_on_failure(*changed: str) -> Callable[[Method], Method]:
    """Put an estimator's attributes back where a method raises: all that it sets, scikit-learn's checks too.

    Those named are objects that the method changes; it works on copies of them.
    """

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            before = dict(vars(self))
            # together: what two of them share, their copies share
            vars(self).update(copy.deepcopy({name: before[name] for name in changed if name in before}))
            try:
                return method(self, *args, **kwargs)
            except BaseException:
                vars(self).clear()
                vars(self).update(before)
                raise

        return cast(Method, wrapper)

    return decorate

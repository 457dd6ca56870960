"""A network of a person's own, made by a function or class of theirs: ``package.module:factory``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import torch
from torch import nn

from .._shared import UserError, did_you_mean
from ._adapters import Featurizer, feature_width, in_short
from ._backbone import HasBackbone


def build_own(name: str, *, dim: int, input_shape: tuple[int, ...]) -> nn.Module:
    """The featurizer that ``package.module:factory`` makes.

    The module is found as ``python -m`` finds it: in the current folder first. The factory is called with ``dim`` and
    ``input_shape``, each only if it has an argument of that name. If its network makes ``dim`` numbers per sample,
    they are the features; otherwise the reshaping head makes them. A :class:`Featurizer` is taken as it is.
    """
    with _current_folder_first():
        network = _made(name, _factory(name), {"dim": dim, "input_shape": input_shape})
        width = feature_width(network, input_shape, f"the network of {name}")
    if not isinstance(network, HasBackbone):
        return Featurizer(network, dim, None if width == dim else width, input_shape=input_shape)
    if width != dim:
        raise UserError(f"{name} returns a network of {width} features, but dim is {dim}: build it with that dim")
    return network


def _factory(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    if not attribute or not module_name:
        raise UserError(f"model {name!r} lacks a part: write module:factory, such as mynet:make for make in mynet.py")
    if "/" in module_name or "\\" in module_name or module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").replace("\\", "/").strip("./").replace("/", ".")
        raise UserError(f"model {name!r} names a file: write its module, with dots, as in {dotted}:{attribute}")
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        # a run folder may come from a stranger: os:abort would end the process
        raise UserError(f"model {name!r}: {module_name} is part of Python and has no networks: name a module of yours")
    found: Any = _module(name, module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            callables = [own for own in dir(found) if callable(getattr(found, own, None)) and not own.startswith("_")]
            meant = did_you_mean(part, callables) or f": define it in {_file(found)}"
            raise UserError(f"model {name!r}: {_file(found)} has no {part!r}{meant}")
        found = getattr(found, part)
    if isinstance(found, nn.Module):
        # one network for all runs would go on from the weights of the run before, and no seed would decide them
        raise UserError(
            f"model {name!r}: {attribute} is a network that is built already: name a function or class that builds one"
        )
    if not callable(found):
        raise UserError(f"model {name!r}: {attribute} has the type {type(found).__name__}: name a function or class")
    return found  # type: ignore[no-any-return]


def _module(name: str, module_name: str) -> ModuleType:
    importlib.invalidate_caches()  # the file may have been written a moment ago
    try:
        # a module that draws random numbers does so in the first run of a process only: later ones must start the same
        with torch.random.fork_rng([]):
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise UserError(
                f"model {name!r}: there is no module {error.name!r} in {os.getcwd()} or among the installed ones: "
                "start in the folder that has it"
            ) from None
        raise UserError(f"model {name!r}: {module_name} cannot be imported ({error}): install that module") from error
    except (Exception, SystemExit) as error:
        raise UserError(f"model {name!r}: {module_name} fails when it is imported ({in_short(error)})") from error


def _made(name: str, factory: Callable[..., Any], offered: dict[str, Any]) -> nn.Module:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # something compiled, which does not tell
        parameters = {}  # type: ignore[assignment]
    named = {own.name for own in parameters.values() if own.kind in (own.POSITIONAL_OR_KEYWORD, own.KEYWORD_ONLY)}
    needed = [
        own.name
        for own in parameters.values()
        if own.default is own.empty
        and own.kind not in (own.VAR_POSITIONAL, own.VAR_KEYWORD)
        and not (own.name in offered and own.name in named)
    ]
    if needed:
        raise UserError(
            f"model {name!r} needs the argument {needed[0]}, but it gets dim and input_shape only, by name: "
            f"give {needed[0]} a default"
        )
    try:
        network = factory(**{key: value for key, value in offered.items() if key in named})
    except (Exception, SystemExit) as error:
        raise UserError(f"model {name!r} fails when it is called ({in_short(error)})") from error
    if not isinstance(network, nn.Module):
        raise UserError(f"model {name!r} returns a {type(network).__name__}: it must return a torch.nn.Module")
    return network


def _file(found: Any) -> str:
    return str(getattr(found, "__file__", None) or getattr(found, "__name__", type(found).__name__))


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Imports look into the current folder first. The path is restored on exit."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have changed the path itself
            sys.path.remove(here)

"""Follows the instructions of a pickle that is data: numbers, texts, lists, dictionaries with plain keys, few names.

Python's own loader is not used, because a pickle of a hundred bytes can make it hang (tuples in tuples, which are
hashed when they become a key) or fill the memory (a memo that has room for any number). Here an instruction that data
do not need is refused, a key is a text, bytes or a number, and every instruction counts. The instructions are found by
the standard library's ``pickletools``, which runs nothing.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

MOST_INSTRUCTIONS = 2_000_000
"""CIFAR-100's train has about 300,000."""

_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1")
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING")
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PUSH = frozenset((*_CONSTANTS, *_NUMBERS, *_TEXTS, *_BYTES))
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT = frozenset(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"))
_GET = frozenset(("GET", "BINGET", "LONG_BINGET"))
_NAMING = frozenset(("GLOBAL", "INST"))
_MARK = object()


class RefusedError(Exception):
    """The pickle asks for more than data."""


class DamagedError(Exception):
    """The pickle ends too early, or its instructions do not fit together."""


class Machine:
    """A stack, a memo, and what the instructions do to them.

    Args:
        named: gives what stands for module and name; it raises :class:`RefusedError` for all but a few.
        called: calls what :func:`named` gave, with its arguments.
        built: fills what :func:`called` gave with a state.
    """

    def __init__(
        self,
        named: Callable[[str, str], object],
        called: Callable[[object, tuple[Any, ...]], object],
        built: Callable[[object, object], None],
    ) -> None:
        self._named, self._called, self._built = named, called, built
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, data: bytes) -> object:
        """What the pickle holds."""
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count >= MOST_INSTRUCTIONS:
                raise RefusedError(f"has more than {MOST_INSTRUCTIONS} instructions")
            name = opcode.name
            if name == "STOP":
                found = self._pop()
                if self._stack:
                    raise DamagedError("something is left on its stack")
                return found
            self._do(name, argument)
        raise DamagedError("it has no end")

    def _do(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _PUSH:
            stack.append(_CONSTANTS.get(name, argument))
        elif name in _PUT:
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = self._top()
        elif name in _GET:
            if argument not in self._memo:
                raise DamagedError("it asks for something that it has not stored")
            stack.append(self._memo[argument])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            stack.append(tuple(reversed([self._pop() for _ in range(_TUPLES[name])])))
        elif name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in _STEPS:
            _STEPS[name](self)
        elif name in _NAMING:
            module, _, attribute = argument.partition(" ")
            stack.append(self._named(module, attribute))
        elif name not in ("PROTO", "FRAME"):
            raise RefusedError(f"has the instruction {name}")

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise DamagedError("its stack is empty")
        return self._stack[-1]

    def _pop(self) -> Any:
        found = self._top()
        del self._stack[-1]
        return found

    def _since_mark(self) -> list[Any]:
        stack = self._stack
        for at in range(len(stack) - 1, -1, -1):
            if stack[at] is _MARK:
                found = stack[at + 1 :]
                del stack[at:]
                return found
        raise DamagedError("it has no mark")

    def _append(self) -> None:
        self._extend([self._pop()])

    def _appends(self) -> None:
        self._extend(self._since_mark())

    def _extend(self, values: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, list):
            raise DamagedError("it appends to something that is no list")
        target.extend(values)

    def _list(self) -> None:
        self._stack.append(self._since_mark())

    def _dict(self) -> None:
        values = self._since_mark()
        self._stack.append({})
        self._set(values)

    def _set_one(self) -> None:
        value, key = self._pop(), self._pop()
        self._set([key, value])

    def _set_many(self) -> None:
        self._set(self._since_mark())

    def _set(self, values: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(values) % 2:
            raise DamagedError("it sets items of something that is no dictionary")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | bytes | int):  # a tuple's hash takes as long as its maker likes
                raise DamagedError("it has a key that is neither text nor number")
            target[key] = value

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(module, str) or not isinstance(name, str):
            raise DamagedError("it has a name that is no text")
        self._stack.append(self._named(module, name))

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(arguments, tuple):
            raise DamagedError("it calls something without arguments")
        self._stack.append(self._called(function, arguments))

    def _build(self) -> None:
        state = self._pop()
        self._built(self._top(), state)


_STEPS: dict[str, Callable[[Machine], None]] = {
    "APPEND": Machine._append,
    "APPENDS": Machine._appends,
    "LIST": Machine._list,
    "DICT": Machine._dict,
    "SETITEM": Machine._set_one,
    "SETITEMS": Machine._set_many,
    "STACK_GLOBAL": Machine._stack_global,
    "REDUCE": Machine._reduce,
    "BUILD": Machine._build,
}

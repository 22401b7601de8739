"""CIFAR-10's python batches, read without unpickling.

The published files are pickles of protocol 2, and a pickle is a program: unpickling runs what it
says, and even a list of allowed functions hands attacker-chosen arguments to real code. Here
nothing is called. `pickletools.genops` splits the bytes into instructions; the few that build
lists, tuples, dictionaries, strings and integers are carried out on a stack; a *name* such as
``numpy dtype`` stays a name and is never looked up. "Call this name" then means one of two
things that the format needs (an empty array, and the type of unsigned bytes), both written down
as plain values. Every other instruction, name or argument is an error.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError

RECONSTRUCT = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
NDARRAY = "numpy ndarray"
DTYPE = "numpy dtype"
LARGEST_PROTOCOL = 2
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = ("BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING")


@dataclass(frozen=True)
class _Name:
    """A name that a pickle mentions. It is compared and never looked up."""

    text: str


@dataclass
class _Bytes:
    """The type of unsigned bytes, the only one allowed."""


@dataclass
class _Array:
    """An array in the making: its shape and its bytes once they were given."""

    shape: tuple[int, ...] = ()
    data: str = ""


class _RefusedError(Exception):
    """An instruction that such a file does not need."""


def read_pickled_batch(data: bytes, where: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images, one row of pixels each, and labels of one python batch."""
    try:
        batch = _Machine().run(data)
        images, labels = batch["data"], batch["labels"]
        pixels = np.frombuffer(images.data.encode("latin-1"), np.uint8).reshape(images.shape)
        if not all(type(label) is int for label in labels):
            raise _RefusedError("its labels are not integers")
        return pixels, np.array(labels, dtype=np.int64)
    except _RefusedError as error:
        raise InvalidInputError(f"{where} is not a CIFAR-10 python batch: {error}.") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"{where} is not a CIFAR-10 python batch: it has no array 'data' and list 'labels'."
        ) from error
    except (ValueError, IndexError, OverflowError) as error:
        raise InvalidInputError(f"{where} is damaged or truncated: {error}.") from error


class _Machine:
    """A stack, the places of its marks, and what was remembered."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> dict[Any, Any]:
        for opcode, argument, position in pickletools.genops(data):
            if opcode.name == "STOP":
                break
            self._step(opcode.name, argument, position)
        (batch,) = self._pop(1)
        if not isinstance(batch, dict) or self.stack:
            raise _RefusedError("it does not hold one dictionary")
        return batch

    def _step(self, name: str, argument: Any, position: int | None) -> None:  # noqa: PLR0912
        if name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            self.stack.append(argument)
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            self.stack.append(tuple(self._pop(int(name[-1]))))
        elif name == "TUPLE":
            self.stack.append(tuple(self._pop_to_mark()))
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name in ("BINPUT", "LONG_BINPUT"):
            (self.memo[argument],) = self._pop(1)
            self.stack.append(self.memo[argument])
        elif name in ("BINGET", "LONG_BINGET"):
            if argument not in self.memo:
                raise _RefusedError(f"it recalls value {argument}, which it never stored")
            self.stack.append(self.memo[argument])
        elif name == "GLOBAL":
            if argument not in {*RECONSTRUCT, NDARRAY, DTYPE}:
                raise _RefusedError(f"it names {argument!r}, which such a file does not need")
            self.stack.append(_Name(argument))
        elif name in ("APPEND", "APPENDS"):
            values = self._pop(1) if name == "APPEND" else self._pop_to_mark()
            self._top(list, "appends to", "list").extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = self._pop(2) if name == "SETITEM" else self._pop_to_mark()
            filled = self._top(dict, "fills", "dictionary")
            filled.update(zip(values[::2], values[1::2], strict=True))
        elif name == "REDUCE":
            self.stack.append(_called(*self._pop(2)))
        elif name == "BUILD":
            self.stack.append(_built(*self._pop(2)))
        elif name != "PROTO":
            raise _RefusedError(f"instruction {name} at byte {position} is not allowed")
        elif argument > LARGEST_PROTOCOL:
            limit = f"only up to {LARGEST_PROTOCOL}"
            raise _RefusedError(f"protocol {argument} is not allowed, {limit}")

    def _pop(self, count: int) -> list[Any]:
        if count > len(self.stack) - (self.marks[-1] if self.marks else 0):
            raise _RefusedError("it takes more values than there are")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def _pop_to_mark(self) -> list[Any]:
        if not self.marks:
            raise _RefusedError("it ends a group that did not begin")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def _top(self, kind: type, does: str, what: str) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            raise _RefusedError(f"it {does} something that is not a {what}")
        return self.stack[-1]


def _called(name: Any, arguments: Any) -> _Array | _Bytes:
    """Carry out one of the two calls of the format, as plain values."""
    if not isinstance(name, _Name) or type(arguments) is not tuple:
        raise _RefusedError("it calls something that is not a name")
    if name.text in RECONSTRUCT and arguments == (_Name(NDARRAY), (0,), "b"):
        return _Array()
    if name.text == DTYPE and arguments == ("u1", 0, 1):
        return _Bytes()
    raise _RefusedError(f"it calls {name.text!r} with other arguments than the format's")


def _built(target: Any, state: Any) -> _Array | _Bytes:
    """Give an array its shape and bytes; the state of the type says nothing new."""
    if isinstance(target, _Array) and type(state) is tuple and len(state) == 5:
        _, shape, kind, fortran, data = state
        dimensions = type(shape) is tuple and all(type(side) is int for side in shape)
        if not dimensions or not isinstance(kind, _Bytes) or type(data) is not str:
            raise _RefusedError("its array is not one of unsigned bytes")
        if fortran is not False and fortran != 0:
            raise _RefusedError("its array is in Fortran order")
        target.shape, target.data = shape, data
    elif not isinstance(target, _Bytes):
        raise _RefusedError("it sets the state of something that is not an array")
    found: _Array | _Bytes = target
    return found

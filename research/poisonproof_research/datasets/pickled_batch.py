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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError

RECONSTRUCT = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
NDARRAY = "numpy ndarray"
DTYPE = "numpy dtype"
LARGEST_PROTOCOL = 2


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


@dataclass
class _Machine:
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def pop(self, count: int) -> list[Any]:
        if count > len(self.stack) - (self.marks[-1] if self.marks else 0):
            raise _RefusedError("it takes more values than there are")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def pop_to_mark(self) -> list[Any]:
        if not self.marks:
            raise _RefusedError("it ends a group that did not begin")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values


def read_pickled_batch(data: bytes, where: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images and labels of one python batch.

    Parameters
    ----------
    data : bytes
        The file.
    where : str
        Its name in messages.

    Returns
    -------
    images : ndarray of uint8, shape (n, d)
        One row per image.
    labels : ndarray of int64, shape (n,)
        Its labels.
    """
    try:
        batch = _interpret(data)
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


def _interpret(data: bytes) -> dict[Any, Any]:
    machine = _Machine()
    for opcode, argument, position in pickletools.genops(data):
        if opcode.name == "STOP":
            break
        rule = _RULES.get(opcode.name)
        if rule is None:
            raise _RefusedError(f"instruction {opcode.name} at byte {position} is not allowed")
        rule(machine, argument)
    (batch,) = machine.pop(1)
    if not isinstance(batch, dict) or machine.stack:
        raise _RefusedError("it does not hold one dictionary")
    return batch


def _protocol(machine: _Machine, argument: Any) -> None:
    if argument > LARGEST_PROTOCOL:
        raise _RefusedError(f"protocol {argument} is not allowed, only up to {LARGEST_PROTOCOL}")


def _push(machine: _Machine, argument: Any) -> None:
    machine.stack.append(argument)


def _pushing(make: Callable[[], Any]) -> Callable[[_Machine, Any], None]:
    return lambda machine, argument: machine.stack.append(make())


def _mark(machine: _Machine, argument: Any) -> None:
    machine.marks.append(len(machine.stack))


def _remember(machine: _Machine, argument: Any) -> None:
    (value,) = machine.pop(1)
    machine.stack.append(value)
    machine.memo[argument] = value


def _recall(machine: _Machine, argument: Any) -> None:
    if argument not in machine.memo:
        raise _RefusedError(f"it recalls value {argument}, which it never stored")
    machine.stack.append(machine.memo[argument])


def _name(machine: _Machine, argument: Any) -> None:
    if argument not in {*RECONSTRUCT, NDARRAY, DTYPE}:
        raise _RefusedError(f"it names {argument!r}, which such a file does not need")
    machine.stack.append(_Name(argument))


def _tuple(count: int) -> Callable[[_Machine, Any], None]:
    return lambda machine, argument: machine.stack.append(tuple(machine.pop(count)))


def _marked_tuple(machine: _Machine, argument: Any) -> None:
    machine.stack.append(tuple(machine.pop_to_mark()))


def _extend(machine: _Machine, values: list[Any]) -> None:
    if not machine.stack or type(machine.stack[-1]) is not list:
        raise _RefusedError("it appends to something that is not a list")
    machine.stack[-1].extend(values)


def _fill(machine: _Machine, values: list[Any]) -> None:
    if not machine.stack or type(machine.stack[-1]) is not dict or len(values) % 2:
        raise _RefusedError("it fills something that is not a dictionary")
    machine.stack[-1].update(zip(values[::2], values[1::2], strict=True))


def _reduce(machine: _Machine, argument: Any) -> None:
    """Carry out one of the two calls of the format, as plain values."""
    name, arguments = machine.pop(2)
    if not isinstance(name, _Name) or type(arguments) is not tuple:
        raise _RefusedError("it calls something that is not a name")
    if name.text in RECONSTRUCT and arguments == (_Name(NDARRAY), (0,), "b"):
        machine.stack.append(_Array())
    elif name.text == DTYPE and arguments == ("u1", 0, 1):
        machine.stack.append(_Bytes())
    else:
        raise _RefusedError(f"it calls {name.text!r} with other arguments than the format's")


def _build(machine: _Machine, argument: Any) -> None:
    """Give an array its shape and bytes; the state of the type says nothing new."""
    target, state = machine.pop(2)
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
    machine.stack.append(target)


_RULES: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _protocol,
    "MARK": _mark,
    "EMPTY_DICT": _pushing(dict),
    "EMPTY_LIST": _pushing(list),
    "EMPTY_TUPLE": _pushing(tuple),
    "NONE": _pushing(lambda: None),
    "NEWTRUE": _pushing(lambda: True),
    "NEWFALSE": _pushing(lambda: False),
    "BININT": _push,
    "BININT1": _push,
    "BININT2": _push,
    "BINSTRING": _push,
    "SHORT_BINSTRING": _push,
    "BINPUT": _remember,
    "LONG_BINPUT": _remember,
    "BINGET": _recall,
    "LONG_BINGET": _recall,
    "GLOBAL": _name,
    "TUPLE": _marked_tuple,
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "APPEND": lambda machine, argument: _extend(machine, machine.pop(1)),
    "APPENDS": lambda machine, argument: _extend(machine, machine.pop_to_mark()),
    "SETITEM": lambda machine, argument: _fill(machine, machine.pop(2)),
    "SETITEMS": lambda machine, argument: _fill(machine, machine.pop_to_mark()),
    "REDUCE": _reduce,
    "BUILD": _build,
}

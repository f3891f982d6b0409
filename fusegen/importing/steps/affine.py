"""Operands that a step scales and moves by numbers itself: `y * (1 + w)` is one step, and so is `y * sigmoid(w)`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusegen.importing.reading.values import Number, Value
from fusegen.ops.arithmetic import FUNCTIONS, Arithmetic

ARITHMETIC = Arithmetic.ops()
_MINUS = Number(-1.0)


def affine(value: Value) -> tuple[Value, dict[str, Number | str]] | None:
    """A parameter, an input or a part that is scaled and moved, in this order, or a function of a parameter that is,
    with the keys of a step that say so; None for anything else."""
    plus: Number | None = None
    times: list[Number] = []
    while not _is_base(value):
        number = next((each for each in value.operands if isinstance(each, Number)), None)
        if value.op == "neg":
            times.append(_MINUS)
        elif value.op == "mul" and number is not None:
            times.append(number)
        elif value.op in ("add", "sub") and number is not None and plus is None and not times:
            plus = number
            if value.op == "sub" and value.operands[0] is number:
                times.append(_MINUS)
            elif value.op == "sub":
                if number.argument:
                    return None
                plus = Number(-number.value)
        else:
            return None
        (value,) = value.values
    if len(times) > 1:
        if any(each.argument for each in times):
            return None
        times = [Number(math.prod(each.value for each in times))]
    keys: dict[str, Number | str] = {}
    if _is_function(value):
        keys["function"] = value.op
        (value,) = value.values
    keys |= {**({"times": times[0]} if times else {}), **({"plus": plus} if plus else {})}
    return (value, keys) if keys else None


def _is_base(value: Value) -> bool:
    return value.is_leaf or value.op == "part" or _is_function(value)


def _is_function(value: Value) -> bool:
    """Whether it is what a step may take of a parameter."""
    numbers = tuple(each.value for each in value.keys.values() if isinstance(each, Number))
    of_parameter = len(value.operands) == 1 and value.values[0].op == "parameter"
    return value.op in FUNCTIONS and of_parameter and numbers == FUNCTIONS[value.op][0]


def operands_alone(order: Sequence[Value], results: Sequence[Value], first: Value | None) -> set[int]:
    """Of the values in order, those that are no steps: every step that takes them scales and moves an operand itself.

    first: the input that the chain begins with, of which a number is a step.
    """
    users: dict[int, list[Value]] = {}
    for value in order:
        for each in value.values:
            users.setdefault(id(each), []).append(value)
    kept = {id(each) for each in results}
    found: set[int] = set()
    for value in reversed(order):
        base = affine(value)
        if base is None or base[0] is first or id(value) in kept:
            continue
        if all(id(user) in found or _moves(user, value) for user in users.get(id(value), [])):
            found.add(id(value))
    return found


def _moves(user: Value, operand: Value) -> bool:
    """Whether a step has the value as its operand, and goes on from another one."""
    others = [each for each in user.values if each is not operand]
    return user.op in ARITHMETIC and any(each.op != "parameter" and affine(each) is None for each in others)

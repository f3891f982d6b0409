"""Patterns of values, written as they are written in Python: `x * sigmoid(x)`.

In a pattern x is any value, other names are numbers that a form keeps, and a call is an op with its keys in order.
Products match in any order and with any brackets, and so do sums: `0.5 * x * (1 + y)` is `x * (y + 1) / 2`.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusegen.importing.reading.values import Number, Value
from fusegen.ops.catalogue import STEPS

Bindings = Mapping[str, Value | Number]
Forms = Mapping[str, tuple[str, ...]]
# Constants that were rounded to fewer digits than a double has are the same: of a float32, as which kernels have them,
# this is less than half a unit in the last place.
_NEAR = 2e-8
# Brackets of brackets that are looked into.
_DEPTH = 5
# Factors of a product that are looked into, of a norm with its weight.
_FACTORS = 4
_DEFAULTS = {op: {k: f.default for k, f in step.model_fields.items()} for step in STEPS for op in step.ops()}
_POSITIONS = {"clamp": ("min", "max"), "pow": ("exponent",), "var": ("correction",)}


@dataclass(frozen=True)
class Name:
    text: str


@dataclass(frozen=True)
class Call:
    op: str
    operand: Pattern
    keys: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Together:
    """A sum or a product. number: the term or factor that is one, or the name of it. parts: the others, 1 or -1 each:
    -1 is subtracted, or divided by."""

    is_product: bool
    number: float | str
    parts: tuple[tuple[Pattern, int], ...]


Pattern = Name | Call | Together


@functools.cache
def parse(text: str) -> Pattern:
    return _parse(ast.parse(text, mode="eval").body)


def match(pattern: Pattern, value: Value | Number, known: Bindings, forms: Forms) -> Iterator[Bindings]:
    """Every way in which a value is the pattern, as what its names stand for. forms: other ways to write a call."""
    if isinstance(pattern, Name):
        if pattern.text in known:
            if known[pattern.text] is value:
                yield known
        elif isinstance(value, Value):
            yield {**known, pattern.text: value}
    elif isinstance(value, Number):
        return
    elif isinstance(pattern, Call):
        yield from _match_call(pattern, value, known, forms)
    else:
        yield from _match_together(pattern, value, known, forms)


def _match_call(pattern: Call, value: Value, known: Bindings, forms: Forms) -> Iterator[Bindings]:
    if value.op == pattern.op and not value.name and len(value.operands) == 1 and _same_keys(pattern, value):
        yield from match(pattern.operand, value.operands[0], known, forms)
    for text in forms.get(pattern.op, ()):
        for inner in match(parse(text), value, {}, {k: v for k, v in forms.items() if k != pattern.op}):
            yield from match(pattern.operand, inner["y"], known, forms)


def _same_keys(pattern: Call, value: Value) -> bool:
    """Of what is over dimensions, those over the channels alone."""
    wanted = {**_DEFAULTS.get(pattern.op, {}), **dict(pattern.keys)}
    if value.keys.get("dim", -1) not in (-1, 1):
        return False
    for key, found in value.keys.items():
        expected = wanted.get(key)
        if not isinstance(found, Number):
            continue
        if found.argument or not isinstance(expected, int | float) or not is_near(found.value, float(expected)):
            return False
    return all(key in value.keys for key, _ in pattern.keys)


def _match_together(pattern: Together, value: Value, known: Bindings, forms: Forms) -> Iterator[Bindings]:
    for number, parts in _cuts(value, pattern.is_product, len(pattern.parts)):
        if isinstance(pattern.number, str):
            if number is None or pattern.number in known:
                continue
            bound: Bindings = {**known, pattern.number: number}
        else:
            neutral = Number(1.0 if pattern.is_product else 0.0)
            found = neutral if number is None else number
            if found.argument or not is_near(found.value, pattern.number):
                continue
            bound = known
        for order in itertools.permutations(parts):
            if all(sign == theirs for (_, sign), (_, theirs) in zip(pattern.parts, order, strict=True)):
                yield from _match_parts(pattern.parts, order, bound, forms)


def _match_parts(patterns: Sequence[Any], parts: Sequence[Any], known: Bindings, forms: Forms) -> Iterator[Bindings]:
    if not patterns:
        yield known
        return
    for bound in match(patterns[0][0], parts[0][0], known, forms):
        yield from _match_parts(patterns[1:], parts[1:], bound, forms)


Part = tuple[Value, int]


def _cuts(value: Value, is_product: bool, count: int) -> Iterator[tuple[Number | None, list[Part]]]:
    """The value as a product (or sum) of so many values, and a number if it has one."""
    for leaves in _leaves(value, 1, is_product, _DEPTH, count + 3):
        parts = [(each, sign) for each, sign in leaves if isinstance(each, Value)]
        numbers = [(each, sign) for each, sign in leaves if isinstance(each, Number)]
        if len(parts) != count or leaves[0][0] is value:
            continue
        if not numbers:
            yield None, parts
        elif len(numbers) == 1 and numbers[0][1] == 1:
            yield numbers[0][0], parts
        elif not any(each.argument for each, _ in numbers):
            powers = [
                each.value**sign if is_product else each.value * sign
                for each, sign in numbers
                if each.value or not is_product
            ]
            yield Number(math.prod(powers) if is_product else math.fsum(powers)), parts


def _leaves(value: Value | Number, sign: int, is_product: bool, depth: int, most: int) -> Iterator[list]:
    yield [(value, sign)]
    split = _split(value, is_product) if isinstance(value, Value) and depth else None
    if split is None:
        return
    each = [list(_leaves(part, sign * theirs, is_product, depth - 1, most)) for part, theirs in split]
    for chosen in itertools.product(*each):
        flat = [leaf for leaves in chosen for leaf in leaves]
        if len(flat) <= most:
            yield flat


def _split(value: Value, is_product: bool) -> list[tuple[Value | Number, int]] | None:
    """What a value is made of by the operator itself."""
    if value.op in ("reciprocal", "neg") and is_product == (value.op == "reciprocal"):
        return [(value.operands[0], -1)]
    signs = ({"mul": (1, 1), "div": (1, -1)} if is_product else {"add": (1, 1), "sub": (1, -1)}).get(value.op)
    return list(zip(value.operands, signs, strict=True)) if signs else None


Factors = list[tuple[Value | Number, int]]
"""Factors of a product, with what is divided by as -1."""


def product(value: Value) -> Factors:
    """The factors of a product, as far as brackets go; [] for what is none."""
    return max(products(value), key=len, default=[])


def products(value: Value) -> Iterator[Factors]:
    """A product as its factors in every way that brackets allow: `a * b * c` is two factors, and three."""
    return (found for found in _leaves(value, 1, True, _DEPTH, _FACTORS) if len(found) > 1)


def is_near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_NEAR)


def _parse(node: ast.expr) -> Pattern:
    if isinstance(node, ast.Name):
        return Name(node.id)
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        op = node.func.id
        numbers = [_constant(each) for each in node.args[1:]]
        return Call(op, _parse(node.args[0]), tuple(zip(_POSITIONS.get(op, ()), numbers, strict=True)))
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div)
    number: float | str = 1.0 if is_product else 0.0
    parts = []
    for part, sign in _flatten(node, 1, is_product):
        if isinstance(part, ast.Constant | ast.UnaryOp):
            value = _constant(part)
            assert isinstance(number, float)
            number = number * value**sign if is_product else number + value * sign
        elif isinstance(part, ast.Name) and part.id not in ("x", "y"):
            number = part.id
        else:
            parts.append((_parse(part), sign))
    return Together(is_product, number, tuple(parts))


def _flatten(node: ast.expr, sign: int, is_product: bool) -> Iterator[tuple[ast.expr, int]]:
    inverse = ast.Div if is_product else ast.Sub
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult if is_product else ast.Add, inverse)):
        yield from _flatten(node.left, sign, is_product)
        yield from _flatten(node.right, -sign if isinstance(node.op, inverse) else sign, is_product)
    else:
        yield node, sign


def _constant(node: ast.expr) -> float:
    return float(ast.literal_eval(node))

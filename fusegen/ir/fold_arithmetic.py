"""Arithmetic with a coefficient as a change of the affine form of its other operand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusegen.ir.affine import Form, factors_of, written
from fusegen.ir.graph import Node
from fusegen.ir.ranges import is_in_range
from fusegen.ir.rewriter import Rewriter, Rule, same


def _detach(s: Rewriter, node: Node) -> Form:
    return s.forms[node.operands[0]]


def _full_and_small(node: Node) -> tuple[Node, Node] | None:
    """The operand of full size and the coefficient; None if there are not one of each."""
    left, right = node.operands
    if left.is_full == right.is_full:
        return None
    return (left, right) if left.is_full else (right, left)


def _negate(s: Rewriter, node: Node) -> Form:
    return _scaled(s, node, node.operands[0], (s.graph.literal(-1),))


def _mul(s: Rewriter, node: Node) -> Form:
    if all(operand.is_full for operand in node.operands):
        return _product(s, node)
    if (pair := _full_and_small(node)) is None:
        return same(s, node)
    full, small = pair
    return _scaled(s, node, full, factors_of(s.value(small), s.given))


def _scaled(s: Rewriter, node: Node, operand: Node, factors: Sequence[Node]) -> Form:
    form = s.settled(operand)
    if s.by_element(*form.scales, form.shift, *factors) or not form.can_be_scaled(factors):
        form = Form(s.value(operand))
    return replace(form, owner=form.owner or node.name).scaled(factors)


def _product(s: Rewriter, node: Node) -> Form:
    """(t a) (v b) = (t v) a b for coefficients a and b."""
    parts: list[Node] = []
    scales: tuple[Node, ...] = ()
    for operand in node.operands:
        form = s.forms[operand]
        together = (*scales, *form.scales)
        if form.shift is None and form.scales and not s.by_element(*together) and is_in_range(together):
            scales += form.scales
            parts.append(written(s.graph, replace(form, scales=()), f"{form.owner}_centered", False))
        else:
            parts.append(s.value(operand))
    name = "_".join(part.name for part in parts) if scales else node.name
    base = s.graph.add("mul", *sorted(parts, key=lambda part: part.index), name=name, temporary=True)
    return Form(base, scales=scales, owner=node.name)


def _add(s: Rewriter, node: Node) -> Form:
    if (pair := _full_and_small(node)) is None:
        return same(s, node)
    return _shifted(s, "add", node, *pair)


def _sub(s: Rewriter, node: Node) -> Form:
    left, right = node.operands
    if _full_and_small(node) is None:
        return same(s, node)
    if left.is_full:
        return _shifted(s, "sub", node, left, right)
    minus = _scaled(s, node, right, (s.graph.literal(-1),))
    if s.by_element(minus.shift, s.value(left)):
        return same(s, node)
    return minus.shifted("add", s.value(left))


def _shifted(s: Rewriter, op: str, node: Node, full: Node, small: Node) -> Form:
    form, by = s.settled(full), s.value(small)
    if s.by_element(form.shift, by):
        form = Form(s.value(full))
    return replace(form.shifted(op, by), owner=form.owner or node.name)


RULES: dict[str, Rule] = {"add": _add, "sub": _sub, "mul": _mul, "negate": _negate, "detach": _detach}

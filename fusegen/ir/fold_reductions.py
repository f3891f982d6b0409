"""Sums and moments of affine forms: what is constant over the reduced axes is applied to the result.

sum(w t) = w sum(t), mean(x a + b) = mean(x a) + b and var(x a + b) = var(x a).
"""

from __future__ import annotations

from dataclasses import replace

from fusegen.ir.affine import Coefficient, Form, emit, fits, merged_literals, written
from fusegen.ir.graph import Node
from fusegen.ir.ranges import is_moderate
from fusegen.ir.rewriter import Rewriter, Rule, same


def _sum(s: Rewriter, node: Node) -> Form:
    """sum(w t) = w sum(t)."""
    (operand,) = node.operands
    form = s.forms[operand]
    outer = tuple(scale for scale in form.scales if fits(scale, node.axes))
    if form.shift is not None or not outer or not is_moderate(outer):
        return same(s, node)
    inner = replace(form, scales=tuple(scale for scale in form.scales if scale not in outer))
    value = written(s.graph, inner, f"{operand.name}_unscaled", True)
    total = s.graph.add("sum", value, axes=node.axes, name=f"{value.name}_sum")
    coefficient: Coefficient = total
    for factor in merged_literals(s.graph, outer):
        coefficient = ("mul", coefficient, factor)
    name = f"{node.name}_scaled" if total.name == node.name else node.name
    return Form(emit(s.graph, coefficient, name))


def _moments(s: Rewriter, node: Node) -> Form:
    """The moments of the base; `moments_of` says what they have to be mapped by."""
    (operand,) = node.operands
    form = s.settled(operand)
    if form.center is not None or not fits(form.shift, node.axes):
        form = Form(s.value(operand))
    if form.scales:
        form = Form(written(s.graph, replace(form, shift=None), f"{operand.name}_scaled", True), shift=form.shift)
    s.moments_of[node] = form
    return Form(s.graph.add("moments", form.base, axes=node.axes, name=node.name))


def _mean(s: Rewriter, node: Node) -> Form:
    """mean(x + b) = mean(x) + b."""
    return Form(_mapped_mean(s, node.operands[0], node.name))


def _mapped_mean(s: Rewriter, moments: Node, name: str) -> Node:
    form = s.moments_of[moments]
    return written(s.graph, replace(form, base=_of_base(s, moments, "mean", name), owner=name), name, False)


def _variance(s: Rewriter, node: Node) -> Form:
    """var(x + b) = var(x). Zero times the mean keeps a NaN or an infinity of b visible, as that of the values would."""
    (moments,) = node.operands
    coefficient: Coefficient = _of_base(s, moments, "variance", node.name)
    if s.moments_of[moments].shift is not None:
        mean = _mapped_mean(s, moments, f"{node.name.removesuffix('_variance')}_mean")
        coefficient = ("add", coefficient, ("vanishing", mean))
    return Form(emit(s.graph, coefficient, node.name))


def _of_base(s: Rewriter, moments: Node, op: str, name: str) -> Node:
    """The mean or variance of the base that `moments_of` names; `name` is what that of the values is called."""
    form = s.moments_of[moments]
    return s.graph.add(op, s.value(moments), name=f"{name}_of_{form.base.name}" if form.shift is not None else name)


SUMS: dict[str, Rule] = {"sum": _sum}
MOMENTS: dict[str, Rule] = {"moments": _moments, "mean": _mean, "variance": _variance}

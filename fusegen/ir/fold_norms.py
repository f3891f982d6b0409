"""Normalisations and their gradients as affine forms.

xhat = (x - m) r is a form with the center m and the scale r = 1 / deviation; a bias b in front moves the center,
x + b - m = x - (m - b). With g = h k for a coefficient k, the gradient over n elements,

    r (g - (sum(g) + xhat sum(g xhat)) / n)         (Ioffe and Szegedy 2015, section 3, rearranged)

is k r (h - (s + (x - m) q)) with s = sum(h) / n and q = r sum(h xhat) / n: s and q are coefficients of each column,
row or group, called `grad_mean` and `grad_slope`. The difference is taken before it is scaled, as it may vanish: a
constant h has no gradient. Without centring (RMS norm) there is no s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fusegen.ir.affine import Coefficient, Form, factors_of, fits, product, written
from fusegen.ir.axes import Axes
from fusegen.ir.graph import Node
from fusegen.ir.ranges import is_in_range
from fusegen.ir.rewriter import Rewriter, Rule


def _standardize(s: Rewriter, node: Node) -> Form:
    x, mean, rstd = node.operands
    owner, inverse = _owner(node), s.value(rstd)
    form = _centered(s, x, s.value(mean), owner)
    if s.by_element(*form.scales, inverse):
        form = Form(written(s.graph, form, f"{owner}_centered", True), owner=owner)
    return form.scaled((inverse,))


def _centered(s: Rewriter, x: Node, mean: Node, owner: str) -> Form:
    """x - mean, from the mean itself also where that was computed from the mean of the form's base.

    The backward program knows the saved mean only: so both programs round alike, and statistics that a later norm
    took of these values are those of the values that its gradient computes again.

    After a scale it is the mean of scaled values: (base * scale) - (mean - shift) is taken first, and only then
    multiplied by 1 / deviation.
    """
    form = s.settled(x)
    if form.center is not None or s.by_element(*form.scales, form.shift, mean):
        form = Form(s.value(x))
    center: Coefficient = mean if form.shift is None else ("sub", mean, form.shift)
    if not form.scales:
        return Form(form.base, center, owner=owner)
    scaled = written(s.graph, replace(form, shift=None), f"{owner}_scaled", True)
    return Form(written(s.graph, Form(scaled, center, owner=owner), f"{owner}_centered", True), owner=owner)


def _rescale(s: Rewriter, node: Node) -> Form:
    x, rrms = node.operands
    form, inverse = s.forms[x], s.value(rrms)
    if form.shift is not None or s.by_element(*form.scales, inverse) or not form.can_be_scaled((inverse,)):
        form = Form(s.value(x))
    return replace(form.scaled((inverse,)), owner=_owner(node))


def _standardize_backward(s: Rewriter, node: Node) -> Form:
    g, hat, rstd, sum_g, sum_g_xhat, inverse_n = node.operands
    return _through_norm(s, node, g, hat, rstd, (sum_g_xhat, sum_g), inverse_n)


def _rescale_backward(s: Rewriter, node: Node) -> Form:
    g, hat, rrms, sum_g_xhat, inverse_n = node.operands
    return _through_norm(s, node, g, hat, rrms, (sum_g_xhat,), inverse_n)


def _through_norm(
    s: Rewriter, node: Node, g: Node, hat: Node, inverse: Node, sums: Sequence[Node], inverse_n: Node
) -> Form:
    """k r (h - (t q + s)), where t is xhat or what xhat is a multiple of.

    It is xhat where the gradient is summed further: such a sum, the gradient of a scale in front of the norm, may
    cancel down to rounding errors, to which each factor of q would add its own.
    """
    over, owner, count = sums[0].axes, _owner(hat), s.value(inverse_n)
    h, common, (slope, *mean) = _common_factors(s, g, [s.value(each) for each in sums], over, inverse)
    form = s.forms[hat]
    if node not in s.summed and form.shift is None and all(fits(scale, over) for scale in form.scales):
        t, scales = written(s.graph, replace(form, scales=()), f"{owner}_centered", False), form.scales
    else:
        t, scales = s.value(hat), ()
    # The sum comes first: r sum(h (x - m)) is of the size of h, while r times r may leave the range of numbers.
    q = product(s.graph, (*slope, count, *scales), f"{owner}_grad_slope")
    assert q is not None  # a count, or a sum over all ranks, is among the factors
    removed = s.graph.add("mul", t, q, name=f"{node.name}_slope", temporary=True)
    if mean:
        shift = product(s.graph, (*mean[0], count), f"{owner}_grad_mean")
        assert shift is not None  # as q
        removed = s.graph.add("add", removed, shift, name=f"{node.name}_removed", temporary=True)
    left = s.graph.add("sub", h, removed, name=f"{node.name}_unscaled", temporary=True)
    return Form(left, scales=(*common, s.value(inverse)), owner=f"{owner}_grad")


def _common_factors(
    s: Rewriter, g: Node, sums: Sequence[Node], over: Axes, inverse: Node
) -> tuple[Node, tuple[Node, ...], list[tuple[Node, ...]]]:
    """(h, k, the factors of each sum without k) with g = h k, for a k that every sum has as well, and that may be
    multiplied by 1 / deviation."""
    form = s.forms[g]
    common = tuple(scale for scale in form.scales if fits(scale, over))
    if not is_in_range((*common, inverse)):
        common = ()
    reduced = [_without(factors_of(total, s.given), common) for total in sums]
    if form.shift is not None or not common or not all(reduced):
        return s.value(g), (), [factors_of(total, s.given) for total in sums]
    rest = tuple(scale for scale in form.scales if scale not in common)
    return written(s.graph, replace(form, scales=rest), f"{g.name}_unscaled", True), common, reduced


def _without(factors: Iterable[Node], divisors: Iterable[Node]) -> tuple[Node, ...]:
    """The factors less the divisors; nothing if one of them is not there."""
    left = list(factors)
    for divisor in divisors:
        if divisor not in left:
            return ()
        left.remove(divisor)
    return tuple(left)


def _owner(hat: Node) -> str:
    """The name of the norm that a normalised value belongs to."""
    return hat.name.removesuffix("_hat")


NORMS: dict[str, Rule] = {"standardize": _standardize, "rescale": _rescale}
GRADIENTS: dict[str, Rule] = {
    "standardize_backward": _standardize_backward,
    "rescale_backward": _rescale_backward,
}

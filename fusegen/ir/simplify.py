"""Rewrites a program's graph so that its elements cost the fewest operations: affine chains are folded.

The pass runs after autodiff, on the forward and on the backward program alike. Four rules:

- A chain of affine steps is one form ((x - center) * scale + shift), see `affine`.
- The moments of x a + b are those of x a: mean(x a + b) = mean(x a) + b and var(x a + b) = var(x a), where b is
  constant over what is reduced. Not those of x: var(x) may be infinite or zero where var(x a) is neither.
- Factors that are constant over what is summed leave the sum: sum(w t) = w sum(t).
- The gradient through a normalisation takes its sums as coefficients, see `fold_norms`.

A fold that saves nothing, because a value between is needed as it is or because the coefficient costs as much as what
it replaces, only moves work. `barriers` names the nodes that stay values of their own; `fusegen.plan.folding`
chooses them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusegen.ir import fold_arithmetic, fold_norms, fold_reductions
from fusegen.ir.graph import Graph, Node, ancestors, verify
from fusegen.ir.rewriter import Rewriter, Rule

ELEMENT_WISE: dict[str, Rule] = {**fold_arithmetic.RULES, **fold_norms.RULES}


def simplify(
    graph: Graph,
    sinks: Sequence[Node],
    given: Collection[Node],
    inexact: Collection[Node] = (),
    barriers: Collection[Node] = (),
) -> tuple[dict[Node, Node], set[Node]]:
    """For each sink the node that computes it in a new graph, which shares leaves and `given` nodes with this one; and
    the nodes of this graph that became forms. If one of the others were a barrier too, nothing would change.

    given: nodes that lie in memory. inexact: leaves that carry a rounding error of their own, such as a matrix
    product. barriers: nodes that no chain is folded across.
    """
    nodes = ancestors(sinks, given)
    rewriter = Rewriter(graph, nodes, given, inexact, barriers, ELEMENT_WISE, fold_reductions.RULES)
    found = rewriter.rewrite(sinks)
    verify(found.values())
    return found, {node for node, form in rewriter.forms.items() if not form.is_bare}

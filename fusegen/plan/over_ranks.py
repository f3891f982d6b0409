"""Training with the statistics of all ranks: four programs, between which ranks exchange what they have summed.

    statistics   the mean and the variance of this rank's rows, of each channel
    forward      the result, by the statistics of all ranks
    sums         the sums of g and of g xhat over this rank's rows, and the gradients that need no more than these rows
    backward     the other gradients, by the sums of all ranks

The anchor is in front of all of them: its result is the first argument of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusegen.chain.state import RankStatistics
from fusegen.ir.axes import CHANNEL
from fusegen.ir.functions.normalisation import RankSums, rank_sums
from fusegen.ir.graph import Graph, Node, ancestors
from fusegen.plan.folding import Folding
from fusegen.plan.ingredients import Ingredients
from fusegen.plan.model import Program, Tensor, Variant

NAME = "ranks"


@dataclass(frozen=True)
class RankPlan:
    """variant: the forward and the backward program. norm, exchanged: the leaves of the statistics and of the sums of
    all ranks. statistics, sums: programs whose first two results are the mean and the variance, and the two sums."""

    variant: Variant
    statistics: Program
    sums: Program
    norm: RankStatistics
    exchanged: RankSums

    @property
    def programs(self) -> tuple[Program, ...]:
        return self.statistics, self.variant.forward, self.sums, self.variant.backward


def plan_over_ranks(of: Ingredients) -> RankPlan:
    """The programs of a chain that was built over ranks."""
    chain, graph = of.chain, of.chain.graph
    (norm,) = chain.rank_norms
    exchanged = rank_sums(graph, [tensor.node for tensor in of.gradients])
    forward_outputs = [Tensor(of.result, chain.result.node, "output"), *of.saved]
    forward = Folding(
        graph, f"{NAME}_forward", of.sources, forward_outputs, inexact=of.inexact, without=of.without
    ).program()
    moments = graph.add("moments", norm.operand, axes=CHANNEL, name=f"{norm.name}_moments")
    own = [_own(graph, f"{norm.name}_{each}", graph.add(each, moments, name=each)) for each in ("mean", "variance")]
    statistics = Folding(graph, f"{NAME}_statistics", of.sources, own, inexact=of.inexact, without=of.without).program()
    early, late = _split(of.gradients, {exchanged.mean_g, exchanged.mean_g_xhat})
    read = [of.grad, *of.sources, *of.saved]
    own = [_own(graph, "sum_g", exchanged.sum_g), _own(graph, "sum_g_xhat", exchanged.sum_g_xhat)]
    sums = Folding(graph, f"{NAME}_sums", read, [*own, *early], inexact=of.inexact, without=of.without).program()
    read += [Tensor(node.name, node, "accumulator") for node in (exchanged.mean_g, exchanged.mean_g_xhat)]
    backward = Folding(graph, f"{NAME}_backward", read, late, of.reasons, of.inexact, of.without).program()
    variant = Variant(
        NAME,
        replace(chain, anchor=None if chain.contraction else chain.anchor),
        forward,
        backward,
        tuple(of.saved),
        needs_source=True,
        result=of.result,
        result_gradient=of.grad.name,
    )
    return RankPlan(variant, statistics, sums, norm, exchanged)


def _own(graph: Graph, name: str, node: Node) -> Tensor:
    """A result that this rank has of its own rows."""
    return Tensor(graph.claim(f"own_{name}"), node, "accumulator")


def _split(gradients: Sequence[Tensor], exchanged: set[Node]) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients that are one value a channel and follow from no sums of other ranks, and the others."""
    early = [t for t in gradients if t.axes == CHANNEL and exchanged.isdisjoint(ancestors([t.node]))]
    return early, [tensor for tensor in gradients if tensor not in early]

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
from fusegen.plan.programs.model import Program, Tensor, Variant
from fusegen.plan.programs.program_io import ProgramIO
from fusegen.plan.schedules.folding import Folding

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


def plan_sync_batch_norm(io: ProgramIO) -> RankPlan:
    """The programs of a chain that was built over ranks."""
    chain, graph = io.chain, io.chain.graph
    (norm,) = chain.rank_norms
    exchanged = rank_sums(graph, [tensor.node for tensor in io.gradients])
    forward_outputs = [Tensor(io.result, chain.result.node, "output"), *io.saved]
    forward = Folding(
        graph, f"{NAME}_forward", io.sources, forward_outputs, inexact=io.inexact, without=io.without
    ).program()
    moments = graph.add("moments", norm.operand, axes=CHANNEL, name=f"{norm.name}_moments")
    own = [_own(graph, f"{norm.name}_{each}", graph.add(each, moments, name=each)) for each in ("mean", "variance")]
    statistics = Folding(graph, f"{NAME}_statistics", io.sources, own, inexact=io.inexact, without=io.without).program()
    early, late = _split(io.gradients, {exchanged.mean_g, exchanged.mean_g_xhat})
    read = [io.grad, *io.sources, *io.saved]
    own = [_own(graph, "sum_g", exchanged.sum_g), _own(graph, "sum_g_xhat", exchanged.sum_g_xhat)]
    sums = Folding(graph, f"{NAME}_sums", read, [*own, *early], inexact=io.inexact, without=io.without).program()
    read += [Tensor(node.name, node, "accumulator") for node in (exchanged.mean_g, exchanged.mean_g_xhat)]
    backward = Folding(graph, f"{NAME}_backward", read, late, io.reasons, io.inexact, io.without).program()
    variant = Variant(
        NAME,
        replace(chain, anchor=None if chain.contraction else chain.anchor),
        forward,
        backward,
        tuple(io.saved),
        needs_source=True,
        result=io.result,
        result_gradient=io.grad.name,
    )
    return RankPlan(variant, statistics, sums, norm, exchanged)


def _own(graph: Graph, name: str, node: Node) -> Tensor:
    """A result that this rank has of its own rows."""
    return Tensor(graph.claim(f"own_{name}"), node, "accumulator")


def _split(gradients: Sequence[Tensor], exchanged: set[Node]) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients that are one value a channel and follow from no sums of other ranks, and the others."""
    early = [t for t in gradients if t.axes == CHANNEL and exchanged.isdisjoint(ancestors([t.node]))]
    return early, [tensor for tensor in gradients if tensor not in early]

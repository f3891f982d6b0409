"""The ops over ranks: what a rank sums of its own rows, before the forward and before the backward op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusegen.ir.axes import Dim
from fusegen.plan.model import Program, Tensor
from fusegen.plan.over_ranks import RankPlan
from fusegen.plan.plan import Plan
from fusegen.render.backward_op import BackwardOp
from fusegen.render.forward_op import ForwardOp
from fusegen.render.op import TENSOR, Argument, Op, arg, out, read
from fusegen.render.variant_ops import VariantOps


class _OwnOp(VariantOps):
    """An op whose first result is one tensor of two values a channel, `own`, which ranks gather."""

    program: Program

    def _launched(self) -> list[tuple[str, str]]:
        parts = [tensor for tensor in self.program.outputs if not tensor.gradient_of]
        found = {arg(t.name): f"glue::write_part(own, {i}, channels)" for i, t in enumerate(parts)}
        return [(name, found.get(name, value)) for name, value in self.launched(self.program, set())]


class StatisticsOp(_OwnOp):
    """Renders the op that takes the mean and the variance of this rank's rows. It returns them and the number of
    rows."""

    def __init__(self, plan: Plan, ranks: RankPlan) -> None:
        super().__init__(plan, ranks.variant)
        self.program = ranks.statistics
        self.groups = self.program.groups is not None

    def arguments(self) -> list[tuple[str, str, tuple[Dim, ...]]]:
        """The chain's first tensor, by whose sizes the op goes, and what the statistics depend on."""
        used = {tensor.name for tensor in self.program.inputs}
        return [each for index, each in enumerate(self.sources()) if not index or each[0] in used]

    def op(self) -> Op:
        op, program = self.start("backward", self.program), self.program
        op.arguments += [Argument(name, *TENSOR) for name, _, _ in self.arguments()]
        op.first = op.arguments[0].name
        self.add_numbers(op, program.constants)
        op.sizes += [f"const int64_t rows = {op.like}.size(0);", f"const int64_t channels = {op.like}.size(1);"]
        op.checks += [self.read_input(*each) for each in self.arguments()]
        self.check_groups(op)
        made = f"glue::empty_statistics({op.like}, dtypes.accumulator, channels, rows)"
        op.allocations.append(f"const Tensor own = {made};")
        op.launched = self._launched()
        op.result = "Tensor"
        op.results.append("return own;")
        self.declare_bias(op, program)
        self.add_schema(op, "Tensor")
        return op


class SumsOp(_OwnOp):
    """Renders the op that sums what the gradient needs of this rank's rows. It returns the two sums as one tensor, then
    those gradients of one value a channel that are wanted."""

    def __init__(self, plan: Plan, ranks: RankPlan) -> None:
        super().__init__(plan, ranks.variant)
        self.program = ranks.sums
        self.groups = self.program.groups is not None

    def gradients(self) -> list[Tensor]:
        return [tensor for tensor in self.program.outputs if tensor.gradient_of]

    def op(self) -> Op:
        chain, program = self.chain, self.program
        op = self.start("backward", program)
        op.first = self.variant.result_gradient
        given = [tensor for tensor in program.inputs if tensor.name != op.first]
        op.arguments += [Argument(name, *TENSOR) for name in (op.first, *(tensor.name for tensor in given))]
        self.add_numbers(op, program.constants)
        op.needs = [tensor.gradient_of for tensor in self.gradients()]
        op.arguments.append(Argument("needs", "const std::vector<bool>&", "bool[]", ours=True))
        op.sizes = [f"const int64_t rows = {op.like}.size(0);", f"const int64_t channels = {op.like}.size(1);"]
        op.checks.append(self.read_input(op.first, "output", (chain.rows, chain.channels)))
        self.check_groups(op)
        shapes = {name: shape for name, _, shape in self.sources()}
        for tensor in given:
            shape = shapes.get(tensor.name)
            expected = self.shape_text(shape) if shape is not None else self.sizes_text(tensor)
            op.checks.append(read(tensor.name, self.dtype_text(tensor), expected))
        op.allocations.append(f"const Tensor own = glue::empty({op.like}, dtypes.accumulator, {{2 * channels}});")
        for index, tensor in enumerate(self.gradients()):
            made = f"{op.like}, {self.dtype_text(tensor)}, {self.shape_text(shapes[tensor.gradient_of])}"
            op.allocations.append(f"const auto {out(tensor.name)} = glue::empty_if(needs[{index}], {made});")
        op.launched = self._launched()
        op.results.append("std::vector<Tensor> results{own};")
        names = [out(tensor.name) for tensor in self.gradients()]
        op.results += [f"if ({name}) results.push_back(*{name});" for name in names]
        op.results.append("return results;")
        self.declare_bias(op, program)
        self.add_schema(op, "Tensor[]")
        return op


@dataclass(frozen=True)
class RankOps:
    """The four ops, and what their Python operator has to know of them."""

    statistics: Op
    forward: Op
    sums: Op
    backward: Op

    @property
    def all(self) -> Sequence[Op]:
        return self.statistics, self.forward, self.sums, self.backward


def rank_ops(plan: Plan, ranks: RankPlan) -> RankOps:
    """The ops of a plan over ranks."""
    return RankOps(
        StatisticsOp(plan, ranks).op(),
        ForwardOp(plan, ranks.variant).op(),
        SumsOp(plan, ranks).op(),
        BackwardOp(plan, ranks.variant).op(),
    )

"""The ops over ranks: what a rank sums of its own rows, before the forward and before the backward op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusegen.ir.axes import Dim
from fusegen.plan.modules.plan import Plan
from fusegen.plan.modules.sync_batch_norm import RankPlan
from fusegen.plan.programs.model import Program, Tensor
from fusegen.render.ops.backward_op import BackwardOp
from fusegen.render.ops.forward_op import ForwardOp
from fusegen.render.ops.op import Field, Op, role_text
from fusegen.render.ops.variant_ops import VariantOps
from fusegen.render.text.identifiers import identifier


class _OwnOp(VariantOps):
    """An op whose first result is one tensor of two values a channel, which ranks gather."""

    def __init__(self, plan: Plan, ranks: RankPlan, program: Program) -> None:
        super().__init__(plan, ranks.variant)
        self.program, self.groups = program, program.groups is not None

    def parts(self) -> Iterator[Field]:
        """The values a channel, by their place in the first result."""
        own = [tensor for tensor in self.program.outputs if not tensor.gradient_of]
        for index, tensor in enumerate(own):
            yield Field(tensor.name, "", f"FUSEGEN_PART({identifier(tensor.name, 'arg')}, {index})")


class StatisticsOp(_OwnOp):
    """Renders the op that takes the mean and the variance of this rank's rows. It returns them and the number of
    rows."""

    def __init__(self, plan: Plan, ranks: RankPlan) -> None:
        super().__init__(plan, ranks, ranks.statistics)

    def arguments(self) -> list[tuple[str, str, tuple[Dim, ...]]]:
        """The chain's first tensor, by whose sizes the op goes, and what the statistics depend on."""
        used = {tensor.name for tensor in self.program.inputs}
        return [each for index, each in enumerate(self.sources()) if not index or each[0] in used]

    def op(self) -> Op:
        op = self.start(self.program, "kTensor")
        (first, role, _), *others = self.arguments()
        op.fields.append(self.read(self.program, first, role, self.rows_and_channels(self.chain.channels)))
        op.fields += [self.given(self.program, *each) for each in others]
        self.add_numbers(op, self.program, self.program.constants)
        op.fields += self.parts()
        op.traits.append("over_ranks(&glue::empty_statistics)")
        return op


class SumsOp(_OwnOp):
    """Renders the op that sums what the gradient needs of this rank's rows. It returns the two sums as one tensor, then
    those gradients of one value a channel that are wanted."""

    def __init__(self, plan: Plan, ranks: RankPlan) -> None:
        super().__init__(plan, ranks, ranks.sums)

    def gradients(self) -> list[Tensor]:
        return [tensor for tensor in self.program.outputs if tensor.gradient_of]

    def op(self) -> Op:
        program, first = self.program, self.variant.result_gradient
        op = self.start(program, "kList")
        shapes = {name: shape for name, _, shape in self.sources()}
        op.fields.append(self.read(program, first, "output", self.rows_and_channels(self.chain.channels)))
        for tensor in (each for each in program.inputs if each.name != first):
            shape = shapes.get(tensor.name)
            text = self.shape_text(shape) if shape is not None else self.tensor_shape(tensor)
            op.fields.append(self.read(program, tensor.name, tensor.role, text))
        self.add_numbers(op, program, program.constants)
        self.add_needs(op, [tensor.gradient_of for tensor in self.gradients()])
        op.fields += self.parts()
        for index, tensor in enumerate(self.gradients()):
            role = f"{role_text(tensor.role)}{self.shape_text(shapes[tensor.gradient_of])}"
            text = f"FUSEGEN_GRADIENT({identifier(tensor.name, 'arg')}, {index}, {role})"
            op.fields.append(Field(tensor.name, "result", text))
        op.traits.append("over_ranks(&glue::empty_sums)")
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

"""The PyTorch operators of a module, with operands [batch, channels] of values of more dimensions aligned to these."""

from __future__ import annotations

from fusegen.ops.step import Step
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.regions.boundaries import operand_of
from fusegen.plan.regions.broadcast_regions import lacks_dimensions
from fusegen.render.python.reference_module import batched_lines, reference_lines, with_dimensions


class BroadcastLines:
    """Gives the dimensions that lack, step by step. names: the values and inputs that regions beside the first input
    make and take, of those that lack some."""

    def __init__(self, planned: ModulePlan) -> None:
        self._first = next(iter(planned.spec.inputs.values()))
        beside = [region for region in planned.regions if region.is_broadcast]
        taken = {name for region in beside for name in (*region.inputs, *region.results)}
        taken |= {name for region in beside for step in region.steps for name in step.saved}
        shapes = planned.shapes
        self.names = {name for name in taken if name in shapes and lacks_dimensions(shapes[name], self._first)}
        self._shapes = shapes
        self._is_broadcast = False

    def __call__(self, step: Step, running: str) -> tuple[Step, str]:
        """The step and the variable of its running value, as they stand in the reference."""
        if running in self._shapes:
            self._is_broadcast = running in self.names
        operand = operand_of(step)
        if operand is None or (operand in self.names) == self._is_broadcast:
            return step, running
        if self._is_broadcast:
            has_all = self._shapes[operand][:-1] == self._first[:-1]
            self._is_broadcast = not has_all
            return step, with_dimensions(running, len(self._first)) if has_all else running
        keys = [key for key in ("value", "input", "mask") if getattr(step, key, None) == operand]
        return step.model_copy(update=dict.fromkeys(keys, with_dimensions(operand, len(self._first)))), running


def eager_lines(planned: ModulePlan) -> list[str]:
    """The body of fusegen_reference()."""
    aligned = BroadcastLines(planned)
    batched = dict.fromkeys(line for plan in planned.plans for line in batched_lines(plan.chain, aligned.names))
    return [*batched, *reference_lines(planned.spec, aligned)]

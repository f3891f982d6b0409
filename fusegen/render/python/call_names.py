"""What a generated module's call reads: the names of its submodules' variables, and expressions of their tensors.

Names of the spec are local variables there; all others begin with an underscore, which no name of a spec does.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.plan.modules.plan import Plan
from fusegen.render.ops.functions import as_tuple, repr_double
from fusegen.render.ops.operators import OpRenderer
from fusegen.render.text.environment import wrap

WIDTH = 100


class CallNames:
    """The variables of a call."""

    def __init__(self, plan: Plan, renderers: Sequence[OpRenderer]) -> None:
        self.plan, self.chain, self.renderers = plan, plan.chain, renderers
        self.first = self.chain.inputs[0].name
        self.owners = [step for step in plan.spec.chain if step.module]
        self.local = self._locals()
        self.further = list(self.chain.further)

    def _locals(self) -> dict[str, str]:
        """By submodule: the variable that holds it, beside the arguments of the ops."""
        taken = {argument.name for renderer in self.renderers for argument in renderer.forward().arguments}
        taken |= {tensor.name for tensor in self.chain.inputs} | set(self.chain.parameters)
        if self.chain.convolution:
            taken.add(self.chain.convolution.weight)
        found: dict[str, str] = {}
        for step in self.owners:
            name = step.name
            while name in taken:
                name += "_module"
            taken.add(name)
            found[step.name] = name
        return found

    def owner(self, attribute: str) -> tuple[str, str]:
        """The variable of the module that has the attribute, and its name there."""
        owner, _, name = attribute.rpartition(".")
        return (self.local[owner] if owner else "self"), name

    def tensor(self, attribute: str) -> str:
        owner, name = self.owner(attribute)
        return f'_tensor({owner}, "{name}")'

    def tracked(self) -> list[str]:
        """The batch norms that have running statistics; the others take the batch's in evaluation too."""
        return [norm.name for norm in self.chain.batch_norms if norm.tracked]


def misfit(tensors: list[tuple[str, str]], dtype: str, shape: str) -> str:
    """What refuses tensors, each an attribute and a variable, of another dtype or shape."""
    attributes = as_tuple([repr_double(attribute) for attribute, _ in tensors])
    return f"_misfit({attributes}, {as_tuple([name for _, name in tensors])}, {dtype}, {shape})"


def refuse(checks: list[str]) -> list[str]:
    """Statements that return the first reason of some expressions."""
    if not checks:
        return []
    wrapped = [wrap(check, WIDTH - 20, 4).splitlines() for check in checks]
    if len(checks) == 1:
        lines = [f"_why = {wrapped[0][0]}", *wrapped[0][1:]]
    else:
        lines = ["_why = ("]
        for index, (first, *others) in enumerate(wrapped):
            lines += [f"    {'or ' if index else ''}{first}", *(f"    {line}" for line in others)]
        lines.append(")")
    return [*lines, "if _why:", "    return None, _why"]

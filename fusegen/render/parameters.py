"""The parameters of a kernel, and what a launch passes for them."""

from __future__ import annotations

from fusegen.plan.model import Kernel
from fusegen.render.contexts import Parameter
from fusegen.render.spelling import spell, value
from fusegen.render.types import element_type, pointer


def kernel_parameters(kernel: Kernel) -> list[Parameter]:
    """What it reads, what it writes, partial sums, and constants; sizes are the templates' business."""
    written = {t.name for t in kernel.writes}
    read = {t.name for each in (kernel, *kernel.parts) for t in each.reads}
    found: dict[str, Parameter] = {}
    for tensor in kernel.reads:
        if tensor.name not in written:
            declaration = f"const {element_type(tensor)}* __restrict__ {pointer(tensor)}"
            found[tensor.name] = Parameter(declaration, pointer(tensor))
    for tensor in kernel.writes:
        restrict = "" if tensor.name in read else "__restrict__ "
        found[tensor.name] = Parameter(f"{element_type(tensor)}* {restrict}{pointer(tensor)}", pointer(tensor))
    parameters = list(found.values())
    if kernel.partial_sums or kernel.parts:
        const = "const " if kernel.kind == "finalise" else ""
        # Blocks of a panel kernel read what others write in the same launch.
        restrict = "" if kernel.parts else "__restrict__ "
        parameters.append(Parameter(f"{const}Accumulate<T>* {restrict}partials", "partials"))
    if kernel.parts:
        parameters.append(Parameter("unsigned* counters", "counters"))
    parameters += [
        Parameter(f"Accumulate<T> {value(node.name)}", f"Acc(a.{spell(node.attribute, 'arg')})")
        for node in kernel.constants
    ]
    return parameters

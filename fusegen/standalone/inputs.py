"""`get_inputs` and `get_init_inputs` of a standalone file, by the spec."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusegen.ir.multiples import value_of
from fusegen.plan.modules.module import ModulePlan


@dataclass(frozen=True)
class Inputs:
    """Statements of the file. about: where they come from."""

    about: str
    lines: list[str] = field(default_factory=list)


def inputs_of_spec(planned: ModulePlan) -> Inputs:
    """Random tensors of the sizes that the spec plans for; arguments where the spec has a value for each."""
    spec, sizes = planned.spec, planned.spec.dims
    plans = planned.plans
    masks = {name for plan in plans for name in plan.chain.masks}
    channels = {name: value_of(plan.chain.channels, plan.spec.dims) for plan in plans for name in plan.chain.targets}
    losses = [plan.chain.result.loss for plan in plans]
    weights = {loss.weight for loss in losses if loss is not None}
    made = []
    for name, dims in spec.inputs.items():
        shape = ", ".join(str(value_of(d, sizes)) for d in dims) or "()"
        if name in channels:
            made.append(f"torch.randint({channels[name]}, ({shape},))")
        elif name in weights:  # a mean is divided by their sum
            made.append(f"torch.rand({shape}) + 0.5")
        else:
            made.append(f"torch.rand({shape}) < 0.5" if name in masks else f"torch.randn({shape})")
    lines = ["def get_inputs():", f"    return [{', '.join(made)}]"]
    values = []
    for name, argument in spec.arguments.items():
        value = sizes.get(name) if argument.type == "dim" else getattr(argument, "default", None)
        value = getattr(argument, "typical", None) if value is None else value
        values.append(list(value) if isinstance(value, tuple) else value)
    if None not in values:
        lines += ["", "", "def get_init_inputs():", f"    return {values!r}"]
    return Inputs("of the sizes that the spec plans for", lines)

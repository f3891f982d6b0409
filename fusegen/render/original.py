"""The original module's part of a generated one: its constructor, and the chain in plain PyTorch."""

from __future__ import annotations

from fusegen.ir.chain import Chain
from fusegen.ir.extent import Dim
from fusegen.render.functions import as_tuple
from fusegen.spec.model import SpecModel


def signature(spec: SpecModel) -> list[str]:
    """The constructor's arguments, with defaults."""
    found = []
    for name, argument in spec.arguments.items():
        default = getattr(argument, "default", None)
        if default is None:
            found.append(name)
        else:
            value = tuple(default) if argument.type == "shape" else default
            found.append(f"{name}={value!r}")
    return found


def construct(spec: SpecModel, chain: Chain, eager: list[str]) -> list[str]:
    """The constructor's body: checks, submodules, parameters, and the constants that are attributes.

    eager: the chain's lines by reference(), which read some of these.
    """
    lines = []
    for name, argument in spec.arguments.items():
        if argument.type == "shape":
            shape = as_tuple([str(dim) for dim in argument.is_])
            lines.append(f'_check_shape("{name}", {name}, {shape})')
    channels: Dim = chain.inputs[0].shape[1]
    owned = {constant.attribute for constant in chain.constants.values()}
    for step in spec.chain:
        lines += step.construct(channels)
        channels = chain.channels if step.op == "linear" else channels
    arguments = [name for name, argument in spec.arguments.items() if argument.type in ("float", "int")]
    arguments = [name for name in arguments if name not in chain.parameters]  # an init, not an attribute
    text = "\n".join(eager)
    lines += [f"self.{name} = {name}" for name in arguments if name in owned or f"self.{name}" in text]
    return lines


def reference(spec: SpecModel, chain: Chain) -> list[str]:
    """The chain, one statement a step, and the return of its result."""
    lines, running = [], chain.inputs[0].name
    taken = {*spec.inputs, *(step.save for step in spec.chain)}
    local = next(name for name in ("v", "value", *(f"value_{i}" for i in range(len(taken)))) if name not in taken)
    for step in spec.chain:
        result = step.save or local
        lines.append(f"{result} = {step.eager(running)}")
        running = result
    return [*lines, f"return {running}"]

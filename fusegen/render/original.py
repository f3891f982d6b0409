"""The original module's part of a generated one: its constructor, and the chain in plain PyTorch."""

from __future__ import annotations

import textwrap

from fusegen.chain.convolution import shape_form
from fusegen.chain.model import Chain
from fusegen.ir.axes import Dim
from fusegen.plan.dimensions import dimensions
from fusegen.plan.plan import Plan
from fusegen.render.functions import as_tuple, repr_double
from fusegen.spec.model import SpecModel

_TYPES = {"dim": "int", "int": "int", "float": "float", "shape": "Sequence[int]"}


def signature(plan: Plan) -> list[str]:
    """The constructor's arguments, with types and defaults, then those taken by name alone: the spec's, PyTorch's
    `device` and `dtype`, then `precision`."""
    spec = plan.spec
    found: list[str] = []
    named: list[str] = []
    for name, argument in spec.arguments.items():
        default = getattr(argument, "default", None)
        text = f"{name}: {_TYPES[argument.type]}"
        if default is not None:
            value = tuple(default) if argument.type == "shape" else default
            text += f" = {value!r}"
        (named if argument.keyword else found).append(text)
    found += ["*", *named, "device: torch.device | str | None = None", "dtype: torch.dtype | None = None"]
    return [*found, f'precision: str = "{spec.chain[0].precision}"'] if plan.has_precisions else found


def construct(plan: Plan, eager: list[str]) -> list[str]:
    """The constructor's body: checks, submodules, parameters, and the constants that are attributes.

    eager: the chain's lines by fusegen_reference(), which read some of these.
    """
    spec, chain = plan.spec, plan.chain
    lines = []
    for name, argument in spec.arguments.items():
        if argument.type == "shape":
            shape = as_tuple([str(dim) for dim in argument.is_])
            lines.append(f'_support.check_shape("{name}", {name}, {shape})')
    made = []
    channels: Dim = chain.inputs[0].shape[1]
    for step in spec.chain:
        made += step.construct_over(channels, chain.spatial)
        channels = chain.source_channels if step.anchor else chain.channels if step.divides else channels
    if any("**_factory" in line for line in made):
        lines.append('_factory = {"device": device, "dtype": dtype}')
    lines += made
    owned = {constant.attribute for constant in chain.constants.values()}
    arguments = [name for name, argument in spec.arguments.items() if argument.type in ("float", "int")]
    arguments = [name for name in arguments if name not in chain.parameters]  # an init, not an attribute
    text = "\n".join(eager)
    lines += [f"self.{name} = {name}" for name in arguments if name in owned or f"self.{name}" in text]
    initial = sorted({step.init for step in spec.chain if getattr(step, "init", None) in spec.arguments})
    lines += [f"self._fusegen_initial_{name} = {name}" for name in initial]
    if plan.has_precisions:
        lines.append("self.fusegen_precision = _support.check_precision(_package.name, precision)")
    return lines or ["pass"]


def reset(spec: SpecModel) -> list[str]:
    """The body of reset_parameters()."""
    return [line for step in spec.chain for line in step.reset()] or ["pass"]


def extra_repr(spec: SpecModel, chain: Chain) -> str:
    """The module's own parameters and constants, as the inside of an f-string."""
    parameters = [p.attribute for p in chain.parameters.values() if "." not in p.attribute]
    constants = [c.attribute for c in chain.constants.values() if "." not in c.attribute]
    shown = [f"{name}={{list(self.{name}.shape)}}" for name in parameters]
    return ", ".join([*shown, *(f"{name}={{self.{name}}}" for name in constants)])


def shapes(plan: Plan) -> list[str]:
    """The docstring's lines about inputs, the result and dtypes."""

    def text(shape: tuple[Dim, ...]) -> str:
        return "[" + ", ".join(map(str, shape)) + "]"

    spec, chain, allowed = plan.spec, plan.chain, dimensions(plan)
    lines = [f"{tensor.name}: {text(tensor.shape)}" for tensor in chain.inputs]
    if chain.convolution:
        form = shape_form(chain.spatial)
        returned = chain.result_shape(chain.inputs[0].shape[:1], chain.channels, form[2:])
        lines.append(f"Returns {text(returned)}.")
        lines.append("The memory format is that of PyTorch's convolution. In channels_last nothing is copied.")
    else:
        lines.append(f"Returns {text(chain.result_shape((chain.rows,), chain.channels))}.")
    if allowed.most is None:
        any_number = "any number of dimensions" if allowed.least == 1 else "one dimension or more"
        lines.append(f"In place of {chain.rows} there may be {any_number}, alike for all of these.")
    lines += textwrap.wrap(f"The kernels take {', '.join(spec.dtypes)}" + _autocast(spec) + ".", 92)
    return lines


def dimensions_text(plan: Plan) -> str:
    """How many dimensions the inputs may have, as an expression."""
    allowed = dimensions(plan)
    if allowed.reason:
        arguments = f"{allowed.least}, {allowed.most}, {repr_double(allowed.reason)}"
        line = f"_support.Dimensions({arguments})"
        return line if len(line) <= 70 else f"_support.Dimensions(\n        {arguments}\n    )"
    return f"_support.Dimensions({allowed.least})"


def _autocast(spec: SpecModel) -> str:
    narrow = [dtype for dtype in spec.dtypes if dtype != "float32"]
    if "float32" not in spec.dtypes or not narrow:
        return ""
    return f", and float32 parameters under autocast to {' or '.join(narrow)}"


def reference(spec: SpecModel, chain: Chain) -> list[str]:
    """The chain, a statement or two a step, and the return of its result."""
    lines, running = [], chain.inputs[0].name
    taken = {*spec.inputs, *(name for step in spec.chain for name in step.saved)}
    local = next(name for name in ("v", "value", *(f"value_{i}" for i in range(len(taken)))) if name not in taken)
    for step in spec.chain:
        made, running = step.lines(running, local, chain.spatial)
        lines += made
    return [*lines, f"return {running}"]

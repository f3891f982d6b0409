"""The original module's part of a generated one: its constructor, and the chain in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from fusegen.chain.images import spatial_in_front
from fusegen.chain.model import Chain
from fusegen.ir.axes import Dim
from fusegen.ops.step import Step, kept_sizes
from fusegen.plan.modules.dimensions import Dimensions
from fusegen.plan.modules.module import ModulePlan
from fusegen.render.ops.functions import as_tuple, repr_double
from fusegen.spec.model import RESULT, SpecModel

Aligned = Callable[[Step, str], tuple[Step, str]]
_TYPES = {"dim": "int", "int": "int", "float": "float", "shape": "Sequence[int]"}


def signature(spec: SpecModel, precisions: bool) -> list[str]:
    """The constructor's arguments, with types and defaults, then those taken by name alone: the spec's, PyTorch's
    `device` and `dtype`, then `precision`, if there is a choice."""
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
    if not precisions:
        return found
    default = next(step.precision for step in spec.chain if hasattr(step, "precision"))
    return [*found, f'precision: str = "{default}"']


def construct(planned: ModulePlan, eager: list[str], precisions: bool) -> list[str]:
    """The constructor's body: checks, submodules, parameters, and the constants that are attributes.

    eager: the lines of fusegen_reference(), which read some of these. precisions: whether float32 is multiplied as the
    constructor is told.
    """
    spec, chains = planned.spec, [plan.chain for plan in planned.plans]
    widths: dict[int, Dim] = {}
    for region in planned.regions:
        widths |= zip(region.places, region.widths, strict=True)
    steps = enumerate(zip(spec.chain, spatial_in_front(spec), strict=True))
    made = [line for place, (step, spatial) in steps for line in step.construct_over(widths[place], spatial)]
    lines = []
    for name, argument in spec.arguments.items():
        if argument.type == "shape":
            shape = as_tuple([str(dim) for dim in argument.is_])
            lines.append(f'_support.check_shape("{name}", {name}, {shape})')
    if any("**_factory" in line for line in made):
        lines.append('_factory = {"device": device, "dtype": dtype}')
    lines += made
    owned = {constant.attribute for chain in chains for constant in chain.constants.values()}
    arguments = [name for name, argument in spec.arguments.items() if argument.type in ("float", "int")]
    parameters = {name for chain in chains for name in chain.parameters}
    arguments = [name for name in arguments if name not in parameters]  # an init, not an attribute
    text = "\n".join(eager)
    lines += [f"self.{name} = {name}" for name in arguments if name in owned or f"self.{name}" in text]
    lines += kept_sizes(text)
    given = {getattr(step, key, None) for step in spec.chain for key in ("init", "bias_init")}
    initial = sorted(each for each in given if isinstance(each, str) and each in spec.arguments)
    lines += [f"self._fusegen_initial_{name} = {name}" for name in initial]
    if precisions:
        lines.append("self.fusegen_precision = _support.check_precision(_package.name, precision)")
    return lines or ["pass"]


def reset(spec: SpecModel) -> list[str]:
    """The body of reset_parameters()."""
    return [line for step in spec.chain for line in step.reset()] or ["pass"]


def extra_repr(*chains: Chain) -> str:
    """The module's own parameters and constants, as the inside of an f-string."""
    # A layer's weight shows in the layer's own line.
    weights = [chain.contraction.attribute for chain in chains if chain.contraction]
    every = [p.attribute for chain in chains for p in chain.parameters.values()]
    parameters = dict.fromkeys(each for each in (*weights, *every) if "." not in each)
    every = [c.attribute for chain in chains for c in chain.constants.values()]
    constants = dict.fromkeys(each for each in every if "." not in each)
    shown = [f"{name}={{list(self.{name}.shape)}}" for name in parameters]
    return ", ".join([*shown, *(f"{name}={{self.{name}}}" for name in constants)])


def dimensions_text(allowed: Dimensions, inputs: Sequence[str], fixed: Mapping[str, int]) -> str:
    """How many dimensions the inputs may have, as an expression. fixed: of those with dimensions of their own."""
    places = {index: fixed[name] for index, name in enumerate(inputs) if name in fixed}
    positions = f", positions={allowed.positions}" if allowed.positions else ""
    if places:
        own = f"own={{{', '.join(f'{index}: {count}' for index, count in places.items())}}}{positions}"
        arguments = f"{allowed.least}, {allowed.most}, {repr_double(allowed.reason)}, {own}"
        return f"_support.Dimensions(\n        {arguments}\n    )"
    if allowed.reason:
        arguments = f"{allowed.least}, {allowed.most}, {repr_double(allowed.reason)}{positions}"
        line = f"_support.Dimensions({arguments})"
        return line if len(line) <= 70 else f"_support.Dimensions(\n        {arguments}\n    )"
    return f"_support.Dimensions({allowed.least})"


def batched_lines(chain: Chain, others: Container[str] = ()) -> list[str]:
    """Statements that give the inputs [batch, channels], but for others, the dimensions of the running value."""
    names = [name for name, reach in chain.broadcast_inputs.items() if reach.batched and name not in others]
    return [f"{name} = {with_dimensions(name, len(chain.inputs[0].shape))}" for name in names]


def with_dimensions(name: str, count: int) -> str:
    """A tensor [batch, channels] with so many dimensions."""
    return f"{name}[:, {', '.join(['None'] * (count - 2))}]"


def reference_lines(spec: SpecModel, aligned: Aligned) -> list[str]:
    """The chain in PyTorch's own operators, a statement or two a step, of inputs that all have the dimensions of the
    first. aligned: gives the dimensions that lack, to what a step
    takes and to the variable of its running value."""
    lines, running = list[str](), spec.running_input
    taken = {*spec.inputs, *(name for step in spec.chain for name in step.saved)}
    local = next(name for name in ("v", "value", *(f"value_{i}" for i in range(len(taken)))) if name not in taken)
    for step, spatial in zip(spec.chain, spatial_in_front(spec), strict=True):
        step, source = aligned(step, step.from_ or running)
        made, running = step.lines(source, local, spatial)
        lines += made
    return [*lines, f"return {returned(spec, running)}"]


def returned(spec: SpecModel, running: str) -> str:
    """What forward returns. running: the variable of the value at the end."""
    if spec.outputs is None:
        return running
    saved = {name for step in spec.chain for name in step.saved}
    return as_tuple([running if name == RESULT and name not in saved else name for name in spec.outputs])

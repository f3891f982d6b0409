"""The autograd functions of a generated __init__.py, and the fakes of their ops: results without values."""

from __future__ import annotations

from dataclasses import dataclass

from fusegen.ir.extent import CHANNEL, Dim
from fusegen.plan.model import Tensor, Variant
from fusegen.plan.plan import RESULT, Plan
from fusegen.render.operators import OpRenderer, dtype_field
from fusegen.render.types import type_roles


@dataclass(frozen=True)
class VariantText:
    """One autograd.Function and its fakes."""

    prefix: str
    function: str
    about: str
    forward_arguments: list[str]
    backward_arguments: list[str]
    forward_fake: list[str]
    backward_fake: list[str]
    unpack: str
    saved: list[str]
    scalars: str
    needs: int


def variant_text(plan: Plan, variant: Variant, renderer: OpRenderer) -> VariantText:
    """What the template needs to know of one variant."""
    forward, backward = renderer.forward(), renderer.backward()
    chain = variant.chain
    scalars = ["dtype_mode", *(["groups"] if renderer.groups else []), *variant.backward.constants]
    saved = []
    if chain.contraction:
        saved.append(f"{renderer.operand} if needs_weight else None")
        saved.append(f"{chain.contraction.weight} if needs_input else None")
    saved += [tensor.name for tensor in renderer.backward_inputs()]
    abouts = {
        "train": "Normalises with the batch's statistics and moves the running ones.",
        "eval": "Normalises with the running statistics.",
        "": "The fused chain.",
    }
    return VariantText(
        prefix=f"{variant.name}_" if variant.name else "",
        function=function_name(variant),
        about=abouts[variant.name],
        forward_arguments=[argument.name for argument in forward.arguments],
        backward_arguments=[argument.name for argument in backward.arguments],
        forward_fake=_forward_fake(plan, variant, renderer),
        backward_fake=_backward_fake(plan, variant, renderer),
        unpack=", ".join(forward.returns),
        saved=saved,
        scalars=as_tuple(scalars),
        needs=len(renderer.needs()),
    )


def _forward_fake(plan: Plan, variant: Variant, renderer: OpRenderer) -> list[str]:
    chain, op = variant.chain, renderer.forward()
    first = op.first
    width = f"{chain.contraction.weight}.shape[0]" if chain.contraction else f"{first}.shape[1]"
    lines = [
        f"rows, channels = {first}.shape[0], {width}",
        f"output = _DTYPES[dtype_mode][{roles(plan).index('output')}]",
    ]
    saved = {tensor.name: tensor for tensor in variant.saved}
    results = []
    for name in op.returns:
        if name == RESULT:
            results.append(f"{first}.new_empty(rows, channels, dtype=output)")
        elif name in saved:
            results.append(f"{first}.new_empty({_sizes(saved[name])}, dtype=torch.float32)")
        else:
            results.append(f"{first}.new_empty(rows, channels)")
    if len(results) == 1:
        return [*lines, f"return {results[0]}"]
    return [*lines, "return (", *(f"    {text}," for text in results), ")"]


def _sizes(tensor: Tensor) -> str:
    if tensor.extent == CHANNEL:
        return "channels"
    return "rows, groups" if tensor.extent.blocks != 1 else "rows, 1"


def _backward_fake(plan: Plan, variant: Variant, renderer: OpRenderer) -> list[str]:
    """The wanted gradients: each in the shape and dtype of what it is the gradient of."""
    contraction = variant.chain.contraction
    makers = {name: (_shape(plan, shape), dtype_field(role)) for name, role, shape in renderer.sources()}
    if contraction:
        operand, weight = renderer.operand, contraction.weight
        makers[operand] = (f"rows, {weight}.shape[1]", "activation")
        makers[weight] = (f"channels, {operand}.shape[1]", "activation")
    new = f"lambda: grad_{RESULT}.new_empty"
    lines = [f"    {new}({size}, dtype={dtype})," for size, dtype in (makers[name] for name in renderer.needs())]
    return [
        f"rows, channels = grad_{RESULT}.shape",
        f"{', '.join(roles(plan))} = _DTYPES[dtype_mode]",
        "makers = (  # in the order of `needs`",
        *lines,
        ")",
        "return [make() for make, need in zip(makers, needs) if need]",
    ]


def roles(plan: Plan) -> list[str]:
    """The fields of a row of `_DTYPES`."""
    return [dtype_field(role) for role in type_roles(plan.modes[0].roles)]


def _shape(plan: Plan, shape: tuple[Dim, ...]) -> str:
    return ", ".join(_size(plan, dim) for dim in shape) if shape else "()"


def _size(plan: Plan, dim: Dim) -> str:
    if isinstance(dim, int):
        return str(dim)
    return {plan.chain.rows: "rows", plan.chain.channels: "channels"}[dim]


def as_tuple(texts: list[str]) -> str:
    """A Python tuple of these expressions."""
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def function_name(variant: Variant) -> str:
    """The class of a variant's autograd.Function."""
    return f"_{variant.name.capitalize()}" if variant.name else "_Fused"

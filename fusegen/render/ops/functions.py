"""What the ops of a variant return, as generated modules declare it: a dtype's role and sizes of each result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusegen.ir.axes import Dim
from fusegen.ir.multiples import factors, text_of, times
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Variant
from fusegen.render.ops.op import dtype_field
from fusegen.render.ops.operators import OpRenderer
from fusegen.render.programs.sizes import sizes
from fusegen.render.programs.types import type_roles


@dataclass(frozen=True)
class VariantText:
    """One forward op and its backward op. variable: of the module, without its underscore."""

    variable: str
    prefix: str
    about: str
    results: list[str]
    masks: list[str]
    gradient_aliases: str
    has_contiguous_layout: bool
    own_source: bool


_ABOUT = {
    "train": "Normalises with the batch's statistics and moves the running ones.",
    "eval": "Normalises with the running statistics.",
    "": "The fused chain.",
}


def variant_text(plan: Plan, variant: Variant, renderer: OpRenderer) -> VariantText:
    """What the template needs to know of one variant."""
    return VariantText(
        variable=variable(variant),
        prefix=f"{variant.name}_" if variant.name else "",
        about=_ABOUT[variant.name],
        results=_results(variant, renderer),
        masks=mask_sizes(plan, renderer),
        gradient_aliases=gradient_aliases(variant, renderer),
        has_contiguous_layout=variant.has_contiguous_layout,
        own_source=variant.has_contiguous_layout and variant.chain.has_own_images,
    )


def variable(variant: Variant) -> str:
    """The module's variable of a variant's operator, without its underscore."""
    return variant.name or "fused"


def _results(variant: Variant, renderer: OpRenderer) -> list[str]:
    saved = {tensor.name: tensor for tensor in variant.saved}
    further = {each.tensor.name: each.tensor for each in variant.further}
    found = []
    for name in renderer.forward().results:
        if name == variant.result:
            result = next(tensor for tensor in variant.forward.outputs if tensor.name == name)
            found.append(_result("output", *sizes(result)))
        elif name in further:
            width = "channels" if further[name].is_full else 1
            found.append(_result(dtype_field(further[name].role), "rows", width))
        elif name in saved:
            found.append(_result(dtype_field(saved[name].role), *sizes(saved[name])))
        else:
            found.append(_result("activation", "rows", times(variant.chain.number_of_parts, "channels")))
    return found


def gradients(plan: Plan, renderer: OpRenderer) -> list[str]:
    """Each in the shape and dtype of what it is the gradient of, alike for all variants."""
    width = times(plan.chain.number_of_parts, "channels")
    names = {plan.chain.source_channels: width, plan.chain.rows: "rows", plan.chain.channels: "channels"}
    found = {
        name: _result(dtype_field(role), *(_size(dim, names) for dim in shape))
        for name, role, shape in renderer.sources()
    }
    if c := plan.chain.contraction:
        found[c.operand] = _result("activation", "rows", "in_features")
        found[c.weight] = _result("activation", width, "in_features")
    return [found[name] for name in renderer.needs()]


def gradient_aliases(variant: Variant, renderer: OpRenderer) -> str:
    """A dict: the gradients that are others, see Operator; empty where none is."""
    made = variant.gradients
    places = {made[name].name: i for i, name in enumerate(renderer.needs()) if name in made}
    places |= {name: i - len(variant.result_gradients) for i, name in enumerate(variant.result_gradients)}
    pairs = [
        f"{places[tensor.name]}: {places[tensor.alias_of.name]}"
        for tensor in made.values()
        if tensor.alias_of is not None and tensor.name in places
    ]
    return f"{{{', '.join(pairs)}}}" if pairs else ""


def mask_sizes(plan: Plan, renderer: OpRenderer) -> list[str]:
    """The sizes of each mask, whose arguments come after those that have gradients."""
    names: dict[Dim, Dim] = {plan.chain.rows: "rows", plan.chain.channels: "channels"}
    return [as_tuple([_literal(_size(dim, names)) for dim in shape]) for _, shape in renderer.masks()]


def _size(dim: Dim, names: Mapping[Dim, Dim]) -> Dim:
    return dim if isinstance(dim, int) and dim not in names else text_of(dim, names)


def _result(role: str, *sizes: Dim) -> str:
    return as_tuple([repr_double(role), *map(_literal, sizes)])


def _literal(size: Dim) -> str:
    """A number, a name, or the pair of both whose product the size is."""
    number, name = factors(size)
    if name is None:
        return str(number)
    return repr_double(name) if number == 1 else f"({number}, {repr_double(name)})"


def repr_double(text: str) -> str:
    """A Python string literal in double quotes."""
    return f'"{text}"'


def roles(plan: Plan) -> list[str]:
    """The fields of a row of the module's table of dtypes."""
    return [dtype_field(role) for role in type_roles(plan.modes[0].roles)]


def as_tuple(texts: list[str]) -> str:
    """A Python tuple of these expressions."""
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"

"""__init__.py of a generated package: the nn.Module around the ops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusegen.plan.dimensions import dimensions, fixed_dimensions
from fusegen.plan.modes import VERIFICATION_DTYPE, alike
from fusegen.plan.plan import Plan
from fusegen.render.call import CallRenderer
from fusegen.render.call_ranks import operator_arguments
from fusegen.render.cuda import chain_lines
from fusegen.render.environment import render
from fusegen.render.functions import as_tuple, repr_double, roles, variant_text
from fusegen.render.operators import OpRenderer
from fusegen.render.original import construct, dimensions_text, extra_repr, reference, reset, shapes, signature
from fusegen.render.types import TORCH, type_roles
from fusegen.spec.model import SpecModel


@dataclass(frozen=True)
class ModeText:
    index: int
    key: list[str]
    autocast: bool
    plain: bool


def render_module(plan: Plan, sources: str) -> str:
    """The text of __init__.py. sources: the digest of the C++ sources beside it."""
    chain, spec = plan.chain, plan.spec
    eager = reference(spec, chain)
    return render(
        "module.py.j2",
        **call_context(plan),
        base="FusedModule",
        about=spec.about.rstrip("."),
        formula=chain_lines(plan),
        sources=sources,
        schemas=[],
        uses_sequence=any(argument.type == "shape" for argument in spec.arguments.values()),
        uses_functional=any("F." in line for line in eager),
        signature=signature(spec, plan.has_precisions),
        construct=construct(plan, eager),
        reset=reset(spec),
        extra_repr=extra_repr(chain),
        shapes=shapes(plan),
        returns=returns(spec),
        eager=eager,
        dropouts=chain.dropouts,
        paths=spec.state_dict,
        typed_inputs=[f"{tensor.name}: Tensor" for tensor in chain.inputs],
    )


def call_context(plan: Plan) -> dict[str, Any]:
    """What the templates of the operators and of the call need to know, of a package or of a region in one file."""
    chain, spec = plan.chain, plan.spec
    renderers = [OpRenderer(plan, variant) for variant in plan.variants]
    call = CallRenderer(plan, renderers)
    inputs = [tensor.name for tensor in chain.inputs]
    of_values = [name for name in inputs if name not in chain.targets]
    further = call.names.further
    return {
        "file": spec.file_stem,
        "name": spec.name,
        "class_name": spec.class_name,
        "modes": _modes(plan, further),
        "dtypes": [as_tuple([TORCH[mode.roles[r]] for r in type_roles(mode.roles)]) for mode in plan.modes],
        "roles": [repr_double(role) for role in roles(plan)],
        "variants": [variant_text(plan, v, r) for v, r in zip(plan.variants, renderers, strict=True)],
        "ranks": operator_arguments(plan),
        "linear": chain.contraction is not None,
        "drops_channels": chain.drops_channels and not chain.exchanged,
        "exchanged": as_tuple([str(each) if each == 1 else repr_double(str(each)) for each in chain.exchanged]),
        "precisions": plan.has_precisions,
        "order": order(plan),
        "dimensions": dimensions_text(dimensions(plan), of_values, fixed_dimensions(chain)),
        "further": bool(further),
        "spatial": chain.spatial,
        "inputs_all": inputs,
        "inputs_tuple": as_tuple(of_values),
        "loss": None if chain.loss is None or chain.loss.reduction == "none" else chain.loss,
        "submodules": call.submodules(),
        "kinds": call.kinds(),
        "body": call.body(),
    }


def returns(spec: SpecModel) -> str:
    """The type of what forward returns."""
    return "Tensor" if spec.outputs is None else f"tuple[{', '.join(['Tensor'] * len(spec.outputs))}]"


def order(plan: Plan) -> str:
    """Where the values that the module returns are among the ops' results; empty where it returns one alone."""
    if plan.spec.outputs is None:
        return ""
    further = list(plan.chain.further_results)
    return as_tuple([str(further.index(name) + 1 if name in further else 0) for name in plan.spec.outputs])


def _modes(plan: Plan, further: list[str]) -> list[ModeText]:
    found = []
    for mode in plan.modes:
        if mode.roles["activation"] == VERIFICATION_DTYPE:
            continue
        keys = ["activation", "parameter", *(f"input {names[0]}" for names in alike(plan.modes, further))]
        key = [TORCH[mode.roles[role]] for role in keys]
        found.append(ModeText(mode.index, key, mode.autocast, mode.plain))
    return found

"""__init__.py of a generated package: the nn.Module around the ops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fusegen.chain.model import Chain
from fusegen.chain.shape import Role
from fusegen.plan.modules.dimensions import dimensions, fixed_dimensions
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.modes import VERIFICATION_DTYPE, alike
from fusegen.render.cuda import chain_lines
from fusegen.render.ops.functions import as_tuple, gradients, repr_double, roles, variant_text
from fusegen.render.ops.op import dtype_field
from fusegen.render.ops.operators import OpRenderer
from fusegen.render.programs.types import TORCH, type_roles
from fusegen.render.python.broadcast_lines import eager_lines
from fusegen.render.python.call import CallRenderer
from fusegen.render.python.call_ranks import operator_arguments
from fusegen.render.python.reference_module import construct, dimensions_text, extra_repr, reset, signature
from fusegen.render.python.regions import base, packages_context, regions_context
from fusegen.render.python.shape_lines import shape_lines
from fusegen.render.text.environment import render
from fusegen.spec.model import SpecModel

_SIZES = {Role.ROW: '"rows"', Role.CHANNEL: '"channels"', Role.ONE: "1"}
"""How a module names the dimensions of a transposed result."""


@dataclass(frozen=True)
class DropoutText:
    """stream: among those of its region."""

    name: str
    stream: int
    by_sample: bool


def render_module(planned: ModulePlan) -> str:
    """The text of __init__.py."""
    spec, eager = planned.spec, eager_lines(planned)
    if planned.single:
        own = {**call_context(planned.single), "regions": [], "kernels": ""}
    else:
        own = {**regions_context(planned), **packages_context(planned)}
        own |= {
            "file": spec.name,
            "name": spec.name,
            "class_name": spec.class_name,
            "precisions": planned.has_precisions,
        }
    return render(
        "module.py.j2",
        **own,
        base=base(planned),
        row_invariant=spec.invariant == "rows",
        shapes=shape_lines(planned),
        about=spec.about.rstrip("."),
        formula=formula(planned),
        uses_sequence=any(argument.type == "shape" for argument in spec.arguments.values()),
        uses_functional=any("F." in line for line in eager),
        signature=signature(spec, planned.has_precisions),
        construct=construct(planned, eager, planned.has_precisions),
        reset=reset(spec),
        extra_repr=extra_repr(*(plan.chain for plan in planned.plans)),
        returns=returns(spec),
        eager=eager,
        dropouts=[*_dropouts(planned)],
        channel_dimension=1 if planned.spatial else -1,
        paths=spec.state_dict,
        typed_inputs=[f"{name}: Tensor" for name in spec.inputs],
    )


def formula(planned: ModulePlan) -> list[str]:
    """The chain in PyTorch's words."""
    if planned.single:
        return chain_lines(planned.single)
    return [line.replace("self.", "") for line in eager_lines(planned)]


def _dropouts(planned: ModulePlan) -> Iterator[DropoutText]:
    for plan in planned.plans:
        for stream, dropout in enumerate(plan.chain.dropouts):
            yield DropoutText(dropout.name, stream, dropout.by_sample)


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
        **_modes(plan, further),
        "dtypes": [as_tuple([TORCH[mode.roles[r]] for r in type_roles(mode.roles)]) for mode in plan.modes],
        "roles": [repr_double(role) for role in roles(plan)],
        "variants": [variant_text(plan, v, r) for v, r in zip(plan.variants, renderers, strict=True)],
        "gradients": gradients(plan, renderers[0]),
        "ranks": operator_arguments(plan),
        "linear": chain.contraction is not None,
        "drops_channels": chain.result.drops_channels,
        "kept_positions": _kept_positions(chain),
        "transposed": as_tuple([_SIZES[role] for role in chain.result.transposed]),
        "precisions": plan.has_precisions,
        "order": order(plan),
        "dimensions": dimensions_text(dimensions(plan), of_values, fixed_dimensions(chain)),
        "spatial": chain.spatial,
        "inputs_all": inputs,
        "inputs_tuple": as_tuple(of_values),
        "loss": chain.result.loss if chain.result.has_own_loss else None,
        "submodules": call.submodules(),
        "kinds": call.kinds(),
        "body": call.body(),
    }


def _kept_positions(chain: Chain) -> int | None:
    """How many dimensions of one position the value at the end has, if it has one value of each channel of an image."""
    return chain.result.roles.count(Role.ONE) if chain.result.of_samples else None


def returns(spec: SpecModel) -> str:
    """The type of what forward returns."""
    return "Tensor" if spec.outputs is None else f"tuple[{', '.join(['Tensor'] * len(spec.outputs))}]"


def order(plan: Plan) -> str:
    """Where the values that the module returns are among the ops' results; empty where it returns one alone."""
    if plan.spec.outputs is None:
        return ""
    further = list(plan.chain.result.further)
    return as_tuple([str(further.index(name) + 1 if name in further else 0) for name in plan.spec.outputs])


def _modes(plan: Plan, further: list[str]) -> dict[str, Any]:
    """The roles whose dtypes tell the mode of a call, and the modes of calls without and under autocast."""
    found = [mode for mode in plan.modes if mode.roles["activation"] != VERIFICATION_DTYPE]
    key = ["activation", "parameter", *(f"input {names[0]}" for names in alike(plan.modes, further))]
    return {
        "key": [repr_double(dtype_field(role)) for role in key],
        "plain": as_tuple([str(mode.index) for mode in found if mode.plain]),
        "autocast": as_tuple([str(mode.index) for mode in found if mode.autocast]),
    }

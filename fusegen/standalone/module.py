"""The text of a standalone file: header, sources, and the module that calls them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from fusegen.paths import SUPPORT
from fusegen.plan.composition import Composition, Planned
from fusegen.plan.model import Mode, Variant
from fusegen.plan.modes import alike
from fusegen.plan.plan import Plan
from fusegen.render.composition import constructed
from fusegen.render.environment import render, wrap
from fusegen.render.functions import as_tuple, same
from fusegen.render.module import returns
from fusegen.render.operators import OpRenderer
from fusegen.render.original import construct, constructor, reference, reference_lines, signature
from fusegen.render.package import support_files
from fusegen.render.types import TORCH
from fusegen.standalone.call import HELPERS, Call
from fusegen.standalone.composed import composed_body, methods
from fusegen.standalone.header import formula, header
from fusegen.standalone.inputs import Inputs
from fusegen.standalone.named import NamedPlan, named_plans
from fusegen.standalone.sources import DIRECTORY, bare, cpp_source, cuda_source, plain, without_passes

_MODULES = re.compile(r"\b(?:nn|_support)\.(Linear|BatchNorm1d|GroupNorm|LayerNorm|RMSNorm|PReLU|Dropout|DropPath)\(")
# Lines of a package's constructor for what a standalone module lacks.
_NOT_HERE = ("_factory", "self._fusegen_initial_", "self.fusegen_precision")
_PIECES = ("_operand_pieces", "_weight_pieces")  # the last tensors of an op that multiplies them


@dataclass(frozen=True)
class FunctionText:
    """An autograd.Function. op: what its ops begin with. arguments: of forward. grads: those that come to the results.
    saved, numbers: what the backward op takes of arguments and results, tensors first. needs: how many of the first
    arguments may have a gradient. sources: those. same: as Operator has it. route: whether it multiplies pieces.
    """

    name: str
    op: str
    about: str
    arguments: str
    results: str
    result: str
    grads: list[str]
    saved: str
    numbers: str
    needs: int
    count: int
    sources: str
    same: str
    route: bool


@dataclass(frozen=True)
class TableText:
    """The modes of a plan, by dtypes: each an expression and its number."""

    name: str
    region: str
    plain: list[tuple[str, int]]
    autocast: list[tuple[str, int]]


def _about(plan: Plan, variant: Variant) -> list[str]:
    if not variant.name:
        return ["The fused chain."]
    training, found = variant.chain.training, []
    if any(tracked for _, tracked in plan.chain.batch_norms):
        found.append("With the statistics of the batch, which move the running ones." if training
                     else "With the running statistics.")  # fmt: skip
    if plan.chain.dropouts:
        found.append("With dropout." if training else "Nothing is dropped.")
    return found


def render_standalone(planned: Planned, inputs: Inputs) -> str:
    """The whole file, in ASCII."""
    cuda, cpp, found = cuda_source(planned), cpp_source(planned), named_plans(planned)
    spec, precisions = planned.spec, any(named.plan.has_precisions for named in found)
    composition = planned if isinstance(planned, Composition) else None
    bodies = [Call(named).body() for named in found] if composition is None else [composed_body(composition)]
    regions = [] if composition is None else methods(composition)
    text_of_calls = "\n".join(line for lines in [*bodies, *(each.body for each in regions)] for line in lines)
    made = _constructed(planned)
    lines = [_MODULES.sub(r"_\1(", line.replace(", **_factory", "")) for line in made]
    lines = [line.replace("_support.check_shape", "_check_shape") for line in lines]
    lines = [line for line in lines if not line.startswith(_NOT_HERE) and line != "pass"]
    unwanted = ("*", "device:", "dtype:", "precision:")
    arguments = [text for text in signature(spec, precisions) if not text.startswith(unwanted)]
    text = render(
        f"{DIRECTORY}/fused.py.j2",
        name=spec.name,
        digest=hashlib.sha256(f"{cuda}\0{cpp}".encode()).hexdigest()[:12],
        header=without_passes(planned, "\n".join(header(planned))).split("\n"),
        cuda=cuda,
        cpp=cpp,
        tables=[_table(named) for named in found],
        functions=[_function(named, variant) for named in found for variant in named.plan.variants],
        several=any(named.plan.spec.outputs is not None for named in found),
        kinds={match for line in made for match in _MODULES.findall(line)},
        calls_layers=composition is not None and any(part.plan is None for part in composition.parts),
        helpers=[name for name in HELPERS.values() if name in text_of_calls],
        uses_sequence=any("Sequence[" in each for each in arguments),
        uses_shape=any("_check_shape" in line for line in lines),
        signature=arguments,
        construct=lines,
        formula=[bare(line) for line in formula(planned)],
        returns=returns(spec).replace("Tensor", "torch.Tensor"),
        inputs_all=[f"{name}: torch.Tensor" for name in spec.inputs],
        body=bodies[0],
        methods=regions,
        given=inputs,
        route=_route() if precisions else "",
        architectures=";".join(_architecture(target) for target in spec.targets),
    )
    return plain(text)


def _architecture(target: str) -> str:
    """As torch names it: 9.0a for sm_90a."""
    return re.sub(r"sm_(\d+)(\d)", r"\1.\2", target)


def _constructed(planned: Planned) -> list[str]:
    """The constructor's body, as a package has it."""
    if not isinstance(planned, Composition):
        return construct(planned, reference(planned.spec, planned.chain))
    chains = [plan.chain for plan in planned.plans]
    return constructor(planned.spec, chains, constructed(planned), reference_lines(planned.spec), precisions=False)


def _route() -> str:
    """Where splitting operands is worth it, as packages have it: product_route.py without its first lines."""
    text = support_files()[f"{SUPPORT}/product_route.py"]
    return text.partition("\nfrom typing import NamedTuple\n")[2].strip("\n")


def _table(named: NamedPlan) -> TableText:
    modes = named.plan.modes
    groups = alike(modes, list(named.plan.chain.further))
    roles = ["activation", "parameter", *(f"input {names[0]}" for names in groups)]

    def row(mode: Mode) -> tuple[str, int]:
        return as_tuple([TORCH[mode.roles[role]] for role in roles]), mode.index

    return TableText(
        name=named.modes,
        region=named.region,
        plain=[row(mode) for mode in modes if mode.plain],
        autocast=[row(mode) for mode in modes if mode.autocast],
    )


def _function(named: NamedPlan, variant: Variant) -> FunctionText:
    plan = named.plan
    renderer = OpRenderer(plan, variant)
    forward, backward, c = renderer.forward(), renderer.backward(), variant.chain.contraction
    saved, numbers = [], []
    count = len(variant.result_gradients)
    for argument in backward.arguments[count:-1]:
        text = argument.public
        if "Tensor" not in argument.cpp:
            numbers.append(text)
            continue
        if c and text in (c.operand, c.weight, *_PIECES):  # each serves the gradient of the other alone
            text = f"{text} if _needs[{1 if text in (c.operand, _PIECES[0]) else 0}] else None"
        saved.append(text)
    return FunctionText(
        name=named.function(variant),
        op=f"{named.kernels}.{forward.function.removesuffix('forward')}",
        about=" ".join([*([f"The region {named.region}."] if named.region else []), *_about(plan, variant)]),
        arguments=wrap(", ".join(argument.public for argument in forward.arguments), 80, 8),
        results=", ".join(forward.returns) + ("," if len(forward.returns) == 1 else ""),
        result=", ".join(forward.returns[:count]),
        grads=["_grad"] if count == 1 else [f"_grad_{i}" for i in range(count)],
        saved=wrap(", ".join(saved), 80, 16),
        numbers=as_tuple(numbers),
        needs=len(backward.needs),
        count=len(forward.arguments),
        sources=wrap(", ".join(argument.public for argument in forward.arguments[: len(backward.needs)]), 80, 20),
        same=same(variant, renderer),
        route=plan.has_precisions,
    )

"""The text of a standalone file: header, sources, and the module that calls them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from fusegen.paths import SUPPORT
from fusegen.plan.model import Mode, Variant
from fusegen.plan.plan import Plan
from fusegen.render.cuda import chain_lines
from fusegen.render.environment import render, wrap
from fusegen.render.functions import as_tuple, same
from fusegen.render.operators import OpRenderer
from fusegen.render.original import construct, reference, signature
from fusegen.render.package import support_files
from fusegen.render.types import TORCH
from fusegen.standalone.call import Call, function_name
from fusegen.standalone.header import header
from fusegen.standalone.inputs import Inputs
from fusegen.standalone.sources import DIRECTORY, bare, cpp_source, cuda_source, plain, without_passes

_MODULES = re.compile(r"\bnn\.(Linear|BatchNorm1d|GroupNorm|LayerNorm|RMSNorm|PReLU)\(")
# Lines of a package's constructor for what a standalone module lacks.
_NOT_HERE = ("_factory", "self._fusegen_initial_", "self.fusegen_precision")
_PIECES = ("_operand_pieces", "_weight_pieces")  # the last tensors of an op that multiplies them


@dataclass(frozen=True)
class FunctionText:
    """An autograd.Function. arguments: of forward. saved, numbers: what the backward op takes of arguments and results,
    tensors first. needs: how many of the first arguments may have a gradient. sources: those. same: as Operator has it.
    """

    name: str
    op: str
    about: str
    arguments: str
    results: str
    result: str
    saved: str
    numbers: str
    needs: int
    count: int
    sources: str
    same: str


_ABOUT = {
    "train": "With the statistics of the batch, which move the running ones.",
    "eval": "With the running statistics.",
    "": "The fused chain.",
}


def render_standalone(plan: Plan, inputs: Inputs) -> str:
    """The whole file, in ASCII."""
    cuda, cpp, call = cuda_source(plan), cpp_source(plan), Call(plan)
    lines = [
        _MODULES.sub(r"_\1(", line.replace(", **_factory", ""))
        for line in construct(plan, reference(plan.spec, plan.chain))
    ]
    lines = [line.replace("_support.check_shape", "_check_shape") for line in lines]
    lines = [line for line in lines if not line.startswith(_NOT_HERE) and line != "pass"]
    arguments = [
        text
        for text in signature(plan.spec, plan.has_precisions)
        if not text.startswith(("*", "device:", "dtype:", "precision:"))
    ]
    text = render(
        f"{DIRECTORY}/fused.py.j2",
        name=plan.spec.name,
        digest=hashlib.sha256(f"{cuda}\0{cpp}".encode()).hexdigest()[:12],
        header=without_passes(plan, "\n".join(header(plan))).split("\n"),
        cuda=cuda,
        cpp=cpp,
        modes=[(_key(plan, mode), mode.index) for mode in plan.modes if mode.plain],
        autocast_modes=[(_key(plan, mode), mode.index) for mode in plan.modes if mode.autocast],
        functions=[_function(plan, variant) for variant in plan.variants],
        kinds={match for line in construct(plan, []) for match in _MODULES.findall(line)},
        helpers=call.helpers(),
        uses_sequence=any("Sequence[" in each for each in arguments),
        uses_shape=any("_check_shape" in line for line in lines),
        signature=arguments,
        construct=lines,
        formula=[bare(line) for line in chain_lines(plan)],
        inputs_all=[f"{tensor.name}: torch.Tensor" for tensor in plan.chain.inputs],
        body=call.body(),
        given=inputs,
        route=_route() if plan.has_precisions else "",
    )
    return plain(text)


def _route() -> str:
    """Where splitting operands is worth it, as packages have it: product_route.py without its first lines."""
    text = support_files()[f"{SUPPORT}/product_route.py"]
    return text.partition("\nfrom typing import NamedTuple\n")[2].strip("\n")


def _key(plan: Plan, mode: Mode) -> str:
    roles = ["activation", "parameter", *(f"input {name}" for name in list(plan.chain.further)[:1])]
    return as_tuple([TORCH[mode.roles[role]] for role in roles])


def _function(plan: Plan, variant: Variant) -> FunctionText:
    renderer = OpRenderer(plan, variant)
    forward, backward, c = renderer.forward(), renderer.backward(), variant.chain.contraction
    saved, numbers = [], []
    for argument in backward.arguments[1:-1]:
        text = argument.public
        if "Tensor" not in argument.cpp:
            numbers.append(text)
            continue
        if c and text in (c.operand, c.weight, *_PIECES):  # each serves the gradient of the other alone
            text = f"{text} if _needs[{1 if text in (c.operand, _PIECES[0]) else 0}] else None"
        saved.append(text)
    return FunctionText(
        name=function_name(variant),
        op=forward.function.removesuffix("forward"),
        about=_ABOUT[variant.name],
        arguments=wrap(", ".join(argument.public for argument in forward.arguments), 80, 8),
        results=", ".join(forward.returns) + ("," if len(forward.returns) == 1 else ""),
        result=forward.returns[0],
        saved=wrap(", ".join(saved), 80, 16),
        numbers=as_tuple(numbers),
        needs=len(backward.needs),
        count=len(forward.arguments),
        sources=wrap(", ".join(argument.public for argument in forward.arguments[: len(backward.needs)]), 80, 20),
        same=same(variant, renderer),
    )

"""kernels.cu: every kernel of a plan and its launchers."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from fusegen.ir.graph import Node
from fusegen.plan.model import Kernel, Program, Variant
from fusegen.plan.plan import Plan
from fusegen.render.contexts import KernelContext
from fusegen.render.environment import render
from fusegen.render.expressions import Expressions
from fusegen.render.kernels import KernelRenderer
from fusegen.render.launchers import LauncherRenderer, mode_contexts
from fusegen.render.launchers_header import namespace, symbol
from fusegen.render.layout import tidy
from fusegen.render.tuning import table
from fusegen.render.types import type_parameter, type_roles


@dataclass(frozen=True)
class ProgramText:
    title: str
    omitted: str  # the macro that leaves the program out
    formula: list[str]
    kernels: list[str]
    launcher: str
    entry: str


@dataclass(frozen=True)
class KernelText:
    text: str
    types: list[str]  # its template parameters that are types


@dataclass(frozen=True)
class Uses:
    """Which kinds of kernel the file has, and whether it has tables of launch shapes."""

    row: bool
    column: bool
    panel: bool
    total: bool
    tuning: bool


def render_kernels(plan: Plan) -> str:
    """The text of kernels.cu."""
    kinds = {kernel.kind for program in plan.programs for kernel in program.kernels}
    tuning = any(table(plan, program) for program in plan.programs)
    text = render(
        "kernels.cu.j2",
        name=plan.spec.name,
        namespace=namespace(plan.spec.name),
        about=plan.spec.about or plan.spec.name,
        formula=chain_lines(plan),
        device=plan.device,
        uses=Uses(bool(kinds & {"row", "segment"}), "column" in kinds, "panel" in kinds, "total" in kinds, tuning),
        programs=[_program(plan, variant, p) for variant in plan.variants for p in (variant.forward, variant.backward)],
    )
    return tidy(text)


def chain_lines(plan: Plan) -> list[str]:
    """The chain in PyTorch's words, one line a step."""
    running, lines = plan.chain.inputs[0].name, []
    taken = {*plan.spec.inputs, *(step.save for step in plan.spec.chain)}
    names = itertools.chain(["y"], (f"y_{i}" for i in itertools.count(2)))
    last = next(name for name in names if name not in taken)
    for step in plan.spec.chain:
        result = step.save or last
        lines.append(f"{result} = {step.eager(running)}".replace("self.", ""))
        running = result
    return lines


def _program(plan: Plan, variant: Variant, program: Program) -> ProgramText:
    roles = type_roles(plan.modes[0].roles)
    types = [type_parameter(role) for role in roles]
    contexts = {kernel.name: KernelRenderer(kernel).context() for kernel in _distinct(program)}
    kernels = {name: _kernel(context, types) for name, context in contexts.items()}
    used = {name: kernel.types for name, kernel in kernels.items()}
    launcher = LauncherRenderer(program, contexts, types, used, symbol(plan.spec.name, program)).context()
    modes = mode_contexts(plan.modes)
    tuned = table(plan, program)
    return ProgramText(
        title=program.name.replace("_", " "),
        omitted="FUSEGEN_BACKWARD_ONLY" if program is variant.forward else "FUSEGEN_FORWARD_ONLY",
        formula=_formula(program),
        kernels=[kernel.text for kernel in kernels.values()],
        launcher=render("launcher.cu.j2", p=launcher, types=_declared(types), modes=modes, tuned=tuned),
        entry=render("entry.cu.j2", p=launcher, tuned=tuned),
    )


def _kernel(context: KernelContext, types: list[str]) -> KernelText:
    """The kernel as a template over those of the types that it names, or over what it accumulates in where that is
    all it has of activations: no instance for a dtype that makes no difference."""
    every = _declared(types)
    text = render(f"kernels/{context.kind}.cu.j2", k=context, types=every)
    body = text.replace(every, "", 1)
    used = [name for name in types if re.search(rf"\b{name}\b", body)]
    accumulator = type_parameter("accumulator")
    if not re.search(r"\bT\b", body.replace(accumulator, "")):
        text = text.replace(f"  using Acc = {accumulator};\n", "").replace(accumulator, "Acc")
        used = ["Acc", *(name for name in used if name != "T")]
    return KernelText(text.replace(every, _declared(used), 1), used)


def _declared(types: list[str]) -> str:
    return ", ".join(f"typename {name}" for name in types)


def _distinct(program: Program) -> list[Kernel]:
    """Each kernel once; alternatives may share one."""
    found: dict[str, Kernel] = {}
    for kernel in program.kernels:
        found.setdefault(kernel.name, kernel)
    return list(found.values())


def _formula(program: Program) -> list[str]:
    """What the program computes, element by element."""
    writer = Expressions(lambda node: node.name)
    last = program.schedules[-1].kernels
    apply_ = next(kernel for kernel in reversed(last) if kernel.kind == "stream")
    pass_ = apply_.passes[0]
    sinks: list[Node] = [t.node for t in pass_.stores] + [operand for n in pass_.sums for operand in n.operands]
    lines = writer.statements(pass_.values, sinks, lambda node, text: f"{node.name} = {text}")
    lines += [f"{t.name} = {writer.operand(t.node)}" for t in pass_.stores if writer.operand(t.node) != t.name]
    lines += [f"{node.name} = sum over the rows of {writer.operand(node.operands[0])}" for node in pass_.sums]
    return [re.sub(r"Acc\(([^()]*)\)", r"\1", line) for line in lines]

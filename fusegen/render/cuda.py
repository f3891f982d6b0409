"""kernels.cu: the programs of a plan, and their launchers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fusegen.ir.functions.catalogue import FUNCTIONS, known_of
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Program, Variant
from fusegen.render.programs.launchers_header import (
    copy_symbol,
    mean_loss_symbol,
    merge_symbol,
    namespace,
    scale_symbol,
    struct,
    symbol,
)
from fusegen.render.programs.program import StructRenderer
from fusegen.render.programs.program_text import StructText
from fusegen.render.programs.tuning import Table, table
from fusegen.render.programs.types import type_parameter, type_roles
from fusegen.render.python.reference_module import batched_lines, returned
from fusegen.render.text.environment import render
from fusegen.render.text.identifiers import type_name
from fusegen.render.text.layout import tidy

# What kernels/entry.cuh includes for every program: the kernel of passes over memory, and the schedules of these.
_IN_ENTRY = {"pointwise", "two_pass"}


@dataclass(frozen=True)
class ProgramText:
    """headers: what it needs of templates/support, besides what all need."""

    title: str
    omitted: str  # the macro that leaves the program out
    name: str
    symbol: str
    arguments: str
    struct: str
    tuned: Table | None
    in_epilogue: bool
    headers: frozenset[str]


def render_kernels(plan: Plan, definitions: bool = True) -> str:
    """The text of kernels.cu. definitions: whether it has the functions that templates/support lacks."""
    programs, ranks, copier, reducer = [*_programs(plan)], _ranks(plan), _copier(plan), _reducer(plan)
    scaler = scale_symbol(plan)
    besides = {"ranks": ranks, "kernels/image_copy": copier, "kernels/mean_loss": reducer, "kernels/scale": scaler}
    headers = {"activations", "kernels/entry", *(header for header, used in besides.items() if used)}
    headers = headers.union(*(program.headers for program in programs))
    text = render(
        "kernels.cu.j2",
        file=plan.spec.file_stem,
        name=plan.spec.name,
        about=plan.spec.about or plan.spec.name,
        formula=chain_lines(plan),
        definitions=_definitions([plan]) if definitions else [],
        namespace=namespace(plan.spec.name),
        headers=sorted(headers),
        programs=programs,
        ranks=ranks,
        copier=copier,
        reducer=reducer,
        scaler=scaler,
    )
    return tidy(text)


def render_definitions(plans: Iterable[Plan]) -> str:
    """The C++ text of the functions that templates/support lacks, for several plans in one source; empty without
    such."""
    found = _definitions(plans)
    return tidy(render("definitions.cu.j2", definitions=found)) if found else ""


def _definitions(plans: Iterable[Plan]) -> list[str]:
    """The C++ of the functions that templates/support lacks, each once, line by line."""
    programs = [program for plan in plans for program in plan.programs]
    used = {known_of(node) for program in programs for node in _computed(program)}
    found = [function.definition.strip() for function in FUNCTIONS.values() if function.definition and function in used]
    return [line for text in dict.fromkeys(found) for line in ["", *text.splitlines()]]


def _computed(program: Program) -> set[Node]:
    given = {tensor.node for tensor in program.inputs}
    return set(ancestors([tensor.node for tensor in program.outputs], given)) - given


def chain_lines(plan: Plan) -> list[str]:
    """The chain in PyTorch's words."""
    steps, running = lines_of_steps(plan)
    lines = [*batched_lines(plan.chain), *itertools.chain.from_iterable(steps)]
    return lines if plan.spec.outputs is None else [*lines, f"return {returned(plan.spec, running)}"]


def lines_of_steps(plan: Plan) -> tuple[list[list[str]], str]:
    """The PyTorch statements of each step, and the variable of the last step's result."""
    running, lines = plan.chain.inputs[0].name, list[list[str]]()
    taken = {*plan.spec.inputs, *(name for step in plan.spec.chain for name in step.saved)}
    names = itertools.chain(["y"], (f"y_{i}" for i in itertools.count(2)))
    last = next(name for name in names if name not in taken)
    for step in plan.spec.chain:
        made, running = step.lines(step.from_ or running, last, plan.chain.spatial)
        lines.append([line.replace("self.", "") for line in made])
    return lines, running


def _ranks(plan: Plan) -> dict[str, str]:
    """What merges the statistics of several ranks: its launcher, and the parameters of a template over dtypes."""
    if plan.sync_batch_norm is None:
        return {}
    return {"symbol": merge_symbol(plan.spec.name), "types": _type_parameters(plan, "activation", "parameter")}


def _copier(plan: Plan) -> dict[str, str]:
    """What copies images: as above; nothing where there is no convolution."""
    symbol = copy_symbol(plan)
    return {"symbol": symbol, "types": _type_parameters(plan, "activation")} if symbol else {}


def _reducer(plan: Plan) -> dict[str, str]:
    """What takes the mean of losses: as above."""
    symbol = mean_loss_symbol(plan)
    return {"symbol": symbol, "types": _type_parameters(plan, "output")} if symbol else {}


def _type_parameters(plan: Plan, *roles: str) -> str:
    """The parameters of a template over dtypes, with names for those of some roles."""
    used = {type_parameter(role) for role in roles}
    names = [type_parameter(role) for role in type_roles(plan.modes[0].roles)]
    return ", ".join(f"typename {name}_" if name in used else "typename" for name in names)


def _programs(plan: Plan) -> Iterator[ProgramText]:
    for variant in plan.variants:
        yield _program(plan, variant, variant.forward, forward=True)
        yield _program(plan, variant, variant.backward, forward=False)
        if variant.chunk:
            yield _program(plan, variant, variant.chunk, forward=False)
    ranks = plan.sync_batch_norm
    if ranks:
        for program in ranks.programs:
            forward = program in (ranks.statistics, ranks.variant.forward)
            yield _program(plan, ranks.variant, program, forward)


def _program(plan: Plan, variant: Variant, program: Program, forward: bool) -> ProgramText:
    types = [type_parameter(role) for role in type_roles(plan.modes[0].roles)]
    activation = type_parameter("activation")
    parameters = [f"typename {name}_" if name == activation else f"typename {name}" for name in types]
    in_epilogue, tuned = plan.in_epilogue(program), table(plan, program)
    contraction = variant.chain.contraction if in_epilogue else None
    described = StructRenderer(program, contraction.result if contraction else None).text()
    text = render(
        "program.cu.j2",
        p=described,
        types=", ".join(parameters),
        activation=f"{activation}_",
        row_invariant=plan.spec.invariant == "rows",
    )
    return ProgramText(
        title=program.name.replace("_", " "),
        omitted="FUSEGEN_BACKWARD_ONLY" if forward else "FUSEGEN_FORWARD_ONLY",
        name=type_name(program.name),
        symbol=symbol(plan.spec.name, program),
        arguments=struct(program),
        struct=text,
        tuned=tuned,
        in_epilogue=in_epilogue,
        headers=_headers(program, described, {"contraction/entry": in_epilogue, "tuning": tuned is not None}),
    )


def _headers(program: Program, described: StructText, besides: Mapping[str, bool]) -> frozenset[str]:
    """besides: headers, and whether the program needs each."""
    used = {"dropout": bool(described.dropouts), "kernels/pooled": bool(described.pooling), **besides}
    used["window_gradients"] = program.pool is not None and not described.pooling
    used["kernels/tile_passes"] = bool(described.outer_reads or described.outer_writes)
    by_samples_alone = bool(program.phases) and all(phase.unit.of_samples for phase in program.phases)
    used["kernels/plane_shared_schedule"] = used["kernels/tile_passes"] and by_samples_alone
    by_samples = described.of_samples or any(kernel.kind == "sample_reduction" for kernel in program.kernels)
    used["kernels/final_reduction_of_parts"] = by_samples
    schedules = {schedule.kind for schedule in program.schedules} - _IN_ENTRY
    others = {kernel.kind for kernel in program.kernels} - _IN_ENTRY - schedules
    used |= {f"kernels/{kind}_schedule": True for kind in schedules} | {f"kernels/{kind}": True for kind in others}
    return frozenset(header for header, needed in used.items() if needed)

"""launchers.h: the interface of a package's launchers, which kernels.cu, bindings.cpp and Python share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Program, Tensor
from fusegen.render.programs.sizes import size_text
from fusegen.render.programs.types import DTYPES, type_roles
from fusegen.render.text.environment import render
from fusegen.render.text.identifiers import identifier, type_name
from fusegen.render.text.layout import WIDTH, tidy

_ROLES = {"activation": "activations", "output": "the result", "parameter": "parameters"}
SAMPLE_ROWS = "sample_rows"
"""The rows of a sample, of which drop paths draw one factor each. No name of a spec: those have endings."""


@dataclass(frozen=True)
class Argument:
    """A member of a launcher's arguments. name: the plan's. type: of C++; int64_t for how many rows a tensor has that
    has fewer than others. comment: what the type does not say."""

    name: str
    type: str
    comment: str = ""

    @property
    def member(self) -> str:
        if self.is_count:
            return identifier(self.name, "own")
        return self.name if self.type == "int64_t" else identifier(self.name, "arg")

    @property
    def is_count(self) -> bool:
        """Whether it is how many rows a tensor has that has fewer than others."""
        return self.type == "int64_t" and self.name != SAMPLE_ROWS

    @property
    def is_pointer(self) -> bool:
        return self.type.endswith("*")


@dataclass(frozen=True)
class ProgramText:
    title: str
    symbol: str
    struct: str
    members: list[str]
    constants: bool
    in_epilogue: bool


def symbol(spec_name: str, program: Program) -> str:
    """The C name of a program's launcher."""
    return f"fusegen_{spec_name}_{program.name}"


def merge_symbol(spec_name: str) -> str:
    """The C name of the launcher that merges the statistics of several ranks."""
    return f"fusegen_{spec_name}_ranks_merge"


def copy_symbol(plan: Plan) -> str:
    """The C name of the launcher that copies images, or nothing where there are none."""
    return f"fusegen_{plan.spec.name}_image_copy" if plan.chain.spatial else ""


def mean_loss_symbol(plan: Plan) -> str:
    """The C name of the launcher that takes the mean of losses, or nothing where there is none."""
    return f"fusegen_{plan.spec.name}_mean_loss" if plan.chain.result.takes_mean else ""


def scale_symbol(plan: Plan) -> str:
    """The C name of the launcher that multiplies a gradient by a number, or nothing where none has to."""
    return f"fusegen_{plan.spec.name}_scale" if plan.chain.result.in_chunks else ""


def namespace(spec_name: str) -> str:
    """That of a package's structs, within `fusegen`: one source may include the launchers of several packages."""
    return f"{spec_name}_launchers"


def struct(program: Program) -> str:
    """The type of a launcher's arguments."""
    return type_name(program.name) + "Arguments"


def argument_tensors(program: Program) -> Iterator[tuple[Tensor, bool]]:
    """Inputs, then outputs, and whether each is written; a tensor that is both comes once, where it is written."""
    written = {t.name for t in program.made}
    yield from ((tensor, False) for tensor in program.given if tensor.name not in written)
    yield from ((tensor, True) for tensor in program.made)


def arguments(program: Program) -> list[Argument]:
    """The members of `struct(program)` in their order: tensors, how many rows some have, constants of the module, then
    our own."""
    tensors = [
        Argument(tensor.name, "void*" if written else "const void*", _comment(tensor))
        for tensor, written in argument_tensors(program)
    ]
    counts = [Argument(tensor.name, "int64_t", "rows") for tensor in program.inputs if tensor.compact]
    numbers = [Argument(name, "double") for name in program.constants]
    samples = [Argument(SAMPLE_ROWS, "int64_t")] if program.draws_samples else []
    return [*tensors, *counts, *numbers, *samples]


def render_launchers_header(plan: Plan) -> str:
    """The text of launchers.h."""
    text = render(
        "launchers.h.j2",
        file=plan.spec.file_stem,
        name=plan.spec.name,
        namespace=namespace(plan.spec.name),
        programs=[
            ProgramText(
                title=program.name.replace("_", " "),
                symbol=symbol(plan.spec.name, program),
                struct=struct(program),
                members=_members(arguments(program)),
                constants=bool(program.constants),
                in_epilogue=plan.in_epilogue(program),
            )
            for program in plan.programs
        ],
        roles=[_ROLES.get(role, role) for role in type_roles(plan.modes[0].roles)],
        modes=[(mode.name, [DTYPES[mode.roles[role]] for role in type_roles(mode.roles)]) for mode in plan.modes],
        ranks=merge_symbol(plan.spec.name) if plan.sync_batch_norm else "",
        reducer=mean_loss_symbol(plan),
        scaler=scale_symbol(plan),
        copier=copy_symbol(plan),
        in_epilogue=any(map(plan.in_epilogue, plan.programs)),
    )
    return tidy(text)


def _comment(tensor: Tensor) -> str:
    shape = size_text(tensor)
    if tensor.in_product:
        return f"{shape}; null where the product has it"
    if tensor.optional:
        return f"{shape}; null: not {'wanted' if tensor.gradient_of else 'there'}"
    return shape


def _members(found: list[Argument]) -> list[str]:
    """One line each, with the comments below each other; above the members where one would be too long."""
    declared = [f"{each.type} {each.member};" for each in found]
    width = max(map(len, declared))
    beside = [f"{text:{width}}  // {each.comment}" for text, each in zip(declared, found, strict=True) if each.comment]
    if all(len(line) + 2 <= WIDTH for line in beside):
        return [*beside, *(text for text, each in zip(declared, found, strict=True) if not each.comment)]
    lines = []
    for text, each in zip(declared, found, strict=True):
        lines += [f"// {each.comment}", text] if each.comment else [text]
    return lines

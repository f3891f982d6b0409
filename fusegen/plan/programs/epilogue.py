"""Whether a forward program can run in the epilogue of the product that it begins with."""

from __future__ import annotations

from fusegen.plan.programs.model import Program
from fusegen.plan.programs.units import Unit
from fusegen.spec.model import SpecModel

SPLIT = "fp32_split"
EPILOGUE = "epilogue"  # what explanations call it
TARGET = "sm_90"  # whose tensor cores our own kernel of the product is for

_TOO_WIDE = {
    Unit.CHANNEL: "a tile has some of the rows that it sums over, not all of them",
    Unit.ROW: "a tile has a part of each row that it sums over",
    **dict.fromkeys((Unit.SAMPLE, Unit.SAMPLE_GROUP), "a tile has some of the rows of a sample, not all of them"),
    Unit.GROUP: "it sums over groups of channels",
}


def is_split(spec: SpecModel) -> bool:
    """Whether the product is our own kernel's unless a module is told otherwise."""
    return getattr(spec.chain[0], "precision", None) == SPLIT and "float32" in spec.dtypes


def why_after_product(program: Program) -> str | None:
    """Why a program has to run in kernels of its own, by what it computes; None if the epilogue can take it."""
    if any(tensor.part for tensor in (*program.inputs, *program.outputs)):
        return "a tile has columns of one part of it"
    if program.draws:
        return "dropout draws for four neighbours at once, and a thread has two of them there"
    for phase in program.phases:
        return _TOO_WIDE.get(phase.unit, _TOO_WIDE[Unit.CHANNEL])
    return _TOO_WIDE[Unit.CHANNEL] if program.terminal or program.scalar_sums else None


def reason(program: Program) -> str:
    """Where a program runs in modules of that precision, for people."""
    why = why_after_product(program)
    if why is None:
        return f"under {SPLIT} it runs in the epilogue of the product, on GPUs of {TARGET}"
    return f"under {SPLIT} it runs after the product: {why}"

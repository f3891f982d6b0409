"""The fewest bytes that the tail of a chain has to move: every input read once, every result written once."""

from __future__ import annotations

import math

from fusegen.bench.names import EVAL, STEP
from fusegen.ops.step import WIDTH
from fusegen.plan.model import Mode, Program, Tensor
from fusegen.plan.plan import Plan
from fusegen.plan.same import is_launched, is_written
from fusegen.plan.sizes import shape_of_input
from fusegen.verify.emulated import in_product
from fusegen.verify.sizes import Sizes

# Roles with a width of their own in every mode that is timed: float32 statistics, int64 counts.
_FIXED = {"accumulator": 4, "count": 8, "index": 8, "seed": 8, "mask": 1}


def tail_bytes(plan: Plan, mode: Mode, sizes: Sizes, what: str) -> tuple[int, ...]:
    """Bytes of each direction of the tail in `what`, a mode of bench/names.py: forward, then backward if it has one.

    What the contraction reads and writes is not counted, except that the tail reads its result.
    """
    return tuple(_program_bytes(plan, program, mode, sizes) for program in tail_programs(plan, what))


def tail_programs(plan: Plan, what: str) -> list[Program]:
    """What runs of the tail in `what`: forward, then backward if there is one."""
    variant = plan.variants[-1 if what == EVAL else 0]
    return [variant.forward, *([variant.backward] if what == STEP else [])]


def _program_bytes(plan: Plan, program: Program, mode: Mode, sizes: Sizes) -> int:
    if not is_launched(mode, program):
        return 0
    # A bias that the library adds is none of the tail's. Running statistics that are updated are read and written.
    read = [tensor for tensor in program.inputs if not in_product(plan, mode, tensor.name)]
    written = [tensor for tensor in program.outputs if is_written(mode, tensor)]
    return sum(_tensor_bytes(plan, tensor, mode, sizes) for tensor in (*read, *written))


def _tensor_bytes(plan: Plan, tensor: Tensor, mode: Mode, sizes: Sizes) -> int:
    width = _FIXED.get(tensor.role) or WIDTH[mode.roles[tensor.role]]
    if tensor.compact or tensor.samples:
        return math.prod(shape_of_input(plan, tensor.samples or tensor.name, sizes.symbols)) * width
    return math.prod(sizes.shape(tensor.axes)) * width

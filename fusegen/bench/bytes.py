"""The fewest bytes that the tail of a chain has to move: every input read once, every result written once."""

from __future__ import annotations

from fusegen.bench.names import EVAL, STEP
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode, Program
from fusegen.plan.sizes.bytes import program_bytes
from fusegen.plan.sizes.chain_sizes import Sizes


def tail_bytes(plan: Plan, mode: Mode, sizes: Sizes, what: str) -> tuple[int, ...]:
    """Bytes of each direction of the tail in `what`, a mode of bench/names.py: forward, then backward if it has one.

    What the contraction reads and writes is not counted, except that the tail reads its result.
    """
    return tuple(program_bytes(plan, mode, sizes.symbols, program) for program in tail_programs(plan, what))


def tail_programs(plan: Plan, what: str) -> list[Program]:
    """The programs of the tail in `what`: forward, then backward if there is one."""
    variant = plan.variants[-1 if what == EVAL else 0]
    return [variant.forward, *([variant.backward] if what == STEP else [])]

"""What the promise of `invariant: rows` costs: for `fusegen plan`."""

from __future__ import annotations

from fusegen.ops.step import WIDTH
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode
from fusegen.plan.sizes.chain_sizes import Sizes

# As support/call.h has them.
ROWS_OF_LAUNCHES, ROWS_OF_PRODUCTS = 8192, 2048
_VECTOR = 16  # bytes


def invariance(plan: Plan, mode: Mode, sizes: Sizes) -> tuple[str, ...]:
    """Lines; none of a spec that promises nothing."""
    if not plan.spec.invariant:
        return ()
    lines = [f"rows have the same bits in any batch: kernels are launched as for {ROWS_OF_LAUNCHES} rows"]
    if plan.chain.contraction:
        lines.append(
            f"products are made as for {ROWS_OF_PRODUCTS} rows, by algorithms that divide no sum: "
            "fewer rows, and TF32, take longer"
        )
    lengths = [sizes.channels // sizes.groups(program) for program in plan.programs]
    odd = next((each for each in lengths if each * WIDTH[mode.roles["activation"]] % _VECTOR), None)
    if odd is not None:
        lines.append(
            f"{odd} elements are no multiple of {_VECTOR} bytes: kernels move them one by one, which takes longer"
        )
    return tuple(lines)

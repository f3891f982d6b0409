"""Values of each row that meet a value for each channel in a dimension in front of the rows.

[rows, 1] and [1, channels, 1, 1] broadcast to [1, channels, rows, 1]. To the graph that is [rows, channels], as where a
value for each channel stands in the last dimension. The module exchanges both dimensions of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.chain.model import CHANNELS_OF_RESULT, ROWS_OF_RESULT
from fusegen.ir.axes import ROW, Dim


def exchange(builder: Any, shape: Sequence[Dim | None]) -> bool:
    """Whether an operand of this shape has a value for each channel in front of the running value's dimensions, so that
    the rows come behind the channels from now on. builder: a ModuleBuilder, which then knows the result's form."""
    running = builder.running[-1] if builder.running else None
    views = builder.positions is not None or builder.in_batches or builder.leading or builder.trailing
    if running is None or running.axes != ROW or views or builder.exchanged or builder.channels is None:
        return False
    own = (ROWS_OF_RESULT,) if builder.dropped_channels else (ROWS_OF_RESULT, 1)
    front, behind = shape[: -len(own)], shape[len(shape) - len(own) :]
    if any(dim != 1 for dim in behind) or [dim for dim in front if dim != 1] != [builder.channels]:
        return False
    builder.exchanged = (*(1 if dim == 1 else CHANNELS_OF_RESULT for dim in front), *own)
    builder.dropped_channels = False
    return True


def why_not_exchanged(builder: Any, step: Any) -> str | None:
    """Why a step cannot be behind such a sum; None where it can: it is a function of single elements."""
    if not builder.exchanged or step.is_pointwise:
        return None
    shape = ", ".join(map(str, builder.exchanged))
    return f"the running value is [{shape}]: only a function of its elements, or a number, can follow"

"""Values of each row that meet a value for each channel in a dimension in front of the rows.

[rows, 1] and [1, channels, 1, 1] broadcast to [1, channels, rows, 1]. To the graph that is [rows, channels], as where a
value for each channel stands in the last dimension. The module transposes both dimensions of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.chain.shape import Role
from fusegen.ir.axes import ROW, Dim


def transpose(builder: Any, shape: Sequence[Dim | None]) -> bool:
    """Whether an operand of this shape has a value for each channel in front of the running value's dimensions, so that
    the rows come behind the channels from now on. builder: a ModuleBuilder, which then knows the result's form."""
    running = builder.running[-1] if builder.running else None
    is_matrix = builder.shape.roles == (Role.ROW, Role.CHANNEL)
    if running is None or running.axes != ROW or not is_matrix or builder.transposed or builder.channels is None:
        return False
    own = (Role.ROW,) if builder.dropped_channels else (Role.ROW, Role.ONE)
    front, behind = shape[: -len(own)], shape[len(shape) - len(own) :]
    if any(dim != 1 for dim in behind) or [dim for dim in front if dim != 1] != [builder.channels]:
        return False
    builder.transposed = (*(Role.ONE if dim == 1 else Role.CHANNEL for dim in front), *own)
    builder.dropped_channels = False
    return True


def why_not_transposed(builder: Any, step: Any) -> str | None:
    """Why a step cannot be behind such a sum; None where it can: it is a function of single elements."""
    if not builder.transposed or step.is_pointwise:
        return None
    words = {Role.ROW: "rows", Role.CHANNEL: "channels", Role.ONE: "1"}
    shape = ", ".join(words[role] for role in builder.transposed)
    return f"the running value is [{shape}]: only a function of its elements, or a number, can follow"

"""The sizes of a tensor, as generated code calls them."""

from __future__ import annotations

from fusegen.ir.axes import Dim
from fusegen.ir.multiples import times
from fusegen.plan.programs.model import Tensor
from fusegen.plan.programs.units import Unit

_SIZES: dict[Unit, tuple[Dim, ...]] = {
    Unit.ELEMENT: ("rows", "channels"),
    Unit.CHANNEL: ("channels",),
    Unit.ROW: ("rows", 1),
    Unit.GROUP: ("rows", "groups"),
    **dict.fromkeys((Unit.SAMPLE, Unit.SAMPLE_GROUP), ("samples", "channels")),
    Unit.SCALAR: (),
}


def sizes(tensor: Tensor) -> tuple[Dim, ...]:
    """The sizes that a tensor has in PyTorch: names of sizes of the call, such as "rows" and "channels", or numbers."""
    if tensor.samples:
        return (f"{tensor.samples}_rows", "channels")
    if tensor.pool:
        return ("windows", "channels")
    return tuple(times(tensor.parts, size) if size == "channels" else size for size in _SIZES[tensor.unit])


def size_text(tensor: Tensor) -> str:
    """The sizes as a comment has them; a scalar is one value in memory."""
    return f"[{', '.join(map(str, sizes(tensor) or (1,)))}]"

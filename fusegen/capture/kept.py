"""What PyTorch's compiler keeps of a graph besides regions that are left: which operators, and why they are none's."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch import fx

from fusegen.aten import table
from fusegen.aten.nodes import operator_of, value_of

OF_A_LIBRARY = "products, convolutions and attention are the vendor library's"
WITHOUT_A_NORM = "no norm gains by it, and PyTorch's compiler fuses it as well"
NO_OP = "fusegen has no kernels for it inside a model"

_OF_A_LIBRARY = (
    *table.PRODUCTS,
    "linear",
    "bilinear",
    "mv",
    "dot",
    "addmm",
    "addbmm",
    "baddbmm",
    "addmv",
    "einsum",
)
_BEGINNINGS = ("conv", "_conv", "scaled_dot_product", "_scaled_dot_product")
# Nothing is computed, or next to nothing.
_NOTHING = frozenset(
    {*table.SAME_ELEMENTS, *table.CASTS, *table.OF_SIZES, *table.EXCHANGES, *table.PARTS, *table.FILLED, *table.EMPTY}
    | {"narrow", "detach"}
)


def kept(graph: fx.Graph, taken: Collection[fx.Node]) -> Iterator[tuple[str, str]]:
    """For each operator that computes tensors, and is not among the taken ones, the reason and its name."""
    for node in graph.nodes:
        name = operator_of(node)[1]
        value = value_of(node)
        if not name or node in taken or value is None or not value.dtype.is_floating_point or name in _NOTHING:
            continue
        yield _reason(node, name), name


def _reason(node: fx.Node, name: str) -> str:
    if name in _OF_A_LIBRARY or name.startswith(_BEGINNINGS):
        return OF_A_LIBRARY
    tables = (table.FUNCTIONS, table.ARITHMETIC, table.OVER_CHANNELS)
    if (
        name in table.DROPOUTS
        or name in ("softmax", "log_softmax")
        or any(table.find(each, node.target) for each in tables)
    ):
        return WITHOUT_A_NORM
    return NO_OP

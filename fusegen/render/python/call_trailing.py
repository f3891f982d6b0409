"""Calls of chains with several trailing dimensions, which are the channels together: see fusegen.chain.trailing."""

from __future__ import annotations

from fusegen.ir.axes import CHANNEL
from fusegen.ir.graph import Node
from fusegen.render.ops.functions import as_tuple
from fusegen.render.python.call_names import CallNames


def sizes_of_trailing(call: CallNames) -> list[str]:
    """Statements that find the trailing dimensions and their product. Others than a norm's fit nothing."""
    name, count = call.first, len(call.chain.trailing)
    norm = next(step for step in call.owners if getattr(step, "normalized_shape", None) is not None)
    return [
        f"_trailing = {call.local[norm.name]}.normalized_shape",
        f"if len(_trailing) != {count}:",
        "    return None, _support.OTHER_SHAPE",
        f"if {name}.shape[-{count}:] != _trailing:",
        f'    raise _support.other_shape_of(_package, "{name}", {name}, f"*, {{str(list(_trailing))[1:-1]}}")',
        f"_channels = {' * '.join(f'_trailing[{index}]' for index in range(count))}",
    ]


def trailing_shape(call: CallNames) -> str:
    """What the package was generated for: numbers of the spec, and one size for each symbol."""
    dims = call.chain.trailing
    return as_tuple([str(dim) if isinstance(dim, int) else f"_trailing[{dims.index(dim)}]" for dim in dims])


def shape_with_rows(call: CallNames, node: Node) -> str:
    """The shape of a further input that has all dimensions of rows, and all of the channels or none."""
    if "C" in node.axes:
        return f"{call.first}.shape"
    count = len(call.chain.trailing)
    return f"(*{call.first}.shape[:-{count}], {', '.join('1' * count)})"


def widened(call: CallNames) -> list[str]:
    """Statements that bring further inputs into float32 under autocast where some of them is repeated: autograd sums
    what is repeated, in eager PyTorch in float32, as a norm's result is. Not where the module has several results: one
    from before the norm has the dtype of its inputs."""
    chain = call.chain
    repeated = [each for each in chain.inputs if each.name in chain.further and _is_repeated(call, each.name)]
    if not (chain.trailing and repeated) or chain.result.further:
        return []
    return ["if _support.is_autocast(_device):", *(f"    {name} = _support.widened({name})" for name in chain.further)]


def _is_repeated(call: CallNames, name: str) -> bool:
    """Whether an input has fewer values than the rows or the channels that it varies over."""
    chain, node = call.chain, call.chain.node_of(name)
    given = next(each.shape for each in chain.inputs if each.name == name)
    partial = node is not None and node.axes == CHANNEL and tuple(dim for dim in given if dim != 1) != chain.trailing
    return partial or name in chain.broadcast_inputs


def flattened(call: CallNames) -> list[str]:
    """Statements that make one dimension of the trailing ones, in the further inputs that steps take."""
    chain, count = call.chain, len(call.chain.trailing)
    lines = []
    for given in chain.inputs[1:]:
        node = chain.node_of(given.name)
        if node is None or not ("N" in node.axes or "C" in node.axes):
            continue
        if "N" not in node.axes:
            lines.append(f"{given.name} = _support.flat_parameter({given.name}, _trailing)")
            continue
        spread = (
            f"{given.name}.expand({shape_with_rows(call, node)})"
            if given.name in chain.broadcast_inputs
            else given.name
        )
        lines.append(f"{given.name} = {spread}.flatten(-{count})")
    return lines

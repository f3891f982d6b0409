"""Shapes of further inputs, as a generated module's call checks them, and what it does to those that are spread."""

from __future__ import annotations

from fusegen.ir.axes import Dim
from fusegen.plan.programs.modes import alike
from fusegen.render.ops.functions import as_tuple
from fusegen.render.python.call_names import CallNames, misfit
from fusegen.render.python.call_trailing import shape_with_rows


def inputs_fit(call: CallNames) -> list[str]:
    """What refuses further inputs and targets of another dtype or shape, as expressions."""
    dtypes = {name: f"{names[0]}.dtype" for names in alike(call.plan.modes, call.further) for name in names}
    dtypes |= dict.fromkeys(call.chain.masks, "torch.bool")
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, dtype in dtypes.items():
        groups.setdefault((dtype, _shape(call, name)), []).append((name, name))
    rows = "(_shape[0], *_shape[2:])" if call.chain.spatial else f"{call.first}.shape[:-1]"
    groups |= {("torch.int64", rows): [(name, name) for name in call.chain.targets]} if call.chain.targets else {}
    return [misfit(found, dtype, shape) for (dtype, shape), found in groups.items()]


def spread_inputs(call: CallNames) -> list[str]:
    """Statements that bring the inputs that vary over some dimensions of rows alone into the form that ops take."""
    lines: list[str] = []
    if call.chain.trailing:
        return lines  # as are all further inputs there
    for name, reach in call.chain.broadcast_inputs.items():
        if not reach.is_compact:
            lines.append(f"{name} = _support.spread({name}, {_row_sizes(call)})")
        elif call.chain.spatial and not reach.batched:
            lines.append(f"{name} = {name}.movedim(-{call.chain.spatial + 1}, -1).reshape(-1, _channels)")
        elif not (reach.batched or len(_given(call, name)) == 2):
            lines.append(f"{name} = {name}.reshape(-1, _channels)")
    return lines


def _row_sizes(call: CallNames) -> str:
    """The shape of the running value; 1 in place of the channels keeps those of an input."""
    if call.chain.spatial:
        return "(_shape[0], 1, *_shape[2:])"
    return f"(*{call.first}.shape[:-1], 1)"


def _shape(call: CallNames, name: str) -> str:
    """The shape that a further input has to have."""
    chain, node, given = call.chain, call.chain.node_of(name), _given(call, name)
    assert node is not None
    if name in chain.broadcast_inputs and chain.broadcast_inputs[name].batched:
        return f"({call.first}.shape[0], _channels)"
    if "N" in node.axes and name not in chain.broadcast_inputs:
        if chain.trailing:
            return shape_with_rows(call, node)
        channels = "_channels" if "C" in node.axes else "1"
        if chain.spatial:
            return "_shape" if channels == "_channels" else f"(_shape[0], {channels}, *_shape[2:])"
        return f"(*{call.first}.shape[:-1], {channels})"
    if "N" not in node.axes and not chain.trailing:
        return as_tuple([_size(dim, "_channels") for dim in given])
    full = _full_sizes(call)
    missing = len(full) - len(given)
    return as_tuple([_size(dim, full[index + missing]) for index, dim in enumerate(given)])


def _given(call: CallNames, name: str) -> tuple[Dim, ...]:
    return next(each.shape for each in call.chain.inputs if each.name == name)


def _size(dim: Dim, whole: str) -> str:
    return "1" if dim == 1 else whole


def _full_sizes(call: CallNames) -> list[str]:
    """The sizes of the running value, one by one."""
    chain = call.chain
    if chain.spatial:
        return ["_shape[0]", "_channels", *(f"_shape[{index + 2}]" for index in range(chain.spatial))]
    if chain.trailing:
        count = len(chain.trailing)
        rows = range(len(chain.inputs[0].shape) - count)
        return [*(f"{call.first}.shape[{index}]" for index in rows), *(f"_trailing[{i}]" for i in range(count))]
    return [*(f"{call.first}.shape[{index}]" for index in range(len(chain.inputs[0].shape) - 1)), "_channels"]

"""How many dimensions the inputs of a chain may have: [..., channels] where PyTorch's chain does the same as on the
view [rows, channels], with one row for each combination of the leading dimensions."""

from __future__ import annotations

from dataclasses import dataclass

from fusegen.chain.images import decider
from fusegen.chain.model import Chain
from fusegen.plan.modules.plan import Plan


@dataclass(frozen=True)
class Dimensions:
    """least, most: how many; most is None for any number. reason: why there are bounds, empty where there are none.
    positions: how many of them are behind the channels of images that have a batch in any case."""

    least: int
    most: int | None = None
    reason: str = ""
    positions: int = 0


def dimensions(plan: Plan) -> Dimensions:
    """How many dimensions the inputs with rows may have; a further one has the leading dimensions of the first."""
    chain = plan.chain
    if chain.leading or (chain.trailing and chain.broadcast_inputs):
        count = len(chain.inputs[0].shape)
        return Dimensions(count, count, "the spec gives its inputs so many")
    if chain.result.transposed:
        return Dimensions(2, 2, "the result has the rows behind the channels")
    if chain.spatial:
        # The batch may be absent: PyTorch's operators run then.
        return Dimensions(chain.spatial + 1, chain.spatial + 2, f"{decider(plan.spec)} takes no others")
    for step in plan.spec.chain:
        if step.needs_matrix():
            condition = "" if step.matrix_only == "always" else f" {step.matrix_only}"
            return Dimensions(2, 2, f"{step.op}{condition} takes no others")
    for parameter in chain.parameters.values():
        if "N" in parameter.axes:
            return Dimensions(2, 2, f"the parameter {parameter.attribute} differs from row to row")
    if chain.batched and chain.broadcast_inputs:
        return Dimensions(3, 3, "the spec gives its inputs so many")
    if chain.batched:
        return Dimensions(2, None, "bmm multiplies matrices")
    whole = len(chain.inputs[0].shape)
    if any(dropout.by_sample for dropout in chain.dropouts):
        return Dimensions(whole, None, "drop_path draws for each index of the first dimension")
    if not has_free_rows(chain):
        return Dimensions(whole, whole, "the spec ties the number of rows to another size")
    number = {2: "two", 3: "three", 4: "four"}.get(whole, str(whole))
    for parameter in chain.parameters.values():
        if len(parameter.shape) == whole:
            return Dimensions(whole, None, f"the parameter {parameter.attribute} has {number} dimensions")
    for name, count in fixed_dimensions(chain).items():
        if count == whole:
            return Dimensions(whole, None, f"the input {name} has {number} dimensions")
    if chain.trailing:
        return Dimensions(whole - 1, None, f"a norm is over the last {whole - 1}")
    return Dimensions(1)


def fixed_dimensions(chain: Chain) -> dict[str, int]:
    """How many dimensions the inputs have that have one value for all rows, or are spread: by name."""
    nodes = {**chain.further, **chain.masks}
    fixed = {name for name, node in nodes.items() if "N" not in node.axes or name in chain.broadcast_inputs}
    return {given.name: len(given.shape) for given in chain.inputs if given.name in fixed}


def has_free_rows(chain: Chain) -> bool:
    """Whether the number of rows is any: neither a number of the spec's nor the symbol of another size."""
    if chain.spatial:
        return False
    width = chain.contraction.width if chain.contraction else None
    return isinstance(chain.rows, str) and chain.rows not in (chain.channels, width, *chain.trailing)

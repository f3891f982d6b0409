"""How many dimensions the inputs of a chain may have: [..., channels] where PyTorch's chain does the same as on the
view [rows, channels], with one row for each combination of the leading dimensions."""

from __future__ import annotations

from dataclasses import dataclass

from fusegen.chain.images import decider
from fusegen.chain.model import Chain
from fusegen.plan.plan import Plan


@dataclass(frozen=True)
class Dimensions:
    """least, most: how many; most is None for any number. reason: why there are bounds, empty where there are none."""

    least: int
    most: int | None = None
    reason: str = ""


def dimensions(plan: Plan) -> Dimensions:
    """Of all inputs alike: a further input with rows has the leading dimensions of the first."""
    chain = plan.chain
    if chain.leading:
        count = len(chain.leading) + 1
        return Dimensions(count, count, "the spec gives its inputs so many")
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
    if chain.batched and chain.spread:
        return Dimensions(3, 3, "the spec gives its inputs so many")
    if chain.batched:
        return Dimensions(2, None, "bmm multiplies matrices")
    if any(dropout.by_sample for dropout in chain.dropouts):
        return Dimensions(2, None, "drop_path draws for each index of the first dimension")
    if not has_free_rows(chain):
        return Dimensions(2, 2, "the spec ties the number of rows to another size")
    for parameter in chain.parameters.values():
        if len(parameter.shape) == 2:
            return Dimensions(2, None, f"the parameter {parameter.attribute} has two dimensions")
    for name, count in fixed_dimensions(chain).items():
        if count == 2:
            return Dimensions(2, None, f"the input {name} has two dimensions")
    return Dimensions(1)


def fixed_dimensions(chain: Chain) -> dict[str, int]:
    """How many dimensions the inputs have that have one value for all rows, or are spread: by name."""
    nodes = {**chain.further, **chain.masks}
    fixed = {name for name, node in nodes.items() if "N" not in node.axes or name in chain.spread}
    return {given.name: len(given.shape) for given in chain.inputs if given.name in fixed}


def has_free_rows(chain: Chain) -> bool:
    """Whether the number of rows is any: neither a number of the spec's nor the symbol of another size."""
    if chain.spatial:
        return False
    width = chain.contraction.in_features if chain.contraction else None
    return isinstance(chain.rows, str) and chain.rows not in (chain.channels, width)

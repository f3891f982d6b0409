"""What a loss in chunks saves, and what it costs: for `fusegen plan`."""

from __future__ import annotations

from fusegen.explain.times import of_bytes, support_module
from fusegen.explain.wording import size, time
from fusegen.ops.step import WIDTH
from fusegen.plan.launches.devices import Device
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode
from fusegen.plan.sizes.chain_sizes import Sizes


def chunks(plan: Plan, device: Device, mode: Mode, sizes: Sizes) -> tuple[str, ...]:
    """Lines; none of another chain."""
    loss = plan.chain.result.loss
    if loss is None or loss.chunk is None:
        return ()
    width, channels = WIDTH[mode.roles["activation"]], plan.chain.number_of_parts * sizes.channels
    each = loss.chunk
    if each == "auto":
        each = support_module("chunk_rows").chunk_rows(sizes.rows, channels, width)
    count = -(-sizes.rows // each)
    row = channels * width
    if count == 1:
        return (f"none at {sizes.rows} rows: {size(sizes.rows * row)} of the product are one chunk",)
    weight = channels * (sizes.source or 0) * width
    whole, part = sizes.rows * row, each * row
    again = 2 * (count - 1) * weight
    lines = [
        f"{count} of {each} rows: {size(part)} in memory for the product and its gradient, not twice {size(whole)}",
        f"the sum of the weight's gradient is read and written {count - 1} times more: {size(again)}, at most "
        f"{time(of_bytes(device, again))}",
    ]
    if loss.reduction == "none":
        return (*lines, "the backward pass makes the product again: a quarter of all operations")
    return (*lines, "the forward pass makes the gradients; the backward pass multiplies them by its own")

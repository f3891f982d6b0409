"""What the steps of a chain cannot take, and why."""

from __future__ import annotations

from fusegen.importing.reading.values import CHANNELS, Value, walk
from fusegen.importing.traces.source_locations import refusal
from fusegen.ops.arithmetic import FUNCTIONS
from fusegen.spec.wording import alternatives

_FIRST = "a chain begins with an argument of forward"


def check_inputs(value: Value, first: Value | None) -> None:
    """Every input lies as the first one does, or has one value for each row, each channel, or in all. Of images it has
    the batch, and its channels and positions are those of the first, or one."""
    if first is None:
        return
    for each in walk(value):
        if first.layout[-1] == CHANNELS:
            fits = {*each.layout} <= {*first.layout}
        else:
            fits = each.layout[:1] == ("0",) and {*each.layout} <= {*first.layout, None}
        if each.op == "input" and not fits:
            hint = "a further input of a chain has the shape of the running value, or broadcasts to [rows, channels]"
            raise refusal("FG707", f"the input '{each.name}' has not the shape of the result", value.place, hint)


def branch(value: Value, running: Value | None, is_first: bool) -> Exception:
    """Why no operand of a value is one that a step goes on from."""
    if all(each.op != "input" for each in walk(value)):
        hint = f"such an operand is a parameter, times a number and plus one, or {alternatives(FUNCTIONS)} of one"
        return refusal("FG707", "an operand that is computed from parameters alone", value.place, hint)
    if any(each.op == "detach" for each in value.values):
        hint = "of what is detached, a chain has operands alone: of add, mul and the like"
        return refusal("FG707", f"{value.op} goes on from a detached value", value.place, hint)
    if is_first:
        return refusal("FG707", f"{value.op} does not take an input", value.place, _FIRST)
    hint = "a step goes on from an input or from the result of an earlier step"
    return refusal("FG707", f"{value.op} goes on from something else than the result of a step", value.place, hint)

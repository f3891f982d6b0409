"""Inputs of any number of dimensions as [rows, channels], and results in the dimensions of the inputs."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.plan.dimensions import Dimensions


def check_and_view(allowed: Dimensions, first: str, others: Sequence[str]) -> list[str]:
    """Statements that check the dimensions and make the views. first: the first input. others: those with its rows."""
    rows = [f"if {first}.shape[0] == 0:", f'    raise ValueError("{first} has no rows")']
    if allowed.most is not None:
        reason = f"{first} must have two dimensions: {allowed.reason}"
        return [f"if {first}.dim() != 2:", f'    raise ValueError("{reason}")', *rows]
    needed = f"{first} must have {allowed.least} dimensions: {allowed.reason}"
    if allowed.least <= 1:
        needed = f"{first} must have a dimension of channels"
    lines = [
        f"if {first}.dim() < {max(1, allowed.least)}:",
        f'    raise ValueError("{needed}")',
        f"_leading = {first}.shape[:-1]",
    ]
    for name in others:
        lines += [
            f"if {name}.dim() == 0 or {name}.shape[:-1] != _leading:",
            f'    raise ValueError("{name} must have the leading dimensions of {first}")',
        ]
    lines += [f"{name} = {name}.reshape(-1, {name}.shape[-1])" for name in (first, *others)]
    return [*lines, *rows]


def viewed_back(allowed: Dimensions, drops_channels: bool) -> str:
    """What makes a result's shape of [rows, channels], as an ending of an expression."""
    if allowed.most is not None:
        return ".squeeze(-1)" if drops_channels else ""
    return ".view(_leading)" if drops_channels else ".view(*_leading, -1)"

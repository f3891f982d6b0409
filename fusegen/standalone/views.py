"""Inputs of any number of dimensions as [rows, channels], and results in the dimensions of the inputs."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.plan.dimensions import Dimensions

_NUMBERS = {2: "two"}


def _are_matrices(allowed: Dimensions) -> bool:
    """Whether inputs are [rows, channels] as they come."""
    return allowed.most == 2


def check_and_view(allowed: Dimensions, first: str, others: Sequence[str]) -> list[str]:
    """Statements that check the dimensions and make the views. first: the first input. others: those with its rows."""
    rows = [f"if {first}.shape[0] == 0:", f'    raise ValueError("{first} has no rows")']
    count = f"{_NUMBERS.get(allowed.least, allowed.least)}{' or more' if allowed.most is None else ''}"
    needed = f"{first} must have {count} dimensions: {allowed.reason}"
    if allowed.least <= 1 and allowed.most is None:
        needed = f"{first} must have a dimension of channels"
    wrong = f"< {max(1, allowed.least)}" if allowed.most is None else f"!= {allowed.most}"
    refusal = [f"if {first}.dim() {wrong}:", f'    raise ValueError("{needed}")']
    if _are_matrices(allowed):
        return [*refusal, *rows]
    lines = [
        *refusal,
        f"_leading = {first}.shape[:-1]",
    ]
    for name in others:
        lines += [
            f"if {name}.dim() == 0 or {name}.shape[:-1] != _leading:",
            f'    raise ValueError("{name} must have the leading dimensions of {first}")',
        ]
    lines += [f"{name} = {name}.reshape(-1, {name}.shape[-1])" for name in (first, *others)]
    return [*lines, *rows]


def rows_of_samples(allowed: Dimensions) -> str:
    """An expression of the rows that one index of the first dimension has."""
    return "1" if _are_matrices(allowed) else "_leading[1:].numel()"


def viewed_back(allowed: Dimensions, drops_channels: bool) -> str:
    """What makes a result's shape of [rows, channels], as an ending of an expression."""
    if _are_matrices(allowed):
        return ".squeeze(-1)" if drops_channels else ""
    return ".view(_leading)" if drops_channels else ".view(*_leading, -1)"

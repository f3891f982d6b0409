"""The channels of a chain behind a convolution as sizes that modules of one form may differ in."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def name_channels(data: dict[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """Gives channels that are numbers names, and returns the arguments that these are. data: of a spec of images; its
    dims and its steps are changed. taken: names that something has.

    Where channels are divided, or a convolution has groups, they stay numbers.
    """
    first, *further = data["chain"]
    names, inputs = list(data["inputs"]), data["inputs"]
    outer = first.get("out_channels")
    divided = any("parts" in step or step["op"].endswith("glu") for step in further)
    again = any(names[0] in (step.get("input"), step.get("value")) for step in further)
    fixed = {"in_channels", "out_channels"} & {*taken} or not isinstance(outer, int) or outer == 1
    if fixed or divided or again or first.get("groups", 1) != 1:
        return {}
    inner = inputs[names[0]][1]
    sizes = {"out_channels": outer} | ({"in_channels": inner} if isinstance(inner, int) and inner != 1 else {})
    first["out_channels"] = "out_channels"
    inputs[names[0]][1] = "in_channels" if "in_channels" in sizes else inner
    for name in names[1:]:
        shape = inputs[name]
        at = len(shape) - len(inputs[names[0]]) + 1
        if at >= 0 and shape[at] == outer:
            shape[at] = "out_channels"
    for step in further:
        if step.get("num_parameters") == outer:
            step["num_parameters"] = "out_channels"
        if isinstance(step.get("shape"), list):  # [channels, 1, 1], with a batch of 1 in front or not
            step["shape"] = ["out_channels" if size == outer else size for size in step["shape"]]
    data["dims"] = {**data.get("dims", {}), **sizes}
    return {name: {"type": "dim"} for name in ("in_channels", "out_channels") if name in sizes}

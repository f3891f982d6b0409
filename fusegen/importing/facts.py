"""Sizes of a module that are the rows or the channels of its chain."""

from __future__ import annotations

from typing import Any

from fusegen.importing.arguments import Arguments
from fusegen.importing.chain import ARITHMETIC, MODELS, Draft


def facts_of_parameters(tensors: dict[str, Any], arguments: Arguments) -> tuple[list[str], list[str]]:
    """The sizes of parameters that are the rows, and those that are the channels, but for shapes that are arguments."""
    rows: list[str] = []
    channels: list[str] = []
    spatial = arguments.positions.spatial if arguments.positions else 0
    for name, tensor in tensors.items():
        for index, size in enumerate(tensor.shape):
            if size != 1 and arguments.shape(name) is None:
                (channels if index == tensor.dim() - 1 - spatial else rows).append(f"{name}[{index}]")
    return rows, channels


# What norms without tensors call the channels.
_BARE = {
    "batch_norm": "num_features",
    "group_norm": "num_channels",
    "layer_norm": "normalized_shape[0]",
    "rms_norm": "normalized_shape[0]",
}


def facts_of_parts(drafts: list[Draft], tensors: dict[str, Any], parts: dict[str, Any]) -> list[str]:
    """The sizes of layers and norms that are the channels."""
    found = []
    for draft in drafts:
        name, op = draft.data.get("name"), draft.data["op"]
        if name is not None and MODELS[op].anchor and op != "linear":
            found += [f"{name}.bias[0]"] if f"{name}.bias" in tensors else []
        else:
            found += facts_of_part(draft, tensors, parts)
    return found


def facts_of_part(draft: Draft, tensors: dict[str, Any], parts: dict[str, Any]) -> list[str]:
    """The sizes of one layer or norm that are the channels."""
    name, op = draft.data.get("name"), draft.data["op"]
    if name is None or op in ARITHMETIC:
        return []
    held = [f"{name}.{tensor}" for tensor in MODELS[op].tensors if f"{name}.{tensor}" in tensors]
    if not held and op in _BARE and name in parts:
        return [f"{name}.{_BARE[op]}"]
    return [f"{each}[0]" for each in held if tensors[each].dim() and tensors[each].shape[0] != 1]

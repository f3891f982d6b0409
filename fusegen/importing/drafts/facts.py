"""Sizes of a module that are the rows or the channels of its chain."""

from __future__ import annotations

from typing import Any

from torch import nn

from fusegen.importing.reading.shapes import is_exchanged
from fusegen.importing.reading.values import CHANNELS
from fusegen.importing.steps.chain import ARITHMETIC, MODELS, StepDraft
from fusegen.importing.traces.arguments import Arguments, own_tensors

_PRODUCT = ("parameter", "bias")


def facts_of_rows(drafts: list[StepDraft], tensors: dict[str, Any], arguments: Arguments) -> list[str]:
    """The sizes of parameters that are the rows, but for shapes that are arguments."""
    products = {draft.data.get(key) for draft in drafts if draft.data["op"] == "matmul" for key in _PRODUCT}
    by_rows = [draft for draft in drafts if "parameter" in draft.data and not is_exchanged(draft.value.layout)]
    names = {str(draft.data["parameter"]): None for draft in by_rows}
    return [
        f"{name}[{index}]"
        for name in names
        if name not in products and arguments.shape(name) is None
        for index, size in enumerate(tensors[name].shape[:-1])
        if size != 1
    ]


def facts_of_trailing(drafts: list[StepDraft], module: nn.Module, behind: int) -> list[str]:
    """The sizes of norms and parameters that are the dimension with so many behind it, itself included."""
    tensors, found = own_tensors(module), []
    for draft in drafts:
        name, shape = draft.data.get("name"), draft.data.get("normalized_shape", ())
        held = [f"{name}.{key}" for key in ("weight", "bias") if f"{name}.{key}" in tensors]
        if len(shape) >= behind and name in dict(module.named_modules()):
            found += [f"{each}[{len(shape) - behind}]" for each in held or [f"{name}.normalized_shape"]]
        parameter = tensors.get(str(draft.data.get("parameter")))
        if parameter is not None and not MODELS[draft.data["op"]].anchor and parameter.dim() >= behind:
            index = parameter.dim() - behind
            found += [f"{draft.data['parameter']}[{index}]"] if parameter.shape[index] != 1 else []
    return found


# What norms without tensors call the channels.
_BARE = {
    "batch_norm": "num_features",
    "group_norm": "num_channels",
    "layer_norm": "normalized_shape",
    "rms_norm": "normalized_shape",
}


def facts_of_part(draft: StepDraft, tensors: dict[str, Any], parts: dict[str, Any]) -> list[str]:
    """The sizes of one layer or norm that are the channels."""
    name, op = draft.data.get("name"), draft.data["op"]
    if name is None or op in ARITHMETIC:
        return []
    held = [f"{name}.{tensor}" for tensor in MODELS[op].tensors if f"{name}.{tensor}" in tensors]
    over = draft.value.keys.get("normalized_shape", (CHANNELS,))
    if over[-1] != CHANNELS:  # positions, and the channels in front of them if it has these
        return [f"{each}[0]" for each in held or [f"{name}.normalized_shape"] if over[0] == CHANNELS]
    if not held and op in _BARE and name in parts:
        last = len(parts[name].normalized_shape) - 1 if _BARE[op] == "normalized_shape" else None
        return [f"{name}.{_BARE[op]}" + ("" if last is None else f"[{last}]")]
    last_dims = [(each, tensors[each].dim() - 1) for each in held if tensors[each].dim()]
    return [f"{each}[{dim}]" for each, dim in last_dims if tensors[each].shape[dim] != 1]

"""The parts of a spec that are around its chain: sizes, the constructor's arguments, inputs, parameters."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from fusegen.aten.nodes import shape
from fusegen.importing.drafts.attributes import name_attributes
from fusegen.importing.drafts.input_shapes import input_shapes
from fusegen.importing.drafts.symbols import Size, Sizes
from fusegen.importing.reading.shapes import first_layout, is_exchanged, spatial_of
from fusegen.importing.reading.values import CHANNELS, Value, walk
from fusegen.importing.steps.chain import MODELS, StepDraft, Steps, entries, inputs_of
from fusegen.importing.traces.arguments import Arguments, is_name, own_tensor
from fusegen.importing.traces.constructor import Constructor
from fusegen.importing.traces.source_locations import refusal
from fusegen.importing.traces.trace import Trace, forward_of


@dataclass
class SpecDraft:
    """A spec to be. rows: the sizes of the first input in front of its channels. spread: whether these are more than
    one dimension. notes: what the constructor of the original takes besides."""

    dims: dict[str, int]
    arguments: dict[str, dict[str, Any]]
    inputs: dict[str, list[Size]]
    chain: list[StepDraft]
    rows: list[Size] = field(default_factory=list)
    spread: bool = False
    outputs: list[str] | None = None
    state_dict: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def make_spec_draft(trace: Trace, steps: Steps, arguments: Arguments) -> SpecDraft:
    """The draft of the spec of a chain. Raises SpecError for what the module has and the chain does not."""
    drafts = steps.found
    _check_state(trace.module, drafts)
    inputs = {leaf.name: shape(node) for node, leaf in trace.leaves.items() if leaf.kind == "input"}
    sizes = Sizes(trace, drafts, arguments, inputs)
    used = {name for draft in drafts for name in inputs_of(draft)}
    for name in inputs:
        if name not in used:
            where = forward_of(trace.module)
            raise refusal("FG706", f"the chain does not use the input '{name}'", where, "leave it out of forward")
        if not is_name(name):
            raise refusal("FG706", f"a chain cannot have an input called '{name}'", None, "rename it")
    _keep_attributes(drafts, arguments)
    _complete(drafts, arguments, sizes)
    shapes = input_shapes(inputs, sizes)
    declared = _arguments(arguments, sizes, drafts)
    numbers = [name for name, each in declared.items() if each["type"] in ("float", "int")]
    return SpecDraft(
        dims=sizes.dims,
        arguments=declared,
        inputs=shapes,
        chain=drafts,
        rows=sizes.leading[: len(sizes.leading) + 1 - sizes.trailing],
        spread=sizes.spread,
        outputs=steps.outputs,
        state_dict=name_attributes(drafts, trace.module, numbers, {*sizes.taken, *sizes.dims}),
        notes=_notes(arguments, sizes, drafts),
    )


def _keep_attributes(drafts: list[StepDraft], arguments: Arguments) -> None:
    """A number of one step that is only an attribute stays that: the constructor has no argument for it."""
    for name, value in arguments.attributes.items():
        users = [draft for draft in drafts if name in draft.data.values()]
        if len(users) == 1 and users[0].data.get("constant") == name:
            users[0].data |= {"constant": value, "name": name}


def _complete(drafts: list[StepDraft], arguments: Arguments, sizes: Sizes) -> None:
    """Puts sizes into steps, and shapes and initial values to the first use of each parameter."""
    seen: set[str] = set()
    buffers = dict(arguments.module.named_buffers())
    for draft in drafts:
        for key, value in draft.data.items():
            if value == CHANNELS and key in ("out_features", "out_channels", "num_parameters"):
                draft.data[key] = sizes.behind(draft)
            elif value == CHANNELS and key == "groups":
                draft.data[key] = sizes.before(draft)
            elif key == "normalized_shape":
                draft.data[key] = arguments.shape(f"{draft.data['name']}.weight") or sizes.trailing_of(draft)
        if sizes.is_named(draft):
            draft.data[MODELS[draft.data["op"]].width_key] = sizes.behind(draft)
        _check_products(draft, buffers)
        if "buffer" in draft.data:
            draft.data["init"] = arguments.initial(draft.data["buffer"])
        name = draft.data.get("parameter")
        if name in seen and draft.data["op"] == "matmul":
            message = f"a second product with the parameter '{name}'"
            raise refusal("FG706", message, draft.place, "a chain multiplies by each once")
        if name is None or name in seen:
            continue
        seen.add(name)
        if draft.data["op"] == "matmul":
            _complete_product(draft, arguments, sizes)
            continue
        dims = list(own_tensor(arguments.module, name).shape)
        if not _lies_as_written(dims, draft.value, name, sizes):
            form = "[batch, channels, positions]" if sizes.spatial else "[rows, channels]"
            is_by_channel = sizes.spatial > 0 and _operand(draft.value, name).layout == (CHANNELS,)
            hint = f"a parameter of a chain broadcasts to {form} as it is"
            hint = "one for each channel has the shape [channels], or [channels, 1, 1]" if is_by_channel else hint
            raise refusal(
                "FG706", f"the parameter '{name}' of shape {dims} is used in another shape", draft.place, hint
            )
        draft.data["shape"] = arguments.shape(name) or _shape(dims, sizes, draft)
        if _is_by_channel(dims, sizes, draft.value, name) and not sizes.over_channels:
            draft.data["dim"] = 1
        draft.data["init"] = arguments.initial(name)
        draft.data["learnt"] = name not in buffers


def _check_products(draft: StepDraft, buffers: Collection[str]) -> None:
    """Raises SpecError for a layer whose weight or bias is no parameter."""
    for key in ("parameter", "bias") if draft.data["op"] == "matmul" else ():
        name = draft.data.get(key)
        if name in buffers:
            hint = "make it an nn.Parameter"
            what = "weight" if key == "parameter" else key
            raise refusal("FG706", f"the buffer '{name}' is the {what} of a product", draft.place, hint)


def _complete_product(draft: StepDraft, arguments: Arguments, sizes: Sizes) -> None:
    draft.data["shape"] = arguments.shape(draft.data["parameter"]) or _shape_of(draft, arguments, sizes)
    draft.data["init"] = arguments.initial(draft.data["parameter"])
    if "bias" in draft.data:
        draft.data["bias_init"] = arguments.initial(draft.data["bias"])


def _shape_of(draft: StepDraft, arguments: Arguments, sizes: Sizes) -> list[Size]:
    """Of a step's parameter, in the spec's symbols."""
    if draft.data["op"] == "matmul":
        dims = [sizes.before(draft), sizes.behind(draft)]
        return dims[::-1] if draft.data.get("transposed") else dims
    return _shape(list(own_tensor(arguments.module, draft.data["parameter"]).shape), sizes, draft)


def _shape(dims: list[int], sizes: Sizes, draft: StepDraft) -> list[Size]:
    behind = sizes.behind(draft)
    if is_exchanged(draft.value.layout):
        return [1 if size == 1 else behind for size in dims]
    positions = [None] * spatial_of(draft.value.layout)
    form = [sizes.rows, behind, *positions] if sizes.spatial else [*sizes.leading, behind]
    is_by_channel = _is_by_channel(dims, sizes, draft.value, draft.data["parameter"])
    labels = [behind] if is_by_channel else form[len(form) - len(dims) :]
    return [1 if size == 1 else size if label is None else label for size, label in zip(dims, labels, strict=True)]


def _lies_as_written(dims: list[int], value: Value, name: str, sizes: Sizes) -> bool:
    """Whether the parameter has its values for the channels last, and for the rows before them; with positions, where
    PyTorch broadcasts them, or behind a layer over the channels, which has these last."""
    operand = _operand(value, name)
    if is_exchanged(value.layout):
        return operand.layout in ((), (CHANNELS,))
    spatial = spatial_of(value.layout) if sizes.spatial else 0
    rank = len(sizes.leading) + 1 + spatial
    is_by_channel = _is_by_channel(dims, sizes, value, name)
    labels = (CHANNELS,) if is_by_channel else first_layout(rank, spatial)[max(0, rank - len(dims)) :]
    fits = len(dims) <= len(labels)
    return fits and operand.layout == tuple(label for size, label in zip(dims, labels, strict=True) if size != 1)


def _operand(value: Value, name: str) -> Value:
    """A step's parameter, as the step takes it."""
    return next(each for each in walk(value) if each.op == "parameter" and each.name == name)


def _is_by_channel(dims: list[int], sizes: Sizes, value: Value, name: str) -> bool:
    """Whether a parameter of these sizes is one of a value of images for each channel: behind a layer over the
    channels, or by a view of the parameter."""
    if len(dims) != 1 or dims[0] == 1 or not sizes.spatial:
        return False
    viewed = spatial_of(value.layout) > 0 and _operand(value, name).layout == (CHANNELS,)
    return sizes.over_channels or viewed


def _arguments(arguments: Arguments, sizes: Sizes, drafts: list[StepDraft]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    given = arguments.constructor
    whole = {draft.data.get("num_groups") for draft in drafts}
    whole |= {entry for draft in drafts for option in draft.options.values() for entry in option} - {"same", "valid"}
    shapes = {draft.data["shape"]: draft for draft in drafts if isinstance(draft.data.get("shape"), str)}
    normalized = {d.data["normalized_shape"]: d for d in drafts if isinstance(d.data.get("normalized_shape"), str)}
    for name, value in given.values.items() if given else ():
        default = {"default": given.defaults[name]} if given and given.defaults.get(name) is not None else {}
        if name in sizes.dims:
            found[name] = {"type": "dim"}
        elif name in {**shapes, **normalized}:
            default = {key: list(each) for key, each in default.items()}
            of_norm = name in normalized
            is_ = sizes.trailing_of(normalized[name]) if of_norm else _shape_of(shapes[name], arguments, sizes)
            found[name] = {"type": "shape", "is": is_, **default}
        elif name in whole:
            found[name] = {"type": "int", "typical": value, **default}
        elif name in arguments.used and _is_used(name, drafts):
            found[name] = {"type": "float", **{key: float(each) for key, each in default.items()}}
    for name, value in arguments.attributes.items():
        if _is_used(name, drafts):
            typed = {"type": "int", "typical": int(value)} if name in whole else {"type": "float"}
            found[name] = {**typed, "default": int(value) if name in whole else value}
    return _by_name(found, given)


def _by_name(found: dict[str, dict[str, Any]], given: Constructor | None) -> dict[str, dict[str, Any]]:
    """With arguments that stand elsewhere than in the module's constructor taken by their names alone."""
    order = list(given.values) if given else []
    same = list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(found, order, strict=False)))
    behind = set(list(found)[len(same) :]) if len(same) < len(order) else set()
    behind |= given.named if given else set()
    return {name: {**each, "keyword": True} if name in behind else each for name, each in found.items()}


def _is_used(name: str, drafts: list[StepDraft]) -> bool:
    return any(
        name in entries(value)
        for draft in drafts
        for key, value in draft.data.items()
        if key not in ("op", "name", "save", "parts")
    )


def _notes(arguments: Arguments, sizes: Sizes, drafts: list[StepDraft]) -> list[str]:
    given = arguments.constructor
    if given is None:
        return []
    kept = _arguments(arguments, sizes, drafts)
    left = {name: value for name, value in given.values.items() if name not in (*kept, *_EVERYWHERE)}
    return [f"{name}={_shown(value)}" for name, value in left.items()]


# Arguments that every generated module takes.
_EVERYWHERE = ("device", "dtype")


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def check_tied(module: nn.Module) -> None:
    """Raises SpecError where two parameters are one."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    names: dict[int, str] = {}
    for name, parameter in parameters.items():
        other = names.setdefault(id(parameter), name)
        if other != name:
            message = f"one parameter has several names: '{other}' and '{name}'"
            raise refusal("FG706", message, forward_of(module), "a chain has each once")


def check_parametrised(module: nn.Module) -> None:
    """Raises SpecError where tensors of a layer are computed by a parametrization."""
    for path, part in module.named_modules():
        if parametrize.is_parametrized(part):
            names = ", ".join(part.parametrizations)
            message = f"'{path or type(module).__name__}' has a parametrization of its {names}"
            hint = "import the module without it, and register it on the spec's module, which takes the state_dict then"
            raise refusal("FG706", message, forward_of(module), hint)


def _check_state(module: nn.Module, drafts: list[StepDraft]) -> None:
    """Every parameter and buffer has to be one of the chain's, or the state_dict would differ. Nothing else may be done
    with gradients, which no trace shows."""
    for name, parameter in module.named_parameters():
        hint = "do that to the module that is made of the spec"
        if not parameter.requires_grad:
            raise refusal("FG706", f"the parameter '{name}' wants no gradient", forward_of(module), hint)
        if parameter._backward_hooks:
            raise refusal("FG706", f"the parameter '{name}' has a hook on its gradient", forward_of(module), hint)
    held = [name for name, _ in [*module.named_parameters(remove_duplicate=False), *module.named_buffers()]]
    used = {draft.data.get(key) for draft in drafts for key in ("parameter", "bias", "buffer")}
    parts = {draft.data.get("name") for draft in drafts}
    left = [name for name in held if name not in used and name.rpartition(".")[0] not in parts]
    if left:
        message = f"the chain does not use {', '.join(map(repr, left))}"
        hint = "parameters and buffers of the module are those of the chain"
        raise refusal("FG706", message, forward_of(module), hint)

"""Which sizes of an imported spec are which: symbols that an argument gives, symbols of inputs alone, or numbers."""

from __future__ import annotations

from typing import Any

from fusegen.importing.arguments import Arguments
from fusegen.importing.chain import ARITHMETIC, MODELS, Draft
from fusegen.importing.places import refusal
from fusegen.importing.trace import Trace, forward_of
from fusegen.importing.values import CHANNELS, UNKNOWN

Size = int | str
_POSITIONS = ("depth", "height", "width")


class Sizes:
    """Which size is what: a symbol that an argument gives, a symbol of the inputs alone, or a number."""

    def __init__(self, trace: Trace, drafts: list[Draft], arguments: Arguments, first: tuple[Any, ...]) -> None:
        self.dims: dict[str, int] = {}
        self.taken = {*arguments.attributes, *(arguments.constructor.values if arguments.constructor else ())}
        self.taken |= {part for draft in drafts for part in draft.data.get("parts", ())}
        self.taken |= {leaf.name for leaf in trace.leaves.values()} | {str(draft.data.get("save")) for draft in drafts}
        tensors = dict(trace.module.named_parameters()) | dict(trace.module.named_buffers())
        product = drafts[0].data if drafts[0].data["op"] == "matmul" else {}
        shaped = {str(draft.data["parameter"]) for draft in drafts if "parameter" in draft.data}
        shaped = (shaped - {product.get("parameter")}) | ({product["bias"]} if "bias" in product else set())
        self.spatial = arguments.positions.spatial if arguments.positions else 0
        self.positions: list[Size] = []  # of the first input
        self.of_result: list[Size] = []  # positions of the convolution's result
        of_rows, of_channels = _facts_of_parameters({name: tensors[name] for name in shaped}, arguments)
        of_channels += _facts_of_parts(drafts, tensors, dict(trace.module.named_modules()))
        last, (first_op, name) = example(arguments)[-1], (drafts[0].data["op"], drafts[0].data.get("name"))
        self.parts = _number_of_parts(drafts)
        if self.spatial and not arguments.positions.path:  # type: ignore[union-attr]
            self._of_images(trace, drafts, arguments, first, of_channels)
            return
        if self.spatial:
            layer = dict(trace.module.named_modules())[str(name)]
            self._behind_convolution(trace, drafts, arguments, first, layer, of_channels)
            return
        self.rows = self._rows(first[:-1], example(arguments), of_rows, arguments)
        if self.parts > 1:
            width = tensors[f"{name}.weight"].shape
            behind = [fact for fact in of_channels if not fact.startswith(f"{name}.")]
            self.width = self._symbol(arguments.sizes([f"{name}.weight[1]"]), width[1])
            self.channels = self._symbol(arguments.part(behind, str(name), self.parts), width[0] // self.parts)
        elif first_op in ("linear", "matmul"):
            weight = product["parameter"] if product else f"{name}.weight"
            by_columns = bool(product) and not product.get("transposed")
            inner = [f"{weight}[{0 if by_columns else 1}]"]
            of_channels += [f"{weight}[{1 if by_columns else 0}]"] if product else []
            again = any(trace_input(trace) in inputs_of(draft) for draft in drafts[1:])
            count = tensors[weight].shape[1 if by_columns else 0]
            self.width = self._symbol(arguments.sizes([*inner, *of_channels] if again else inner), last)
            self.channels = self._symbol(arguments.sizes([*inner, *of_channels] if again else of_channels), count)
        elif of_channels:
            self.width = self.channels = self._symbol(arguments.sizes(of_channels), last)
        else:
            self.width = self.channels = last if isinstance(first[-1], int) else self._free("channels", last)

    def _of_images(
        self, trace: Trace, drafts: list[Draft], arguments: Arguments, first: tuple[Any, ...], of_channels: list[str]
    ) -> None:
        """The same of a chain of images without a convolution."""
        _check_free(trace, drafts, first)
        (batch, channels, *sizes) = arguments.shapes[0]
        self.rows = self._free("batch", batch)
        if of_channels:
            self.width = self.channels = self._symbol(arguments.sizes(of_channels), channels)
        else:
            self.width = self.channels = self._free("channels", channels)
        names = _POSITIONS[-self.spatial :]
        self.positions = self.of_result = [self._free(each, size) for each, size in zip(names, sizes, strict=True)]

    def _behind_convolution(
        self,
        trace: Trace,
        drafts: list[Draft],
        arguments: Arguments,
        first: tuple[Any, ...],
        layer: Any,
        of_channels: list[str],
    ) -> None:
        """The same of a chain that begins with a convolution."""
        name, shapes = str(drafts[0].data["name"]), arguments.shapes
        _check_free(trace, drafts, first)
        self.rows = self._free("batch", shapes[0][0])
        inner, outer = [f"{name}.in_channels"], [f"{name}.out_channels", *of_channels]
        again = any(trace_input(trace) in inputs_of(draft) for draft in drafts[1:])
        if again and self.parts == 1:
            inner = outer = [*inner, *outer]
        self.width = self._symbol(arguments.sizes(inner), layer.in_channels)
        names = _POSITIONS[-self.spatial :]
        self.positions = [self._free(each, size) for each, size in zip(names, shapes[0][2:], strict=True)]
        if self.parts > 1:
            behind = [fact for fact in of_channels if not fact.startswith(f"{name}.")]
            self.channels = self._symbol(arguments.part(behind, name, self.parts), layer.out_channels // self.parts)
        else:
            self.channels = self._symbol(arguments.sizes(outer), layer.out_channels)
        used = {each for draft in drafts for each in inputs_of(draft)} - {trace_input(trace)}
        if again:
            self.of_result = self.positions
        elif used:
            result = arguments.positions.result(trace.module, shapes[0])[2:]  # type: ignore[union-attr]
            self.of_result = [self._free(f"out_{each}", size) for each, size in zip(names, result, strict=True)]

    def _rows(self, leading: tuple[Any, ...], sizes: tuple[int, ...], facts: list[str], arguments: Arguments) -> Size:
        fixed = [size for size in leading if isinstance(size, int)]
        rows = 1
        for size in sizes[:-1]:
            rows *= size
        if fixed and len(leading) > 1:
            message = f"the module works for a dimension of {fixed[0]} alone"
            raise refusal("FG705", message, None, "leading dimensions of an input have any size")
        if facts:
            return self._symbol(arguments.sizes(facts), rows)
        return rows if fixed else self._free("batch", rows)

    def _symbol(self, name: str | None, size: int) -> Size:
        if name is None:
            return int(size)
        self.dims[name] = int(size)
        return name

    def _free(self, name: str, size: int) -> str:
        while name in self.taken:
            name = {"batch": "rows", "channels": "features"}.get(name, f"{name}_size")
        self.taken.add(name)
        self.dims[name] = int(size)
        return name


def _number_of_parts(drafts: list[Draft]) -> int:
    """Into how many the result of the first layer is divided."""
    data = drafts[1].data if len(drafts) > 1 and MODELS[drafts[1].data["op"]].divides else {"parts": [0]}
    return len(data.get("parts", (0, 1)))


def _facts_of_parameters(tensors: dict[str, Any], arguments: Arguments) -> tuple[list[str], list[str]]:
    """The sizes of parameters that are the rows, and those that are the channels, but for shapes that are arguments."""
    rows: list[str] = []
    channels: list[str] = []
    spatial = arguments.positions.spatial if arguments.positions else 0
    for name, tensor in tensors.items():
        for index, size in enumerate(tensor.shape):
            if size != 1 and arguments.shape(name) is None:
                (channels if index == tensor.dim() - 1 - spatial else rows).append(f"{name}[{index}]")
    return rows, channels


def _check_free(trace: Trace, drafts: list[Draft], first: tuple[Any, ...]) -> None:
    """Refuses what ties batch or positions to a number. first: the sizes of the first input in the trace."""
    for draft in drafts:
        _check_positions(draft)
    if any(isinstance(size, int) for index, size in enumerate(first) if index != 1):
        message = "the module works for one batch, or one number of positions, alone"
        raise refusal("FG705", message, forward_of(trace.module), "both have any size in a chain")


def _check_positions(draft: Draft) -> None:
    """Refuses a parameter that has a value for each position."""
    for each in draft.value.values:
        if each.op == "parameter" and not {*each.layout} <= {"0", CHANNELS, UNKNOWN}:
            message, hint = f"the parameter '{each.name}' varies over positions", "it may vary over the channels alone"
            raise refusal("FG706", message, draft.place, hint)


# What norms without tensors call the channels.
_BARE = {
    "batch_norm": "num_features",
    "group_norm": "num_channels",
    "layer_norm": "normalized_shape[0]",
    "rms_norm": "normalized_shape[0]",
}


def _facts_of_parts(drafts: list[Draft], tensors: dict[str, Any], parts: dict[str, Any]) -> list[str]:
    """The sizes of layers and norms that are the channels."""
    found = []
    for draft in drafts:
        name, op = draft.data.get("name"), draft.data["op"]
        if name is None or op in ARITHMETIC:
            continue
        if MODELS[op].anchor and op != "linear":
            found += [f"{name}.bias[0]"] if f"{name}.bias" in tensors else []
            continue
        held = [f"{name}.{tensor}" for tensor in MODELS[op].tensors if f"{name}.{tensor}" in tensors]
        found += [f"{each}[0]" for each in held if tensors[each].dim() and tensors[each].shape[0] != 1]
        if not held and op in _BARE and name in parts:
            found.append(f"{name}.{_BARE[op]}")
    return found


def example(arguments: Arguments) -> tuple[int, ...]:
    return tuple(arguments.inputs[0].shape)


def trace_input(trace: Trace) -> str:
    return next(leaf.name for leaf in trace.leaves.values() if leaf.kind == "input")


def inputs_of(draft: Draft) -> list[str]:
    return [draft.data["input"]] if "input" in draft.data else []

"""Which sizes of an imported spec are which: symbols that an argument gives, symbols of inputs alone, or numbers."""

from __future__ import annotations

from typing import Any

from fusegen.importing.arguments import Arguments
from fusegen.importing.chain import MODELS, Draft, inputs_of
from fusegen.importing.facts import facts_of_parameters, facts_of_parts
from fusegen.importing.places import refusal
from fusegen.importing.shapes import first_layout, leaf_layout
from fusegen.importing.trace import Trace, forward_of
from fusegen.importing.values import CHANNELS, UNKNOWN, Layout
from fusegen.importing.widths import Width, Widths
from fusegen.ir.multiples import times

Size = int | str
_POSITIONS = ("depth", "height", "width")
_LEADING = ("batch", "positions")
_PRODUCT = ("parameter", "bias")


class Sizes:
    """Which size is what: a symbol that an argument gives, a symbol of the inputs alone, or a number.

    rows: of the first input. spatial: how many dimensions of positions it has. positions, of_result: their sizes in
    front of a convolution and behind it.
    """

    def __init__(self, trace: Trace, drafts: list[Draft], arguments: Arguments, inputs: dict[str, tuple]) -> None:
        self.dims: dict[str, int] = {}
        self.rows: Size = 1
        self.leading: list[Size] = []
        self.spread = False
        self.arguments = arguments
        self.taken = {*arguments.attributes, *(arguments.constructor.values if arguments.constructor else ())}
        self.taken |= {part for draft in drafts for part in draft.data.get("parts", ())}
        self.taken |= {leaf.name for leaf in trace.leaves.values()} | {str(draft.data.get("save")) for draft in drafts}
        tensors = dict(trace.module.named_parameters()) | dict(trace.module.named_buffers())
        first = next(iter(inputs.values()))
        self.spatial = arguments.positions.spatial if arguments.positions else 0
        self.positions: list[Size] = []
        self.of_result: list[Size] = []
        products = {draft.data.get(key) for draft in drafts if draft.data["op"] == "matmul" for key in _PRODUCT}
        shaped = {str(draft.data["parameter"]) for draft in drafts if "parameter" in draft.data} - products
        of_rows, of_channels = facts_of_parameters({name: tensors[name] for name in shaped}, arguments)
        if self.spatial:
            of_channels += facts_of_parts(drafts, tensors, dict(trace.module.named_modules()))
            self.parts = _number_of_parts(drafts)
            self._first = trace_input(trace)
            if arguments.positions.path:  # type: ignore[union-attr]
                layer = dict(trace.module.named_modules())[str(drafts[0].data["name"])]
                self._behind_convolution(trace, drafts, arguments, first, layer, of_channels)
            else:
                self._of_images(trace, drafts, arguments, first, of_channels)
            self.leading = [self.rows]
            return
        labels = {name: leaf_layout(each, first_layout(len(first)), first) for name, each in inputs.items()}
        self.labels = labels
        self.targets = {str(draft.data["target"]) for draft in drafts if "target" in draft.data}
        in_batches = drafts[0].data["op"] == "bmm"
        self.spread = in_batches or any(_is_partial(each[:-1], len(first) - 1) for each in labels.values())
        if self.spread:
            names = [*_LEADING[: len(first) - 1], *["positions"] * (len(first) - 1 - len(_LEADING))]
            self.leading = [self._free(n, s) for n, s in zip(names, example(arguments), strict=False)]
            self.rows = self.leading[0]
        else:
            self.rows = self._rows(first[:-1], example(arguments), of_rows, arguments)
            self.leading = [self.rows]
        counts = {name: int(shape[-1]) for name, shape in zip(inputs, arguments.shapes, strict=True) if shape}
        self._widths = Widths(trace.module, drafts, arguments, counts)
        self._free_channels = not isinstance(first[-1], int)
        self._known: dict[int, Size] = {}
        self._first = trace_input(trace)
        self.of_input(self._first)  # which comes first among the dims

    # What is asked

    def of_input(self, name: str) -> Size:
        """The channels of an input."""
        if self.spatial:
            return self.width if name == self._first else self.channels
        return self._resolved(self._widths.inputs[name].root)

    def of_product(self, name: str) -> Size | None:
        """The last dimension but one of an input that is multiplied by; None of another one."""
        width = None if self.spatial else self._widths.inner.get(name)
        return None if width is None else self._resolved(width)

    def before(self, draft: Draft) -> Size:
        """The channels of what a step goes on from."""
        return self.width if self.spatial else self._resolved(self._widths.of(draft.source))

    def behind(self, draft: Draft) -> Size:
        """The channels of a step's result."""
        if self.spatial:
            return times(self.parts, self.channels) if MODELS[draft.data["op"]].anchor else self.channels
        return self._resolved(self._widths.of(draft.value))

    def _resolved(self, width: Width) -> Size:
        root = width.root
        if id(root) not in self._known:
            self._known[id(root)] = self._decided(root)
        return self._known[id(root)]

    def _decided(self, root: Width) -> Size:
        if root.part is not None:
            return times(root.count, self._resolved(root.part))
        divided = [each.root for each in self._widths.divided() if each.root.part.root is root]  # type: ignore[union-attr]
        facts = {fact: 1 for fact in root.facts}
        facts |= {fact: each.count for each in divided for fact in each.facts}
        if facts:
            covered = {fact for each in self._widths.divided() for fact in each.root.facts}
            covered |= {f"{each.owner}.out_features" for each in self._widths.divided() if each.owner}
            return self._symbol(self.arguments.sizes(facts, covered), root.size)
        return self._free(root.wanted, root.size) if self._free_channels else root.size

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


def _is_partial(labels: Layout, rank: int) -> bool:
    """Whether an input varies over some dimensions of the rows alone. labels: of its dimensions but the last."""
    known = {label for label in labels if label not in (None, UNKNOWN)}
    return 0 < len(known) < rank


def _number_of_parts(drafts: list[Draft]) -> int:
    """Into how many the result of the first layer is divided."""
    data = drafts[1].data if len(drafts) > 1 and MODELS[drafts[1].data["op"]].divides else {"parts": [0]}
    return len(data.get("parts", (0, 1)))


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


def example(arguments: Arguments) -> tuple[int, ...]:
    return tuple(arguments.inputs[0].shape)


def trace_input(trace: Trace) -> str:
    return next(leaf.name for leaf in trace.leaves.values() if leaf.kind == "input")

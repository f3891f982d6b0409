"""Which sizes of an imported spec are which: symbols that an argument gives, symbols of inputs alone, or numbers."""

from __future__ import annotations

from typing import Any

from torch import nn

from fusegen.importing.drafts.facts import facts_of_rows, facts_of_trailing
from fusegen.importing.drafts.widths import Width, Widths
from fusegen.importing.reading.shapes import first_layout, leaf_layout
from fusegen.importing.reading.values import CHANNELS, MADE, SIZES, UNKNOWN, Layout
from fusegen.importing.steps.chain import MODELS, StepDraft
from fusegen.importing.traces.arguments import Arguments, own_tensor, own_tensors
from fusegen.importing.traces.source_locations import refusal
from fusegen.importing.traces.trace import Trace, forward_of
from fusegen.ir.multiples import times
from fusegen.spec.names import free_name

Size = int | str
_POSITIONS = ("depth", "height", "width")
_LEADING = ("batch", "positions")
# What layers call the channels of their results.
_MADE = ("out_features", "out_channels")


class Sizes:
    """Which size is what: a symbol that an argument gives, a symbol of the inputs alone, or a number.

    rows: of the first input. leading: its dimensions in front of the channels. spread: whether the spec has each of
    these. trailing: how many dimensions a norm is over. spatial: how many dimensions of positions there are.
    over_channels: whether there are layers over the channels of images.
    """

    def __init__(self, trace: Trace, drafts: list[StepDraft], arguments: Arguments, inputs: dict[str, tuple]) -> None:
        self.dims: dict[str, int] = {}
        self.leading: list[Size] = []
        self.arguments = arguments
        self.taken = {*arguments.attributes, *(arguments.constructor.values if arguments.constructor else ())}
        self.taken |= {part for draft in drafts for part in draft.data.get("parts", ())}
        self.taken |= {leaf.name for leaf in trace.leaves.values()} | {str(draft.data.get("save")) for draft in drafts}
        self.spatial = arguments.positions.spatial if arguments.positions else 0
        layers = [draft for draft in drafts if draft.data["op"] in ("linear", "matmul")]
        self.over_channels = any(draft.value.positions for draft in layers)
        several = [draft.data.get("normalized_shape", (0,)) for draft in drafts if not self.spatial]
        self.trailing = max(map(len, several), default=1)
        self._first, first = next(iter(inputs.items()))
        of_first = first_layout(len(first), self.spatial)
        self.labels = {name: leaf_layout(each, of_first, first) for name, each in inputs.items()}
        self.targets = {str(draft.data["target"]) for draft in drafts if "target" in draft.data}
        partial = not self.spatial and any(_is_partial(each[:-1], len(first) - 1) for each in self.labels.values())
        of_several = not self.spatial and any(_has_dimensions(draft, trace.module) for draft in drafts)
        self.spread = drafts[0].data["op"] == "bmm" or partial or of_several or self.trailing > 1
        self._shapes = dict(zip(inputs, arguments.shapes, strict=True))
        at = {name: 1 if self.spatial and len(shape) > 2 else -1 for name, shape in self._shapes.items()}
        counts = {name: int(shape[at[name]]) for name, shape in self._shapes.items() if shape}
        self._widths = Widths(trace.module, drafts, arguments, counts)
        self._free_channels = not isinstance(first[at[self._first]], int)
        self._known: dict[int, Size] = {}
        self._positions: dict[tuple[int, int], str] = {}
        if self.spatial:
            _check_free(trace, drafts, first, self.spatial)
            self.leading = [self._free("batch", self._shapes[self._first][0])]
        elif self.spread:
            self.leading = self._several(trace, drafts, first)
        else:
            tensors = own_tensors(trace.module)
            of_rows = facts_of_rows(drafts, tensors, arguments)
            self.leading = [self._rows(first[:-1], arguments.shapes[0], of_rows, arguments)]
        self.rows = self.leading[0]
        self.of_input(self._first)  # which comes first among the dims
        self.positions = self.positions_of(self._first)

    def _several(self, trace: Trace, drafts: list[StepDraft], first: tuple[Any, ...]) -> list[Size]:
        """The dimensions in front of the channels, each with a size of its own."""
        sizes = self.arguments.shapes[0][:-1]
        names = [*_LEADING[: len(sizes)], *["positions"] * (len(sizes) - len(_LEADING))]
        found: list[Size] = []
        for index, (name, size) in enumerate(zip(names, sizes, strict=True)):
            facts = facts_of_trailing(drafts, trace.module, len(first) - index)
            is_trailing = index > len(sizes) - self.trailing
            if is_trailing and (facts or isinstance(first[index], int)):
                found.append(self._symbol(self.arguments.sizes(facts) if facts else None, size))
            else:
                found.append(self._free(name, size))
        return found

    # What is asked

    def of_input(self, name: str) -> Size:
        """The channels of an input."""
        return self._resolved(self._widths.inputs[name].root)

    def of_product(self, name: str) -> Size | None:
        """The last dimension but one of an input that is multiplied by; None of another one."""
        width = self._widths.inner.get(name)
        return None if width is None else self._resolved(width)

    def before(self, draft: StepDraft) -> Size:
        """The channels of what a step goes on from."""
        return self._resolved(self._widths.of(draft.source))

    def behind(self, draft: StepDraft) -> Size:
        """The channels of a step's result."""
        return self._resolved(self._widths.of(draft.value))

    def is_named(self, draft: StepDraft) -> bool:
        """Whether a step says the channels of its result, as something behind it has as many."""
        width = self._widths.of(draft.value)
        return bool(MADE in draft.value.keys and MODELS[draft.data["op"]].width_key and width.facts)

    def trailing_of(self, draft: StepDraft) -> list[Size]:
        """The dimensions that a norm over several is over."""
        over = draft.value.keys["normalized_shape"]
        if draft.value.positions:
            return self._normalized(draft, over)
        count = len(over) - 1
        return [*self.leading[len(self.leading) - count :], self.behind(draft)]

    def _normalized(self, draft: StepDraft, over: Layout) -> list[Size]:
        """The dimensions that a norm over positions is over."""
        name = draft.data["name"]
        given, fact = draft.value.keys[SIZES], f"{name}.weight" if draft.data["affine"] else f"{name}.normalized_shape"
        known = [self.arguments.sizes([f"{fact}[{at}]"]) for at in range(len(over))]
        sizes = [self._symbol(symbol, size) for symbol, size in zip(known, given, strict=True)]
        return [self.behind(draft), *sizes[1:]] if over[0] == CHANNELS else sizes

    def positions_of(self, name: str) -> list[Size]:
        """The positions of an input of images. Those that convolutions make of the first one's have symbols, too: one
        for each size that a dimension has."""
        names = _POSITIONS[-self.spatial :] if self.spatial else ()
        found: list[Size] = []
        for index, (wanted, size) in enumerate(zip(names, self._shapes[name][2:], strict=False)):
            if size == 1:
                found.append(1)
                continue
            if (index, size) not in self._positions:
                of_first = name == self._first
                symbol = self._free(wanted if of_first else free_name(f"out_{wanted}", self.taken), size)
                self._positions[index, size] = symbol
            found.append(self._positions[index, size])
        return found

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
            covered |= {f"{each.owner}.{key}" for key in _MADE for each in self._widths.divided() if each.owner}
            return self._symbol(self.arguments.sizes(facts, covered), root.size)
        return self._free(root.wanted, root.size) if self._free_channels else root.size

    def _rows(self, leading: tuple[Any, ...], sizes: tuple[int, ...], facts: list[str], arguments: Arguments) -> Size:
        fixed = [size for size in leading if isinstance(size, int)]
        rows = 1
        for size in sizes[:-1]:
            rows *= size
        if fixed and len(leading) > 1:
            having = [name for name, each in self._widths.tensors.items() if fixed[0] in each.shape[:-1]]
            of = f", as '{having[0]}' has it" if having else ""
            message = f"the module works for a dimension of {fixed[0]} alone{of}"
            where = forward_of(arguments.module)
            raise refusal("FG705", message, where, "leading dimensions of an input have any size")
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


def _has_dimensions(draft: StepDraft, module: nn.Module) -> bool:
    """Whether a step has a parameter that broadcasts to rows of several dimensions as it is."""
    name = draft.data.get("parameter")
    return name is not None and draft.data["op"] != "matmul" and own_tensor(module, name).dim() > 2


def _is_partial(labels: Layout, rank: int) -> bool:
    """Whether an input varies over some dimensions of the rows alone. labels: of its dimensions but the last."""
    known = {label for label in labels if label not in (None, UNKNOWN)}
    return 0 < len(known) < rank


def _check_free(trace: Trace, drafts: list[StepDraft], first: tuple[Any, ...], spatial: int) -> None:
    """Refuses what ties batch or positions to a number, but for norms over positions. first: the sizes of the first
    input in the trace."""
    for draft in drafts:
        _check_positions(draft)
    known = {CHANNELS, *(label for draft in drafts for label in draft.value.keys.get("normalized_shape", ()))}
    labels = first_layout(len(first), spatial)
    if any(isinstance(size, int) and label not in known for label, size in zip(labels, first, strict=True)):
        message = "the module works for one batch, or one number of positions, alone"
        raise refusal("FG705", message, forward_of(trace.module), "both have any size in a chain")


def _check_positions(draft: StepDraft) -> None:
    """Refuses a parameter that has a value for each position."""
    for each in draft.value.values:
        if each.op == "parameter" and not {*each.layout} <= {"0", CHANNELS, UNKNOWN}:
            message, hint = f"the parameter '{each.name}' varies over positions", "it may vary over the channels alone"
            raise refusal("FG706", message, draft.place, hint)

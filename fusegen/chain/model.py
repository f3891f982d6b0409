"""A chain as the planner takes it: the graph of its tail, and what the module around it owns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from fusegen.chain.anchors import Anchor, Batched, Contraction, Convolution
from fusegen.chain.inputs import Reach
from fusegen.ir.axes import Axes, Dim
from fusegen.ir.graph import Graph, Node
from fusegen.ir.multiples import times
from fusegen.spec.document import DocumentPath


def certain(size: Dim | None) -> Dim:
    """The size, which only a chain with diagnostics can lack; these are all that it is good for then."""
    return cast(Dim, size)


@dataclass(frozen=True)
class Input:
    """A tensor argument of the module's forward."""

    name: str
    shape: tuple[Dim, ...]


ROWS = "_rows"
"""The symbol of the rows where several dimensions have them, as behind a convolution or bmm: each position or row of
each of the batch's elements is one."""

ROWS_OF_RESULT, CHANNELS_OF_RESULT = "rows", "channels"
"""What `Chain.exchanged` calls both."""


@dataclass(frozen=True)
class Parameter:
    """A learnable tensor that the tail reads.

    attribute: where the module holds it, such as "bn.weight". in_product: it is a linear layer's bias. In 16-bit
    dtypes the library adds it, before the product is rounded, and the kernels get a null pointer: rounding the product
    first would lose the sum's low bits where the two cancel. In float32 the kernels add it: nothing is lost, and the
    library's epilogue that would is slower than the plain product.
    repeated: it has a value for each channel of a block, and the ops take it repeated for all blocks.
    trailing: it varies over the dimensions that are the chain's channels, or some of them, and the ops take it with a
    value for each channel.
    """

    name: str
    attribute: str
    shape: tuple[Dim, ...]
    axes: Axes
    in_product: bool = False
    repeated: bool = False
    trailing: bool = False


@dataclass(frozen=True)
class Buffer:
    """A tensor of the module's state that is not learnt.

    integer: int64, not the parameters' dtype: a count of batches, to which a forward pass in training adds one.
    """

    name: str
    attribute: str
    axes: Axes
    integer: bool = False


@dataclass(frozen=True)
class Loss:
    """What is made of the losses of rows, which are the graph's result. reduction: "none", "mean" or "sum", of those
    whose target is not ignored. target: the input that has the number of a channel for each row."""

    reduction: str
    target: str
    ignored: int


@dataclass(frozen=True)
class RankNorm:
    """A batch norm with the statistics of all ranks, which come to the graph as leaves.

    name: the norm. operand: the value that it normalises. mean, variance: one value a channel, of the rows of all
    ranks, the variance biased.
    """

    name: str
    operand: Node
    mean: Node
    variance: Node


@dataclass(frozen=True)
class Constant:
    """A number that the module holds at run time, such as `self.divide_value` or `self.bn.eps`."""

    name: str
    attribute: str


@dataclass(frozen=True)
class Dropout:
    """A dropout: the module's attribute, the ops' name of its constant p, and whether it draws one factor for each
    sample, an index of the first dimension, not for each element."""

    name: str
    p: str
    by_sample: bool


@dataclass
class Chain:
    """One variant of a chain (training or evaluation) over the view [rows, channels].

    source: the leaf that enters the tail: the anchor's output, or the module's input where there is no anchor.
    anchor: None where the tail begins with an input. rows is ROWS behind a convolution and a bmm, where there are leading
    dimensions, and where there are positions.
    parts: where the source is divided into parts of its channels, the leaves that stand for those of the source and
        of what belongs to the same channels, by name. channels are those of one part.
    running: the value before each step; None before an anchor.
    drops_channels: whether the result has no dimension for the channels: [rows], where else it would be [rows, 1].
    loss: what is made of a result that is a loss of each row.
    result, further_results: the value at the end, and what the module returns besides, by the names of `save`, in the
        order of `outputs`.
    tail_inputs, masks: the inputs that steps take besides the source: floating ones, and those of bool.
    targets: the inputs that have the number of a channel for each row, with their leaves.
    leading: the dimensions of rows where the spec gives the inputs more than two.
    trailing: the dimensions that are the channels together; empty where one is.
    exchanged: the dimensions of the result where the rows come behind the channels: "rows", "channels" and ones. Empty
        where they do not.
    spread: the inputs that vary over some dimensions of rows alone, and over which.
    updates: the new value of each buffer that a forward pass changes, by the buffer's name.
    rank_norms: the batch norms whose statistics come from all ranks, in a chain that was built so.
    group_counts: each number of groups that a norm has, with the place of the first that does.
    places: where the spec has the cause of each input, parameter, buffer and constant, and the contraction, by name.
    dropouts: in their order. seed: what the ops call the tensor that these draw from.
    spatial: how many dimensions of positions the values have, [batch, channels, *positions]; 0 where the channels are
        the last dimension.
    """

    graph: Graph
    rows: Dim
    channels: Dim
    inputs: list[Input]
    leading: tuple[Dim, ...]
    source: Node
    running: list[Node | None]
    result: Node
    anchor: Anchor | None
    training: bool
    drops_channels: bool = False
    loss: Loss | None = None
    parameters: dict[str, Parameter] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    tail_inputs: dict[str, Node] = field(default_factory=dict)
    further_results: dict[str, Node] = field(default_factory=dict)
    masks: dict[str, Node] = field(default_factory=dict)
    spread: dict[str, Reach] = field(default_factory=dict)
    targets: dict[str, Node] = field(default_factory=dict)
    updates: dict[str, Node] = field(default_factory=dict)
    batch_norms: list[tuple[str, bool]] = field(default_factory=list)
    rank_norms: list[RankNorm] = field(default_factory=list)
    group_counts: dict[Dim, DocumentPath] = field(default_factory=dict)
    places: dict[str, DocumentPath] = field(default_factory=dict)
    parts: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    dropouts: list[Dropout] = field(default_factory=list)
    seed: str = ""
    trailing: tuple[Dim, ...] = ()
    exchanged: tuple[Dim, ...] = ()
    spatial: int = 0

    @property
    def number_of_parts(self) -> int:
        """Into how many parts the source's channels are divided; 1 where they are not."""
        return len(self.parts.get(self.source.name, ())) or 1

    @property
    def source_channels(self) -> Dim:
        """The channels of the source: of all its parts."""
        return times(self.number_of_parts, self.channels)

    @property
    def contraction(self) -> Contraction | None:
        """The anchor, if the package's own ops make it."""
        return self.anchor if isinstance(self.anchor, Contraction) else None

    @property
    def convolution(self) -> Convolution | None:
        """The anchor, if it is a convolution."""
        return self.anchor if isinstance(self.anchor, Convolution) else None

    @property
    def batched(self) -> Batched | None:
        """The anchor, if it is a product of two inputs."""
        return self.anchor if isinstance(self.anchor, Batched) else None

    @property
    def has_weight(self) -> bool:
        """Whether the anchor has a weight, which is in the module's dtype."""
        return self.anchor is not None and self.anchor.attribute is not None

    @property
    def has_own_images(self) -> bool:
        """Whether the source is an input of the module, [batch, channels, *positions]."""
        return self.spatial > 0 and not self.has_weight

    @property
    def is_over_channels(self) -> bool:
        """Whether the source is the product of images with a weight, of which the last dimension is the channels."""
        return self.spatial > 0 and self.contraction is not None

    @property
    def of_rows(self) -> bool:
        """Whether the result has one value for each row."""
        return not self.result.is_full

    @property
    def takes_mean(self) -> bool:
        """Whether the module returns the mean of the losses of rows."""
        return self.loss is not None and self.loss.reduction == "mean"

    def result_shape(self, leading: Sequence[Dim], channels: Dim, positions: Sequence[Dim] = ()) -> tuple[Dim, ...]:
        """The shape of the result for these sizes of what the tail's source has: [*leading, channels, *positions].
        Of several trailing dimensions all but the last count as leading ones."""
        if self.loss is not None and self.loss.reduction != "none":
            return ()
        if self.exchanged:
            sizes: dict[Dim, Dim] = {ROWS_OF_RESULT: leading[0], CHANNELS_OF_RESULT: channels}
            return tuple(sizes.get(each, each) for each in self.exchanged)
        own: tuple[Dim, ...] = () if self.drops_channels else (1,) if self.of_rows else (channels,)
        return (*leading, *own, *positions)

    @property
    def further(self) -> dict[str, Node]:
        """The floating inputs that steps take besides the source."""
        return {name: node for name, node in self.tail_inputs.items() if node is not self.source}

    def node_of(self, name: str) -> Node | None:
        """What steps take of an input; None where none does."""
        return self.further.get(name) or self.masks.get(name)

    @property
    def compact(self) -> dict[str, Reach]:
        """Those that kernels take as they are, with fewer rows than others."""
        return {name: reach for name, reach in self.spread.items() if reach.is_compact}

    def name_of(self, attribute: str) -> str:
        """The ops' name of a parameter, buffer or constant of the module. attribute: such as "bn.weight"."""
        tables = (self.parameters, self.buffers, self.constants)
        return next(name for table in tables for name, each in table.items() if each.attribute == attribute)

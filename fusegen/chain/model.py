"""A chain as the planner takes it: the graph of its tail, and what the module around it owns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from fusegen.chain.anchors import Anchor, Batched, Contraction, Convolution
from fusegen.chain.result import Result
from fusegen.chain.shape import Broadcast, Role, Shape, certain
from fusegen.chain.state import BatchNorm, Buffer, Constant, Dropout, Parameter, RankStatistics
from fusegen.ir.axes import Dim
from fusegen.ir.graph import Graph, Node
from fusegen.ir.multiples import times
from fusegen.spec.document import DocumentPath


@dataclass(frozen=True)
class Input:
    """A tensor argument of the module's forward.

    kind: how steps take it: as numbers, as a mask of bool, or as the number of a channel for each row. node: what steps
    take of it; None where none does, as of the operand of an anchor. broadcast: what it varies over, if it is of other
    dimensions of rows than the running value.
    """

    name: str
    shape: tuple[Dim, ...]
    kind: Literal["numbers", "mask", "target"] = "numbers"
    node: Node | None = None
    broadcast: Broadcast | None = None


@dataclass(frozen=True)
class Places:
    """Where the spec has the causes of a chain's parts.

    of: each input, parameter, buffer, constant and anchor, by name. groups: the first norm with each number of groups.
    """

    of: dict[str, DocumentPath] = field(default_factory=dict)
    groups: dict[Dim, DocumentPath] = field(default_factory=dict)


@dataclass
class Chain:
    """One variant of a chain (training or evaluation) over the view [rows, channels].

    anchor: None where the tail begins with an input.
    source: the leaf that enters the tail: the anchor's output, or the module's input where there is no anchor.
    parts: where the source is divided into parts of its channels, the leaves that stand for those of the source and
        of what belongs to the same channels, by name.
    shape: of the value that enters the tail, or of one of its parts.
    inputs: the arguments of the module's forward, in order.
    running: the value before each step; None before an anchor.
    dropouts: in their order.
    """

    graph: Graph
    training: bool
    anchor: Anchor | None
    source: Node
    parts: dict[str, tuple[Node, ...]]
    shape: Shape
    inputs: list[Input]
    running: list[Node | None]
    result: Result
    parameters: dict[str, Parameter]
    buffers: dict[str, Buffer]
    constants: dict[str, Constant]
    batch_norms: list[BatchNorm]
    dropouts: list[Dropout]
    places: Places

    # Sizes

    @cached_property
    def rows(self) -> Dim:
        """The graph's rows: a size of the spec, or ROWS where several dimensions have them."""
        return certain(self.shape.rows)

    @cached_property
    def channels(self) -> Dim:
        """The graph's channels; those of one part where the source is divided."""
        return certain(self.shape.channels)

    @cached_property
    def leading(self) -> tuple[Dim, ...]:
        """The dimensions of rows where the spec gives the inputs more than two."""
        several = self.shape.sizes(Role.ROW)
        return tuple(map(certain, several)) if len(several) > 1 and not self.batched else ()

    @cached_property
    def trailing(self) -> tuple[Dim, ...]:
        """The dimensions that are the channels together; empty where one is."""
        several = self.shape.sizes(Role.CHANNEL)
        return tuple(map(certain, several)) if len(several) > 1 else ()

    @cached_property
    def spatial(self) -> int:
        """How many dimensions of positions the values have, [batch, channels, *positions]; 0 where the channels are the
        last dimension."""
        return self.shape.spatial

    @property
    def number_of_parts(self) -> int:
        """Into how many parts the source's channels are divided; 1 where they are not."""
        return len(self.parts.get(self.source.name, ())) or 1

    @property
    def source_channels(self) -> Dim:
        """The channels of the source: of all its parts."""
        return times(self.number_of_parts, self.channels)

    # The anchor

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

    # Parameters

    @property
    def parameters_of_rows(self) -> list[str]:
        """The names of those that have a value for each row."""
        return [name for name, parameter in self.parameters.items() if "N" in parameter.axes]

    # Norms

    @property
    def rank_norms(self) -> list[RankStatistics]:
        """The statistics of all ranks that the graph takes as leaves."""
        return [norm.ranks for norm in self.batch_norms if norm.ranks is not None]

    @property
    def group_counts(self) -> tuple[Dim, ...]:
        """Each number of groups that a norm has."""
        return tuple(self.places.groups)

    # Inputs

    @cached_property
    def tail_inputs(self) -> dict[str, Node]:
        """What steps take of floating inputs, the source among them where one takes it again."""
        return self._nodes("numbers")

    @cached_property
    def further(self) -> dict[str, Node]:
        """What steps take of floating inputs besides the source."""
        return {name: node for name, node in self.tail_inputs.items() if node is not self.source}

    @cached_property
    def masks(self) -> dict[str, Node]:
        """What steps take of inputs of bool."""
        return self._nodes("mask")

    @cached_property
    def targets(self) -> dict[str, Node]:
        """The inputs that have the number of a channel for each row."""
        return self._nodes("target")

    def _nodes(self, kind: str) -> dict[str, Node]:
        return {given.name: given.node for given in self.inputs if given.kind == kind and given.node is not None}

    @cached_property
    def broadcast_inputs(self) -> dict[str, Broadcast]:
        """The inputs that vary over some dimensions of rows alone, and over which."""
        return {given.name: given.broadcast for given in self.inputs if given.broadcast is not None}

    @cached_property
    def compact(self) -> dict[str, Broadcast]:
        """Those that kernels take as they are, with fewer rows than others."""
        return {name: broadcast for name, broadcast in self.broadcast_inputs.items() if broadcast.is_compact}

    def node_of(self, name: str) -> Node | None:
        """What steps take of an input; None where none does."""
        return self.further.get(name) or self.masks.get(name)

    # Names

    @property
    def updates(self) -> dict[str, Node]:
        """The new value of each buffer that a forward pass changes, by the buffer's name."""
        return {buffer.name: buffer.update for buffer in self.buffers.values() if buffer.update is not None}

    @property
    def seed(self) -> str:
        """What the ops call the tensor that dropouts draw from."""
        return self.dropouts[0].seed

    def name_of(self, attribute: str) -> str:
        """The ops' name of a parameter, buffer or constant of the module. attribute: such as "bn.weight"."""
        tables = (self.parameters, self.buffers, self.constants)
        return next(name for table in tables for name, each in table.items() if each.attribute == attribute)

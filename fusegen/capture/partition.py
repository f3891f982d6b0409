"""Which operators of a graph run as one: a norm or a reduction over the channels, with what is pointwise around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import torch
from torch import fx

from fusegen.aten import table
from fusegen.aten.nodes import argument, memory_of, operator_of, shape_of, value_of
from fusegen.capture.roles import DTYPES, Frame, Kind, changes_nothing, frame_of, is_narrower, kind_of


@dataclass(eq=False)
class Region:
    """Operators that run as one, in the order of the graph, and how their values lie."""

    frame: Frame
    nodes: list[fx.Node] = field(default_factory=list)

    @property
    def results(self) -> list[fx.Node]:
        """The nodes whose values others take."""
        inside = set(self.nodes)
        return [node for node in self.nodes if any(user not in inside for user in node.users)]

    @property
    def ops(self) -> list[str]:
        """The names of the operators."""
        return [operator_of(node)[1] for node in self.nodes]


def partition(graph: fx.Graph) -> list[Region]:
    """The regions of a graph, of which no operator is in two, and each can run at one moment."""
    kinds = {node: kind for node in graph.nodes if (kind := kind_of(node)) is not None}
    order = _Order(graph)
    sections = sections_of(graph)
    found: list[Region] = []
    for wanted in ("norm", "reduction"):
        for node in graph.nodes:
            region = _grown(node, kinds, sections, order) if kinds.get(node) == wanted else None
            if region is not None:
                order.join(region.nodes)
                found.append(region)
                for each in region.nodes:
                    del kinds[each]
    return found


def _grown(
    seed: fx.Node, kinds: Mapping[fx.Node, Kind], sections: Mapping[fx.Node, int], order: _Order
) -> Region | None:
    """The region around a norm or a reduction. kinds: of the nodes that are in no region."""
    frame = frame_of(seed)
    assert frame is not None
    inside = {seed: None}
    if not _fits(seed, frame, inside):
        return None
    waiting = [seed]
    while waiting:
        node = waiting.pop()
        for each in (*node.all_input_nodes, *node.users):
            if each in inside or kinds.get(each, "norm") == "norm" or sections[each] != sections[seed]:
                continue
            if not _fits(each, frame, inside) or (kinds[each] == "reduction" and frame_of(each) != frame):
                continue
            if order.is_convex((*inside, each)):
                inside[each] = None
                waiting.append(each)
    _keep_one_beginning(inside, seed, order, frame)
    _prune(inside, seed, frame)
    _take_out_inputs(inside)
    region = Region(frame, sorted(inside, key=order.place))
    return region if all(shape_of(node) == frame.sizes for node in region.results) else None


def _fits(node: fx.Node, frame: Frame, inside: Iterable[fx.Node]) -> bool:
    """Whether a node makes a value of the region of such values, on the region's device."""
    value = value_of(node)
    first = value_of(next(iter(inside)))
    assert value is not None and first is not None
    if value.device != first.device or frame.lay(shape_of(node)) not in ("full", "row"):
        return False
    if operator_of(node)[1] in table.MODULES:  # tensors of channels have places of their own
        return frame.lay(shape_of(node.args[0])) == "full"
    for each in node.all_input_nodes:
        operand = value_of(each)
        if operand is None or operand.dtype not in DTYPES or frame.lay(shape_of(each)) is None:
            return False
        if operand.device != first.device:
            return False
    return True


def _keep_one_beginning(inside: dict[fx.Node, None], seed: fx.Node, order: _Order, frame: Frame) -> None:
    """Takes out functions of further inputs alone, which are inputs then: a chain begins with one input."""
    needed = [seed]
    for node in needed:
        needed += [each for each in node.all_input_nodes if each in inside and each not in needed]
    source = _source(min(_beginnings(inside) & set(needed), key=order.place), frame)
    while others := {node for node in _beginnings(inside) if _source(node, frame) is not source}:
        for node in others:
            del inside[node]


def _beginnings(inside: Iterable[fx.Node]) -> set[fx.Node]:
    return {node for node in inside if not any(each in inside for each in node.all_input_nodes)}


def _source(node: fx.Node, frame: Frame) -> fx.Node | None:
    """The first of its operands that has all rows and channels."""
    return next((each for each in node.all_input_nodes if frame.lay(shape_of(each)) == "full"), None)


def _prune(inside: dict[fx.Node, None], seed: fx.Node, frame: Frame) -> None:
    """Takes out what spares nothing: a function at an end whose operand, or at the beginning whose result, is stored
    in any case. The rest's neighbour can have it as well. So it can a cast at an end that makes values wider; one that
    makes them narrower stays, since it spares that they are read. What takes a number of each row stays as well: a
    region has no such result."""
    changed = True
    while changed:
        changed = False
        for node in [each for each in inside if each is not seed]:
            ours = [user for user in node.users if user in inside]
            stored = len(ours) < len(node.users)
            wide = [each for each in node.all_input_nodes if frame.lay(shape_of(each)) == "full"]
            within = [each for each in wide if each in inside]
            of_rows = any(each in inside for each in node.all_input_nodes if each not in wide)
            is_end = not ours and not of_rows and all(any(user not in inside for user in each.users) for each in within)
            if not ours and kind_of(node) == "cast":
                is_end = not is_narrower(node)
            is_beginning = stored and ours and not within and len(wide) < 2
            if is_end or is_beginning:
                del inside[node]
                changed = True


def _take_out_inputs(inside: dict[fx.Node, None]) -> None:
    """Takes out what is an input but for its dtype where others take it as well: then that is the input."""
    changed = True
    while changed:
        changed = False
        for node in [each for each in inside if any(user not in inside for user in each.users)]:
            at = node
            while at in inside and changes_nothing(at):
                at = at.args[0]  # type: ignore[assignment]
            if at not in inside:
                del inside[node]
                changed = True


def sections_of(graph: fx.Graph) -> dict[fx.Node, int]:
    """Parts of a graph between which nothing may move: what changes memory or a mode lies between them."""
    found: dict[fx.Node, int] = {}
    count = 0
    shared = _shared_statistics(graph)
    for node in graph.nodes:
        if node.op == "call_function" and (node in shared or _is_barrier(node)):
            count += 1
        found[node] = count
    return found


def _shared_statistics(graph: fx.Graph) -> set[fx.Node]:
    """Norms that change statistics, which their schemas do not tell, and what else takes them."""
    changed = {
        memory_of(each)
        for node in graph.nodes
        if operator_of(node)[1] in ("batch_norm", "instance_norm") and argument(node, 5, "training")
        for each in node.args[3:5]
    }
    users: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        for memory in {memory_of(each) for each in node.all_input_nodes} & changed:
            if memory is not None:
                users.setdefault(memory, []).append(node)
    return {node for group in users.values() if len(group) > 1 for node in group}


def _is_barrier(node: fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return not node.all_input_nodes or node.is_impure()
    if not node.target._schema.is_mutable:
        return False
    # The counts of batch norms move in each call, and nothing else reads them.
    changed = node.args[0]
    value = value_of(changed)
    return value is None or value.dtype.is_floating_point or len(changed.users) > 1  # type: ignore[union-attr]


class _Order:
    """What has to run before what. The nodes of a region count as one."""

    def __init__(self, graph: fx.Graph) -> None:
        self._nodes = list(graph.nodes)
        self._place = {node: index for index, node in enumerate(self._nodes)}
        self._before = [0] * len(self._nodes)
        self._behind = [0] * len(self._nodes)
        for index, node in enumerate(self._nodes):
            own = 1 << index
            self._before[index] = reduce(or_, (self._before[self._place[each]] for each in node.all_input_nodes), own)
        for index in reversed(range(len(self._nodes))):
            own = 1 << index
            users = self._nodes[index].users
            self._behind[index] = reduce(or_, (self._behind[self._place[each]] for each in users), own)

    def place(self, node: fx.Node) -> int:
        return self._place[node]

    def is_convex(self, nodes: Iterable[fx.Node]) -> bool:
        """Whether nothing else has to run behind one of the nodes and before another."""
        own, before, behind = self._of(nodes)
        return not before & behind & ~own

    def join(self, nodes: Iterable[fx.Node]) -> None:
        """Lets nodes run at one moment."""
        own, before, behind = self._of(nodes)
        for index in _bits(before):
            self._behind[index] |= behind
        for index in _bits(behind):
            self._before[index] |= before

    def _of(self, nodes: Iterable[fx.Node]) -> tuple[int, int, int]:
        """As sets of places: the nodes, what runs before some of them, and behind."""
        places = [self._place[node] for node in nodes]
        sets = ((1 << place for place in places), *([each[i] for i in places] for each in (self._before, self._behind)))
        own, before, behind = (reduce(or_, each) for each in sets)
        return own, before, behind


def _bits(places: int) -> Iterator[int]:
    while places:
        low = places & -places
        yield low.bit_length() - 1
        places ^= low

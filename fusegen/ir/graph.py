"""A directed acyclic graph of element-wise functions and reductions over a view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fusegen.errors import InternalError
from fusegen.ir.axes import MATRIX, SCALAR, Axes, broadcast

LEAVES = frozenset({"tensor", "scalar", "literal", "count", "channel", "draw"})
REDUCTIONS = frozenset({"sum", "moments", "max", "argmax", "amax", "peak", "ties"})


@dataclass(frozen=True)
class Draw:
    """What a leaf "draw" is: for each element of its axes 0 with the probability p, else 1 / (1 - p), anew in a call.

    p: the name of a constant of the module. stream: draws of one chain differ by it.
    """

    p: str
    stream: int


@dataclass(frozen=True, eq=False)
class Node:
    """One value. Nodes are compared by identity; `Graph` makes equal expressions the same node.

    op: "tensor", "scalar", "literal", "count", "channel" (the number of each channel) and "draw" (random numbers) are
        leaves; those of REDUCTIONS reduce their operand to `axes`, "expand" repeats it; "mean" and "variance" pick one
        result of "moments"; everything else is an element-wise function of `fusegen.ir.functions`.
    attribute: what `op` needs besides its operands: a tensor's or scalar's name, a literal's value; "count" is
        how many elements one value over these axes stands for; "draw" has a `Draw`.
    axes: what the value varies over. view: the axes of an element of the graph.
    name: the identifier that emitted code uses.
    temporary: may be printed inside the one expression that uses it.
    """

    op: str
    operands: tuple[Node, ...]
    attribute: object
    axes: Axes
    name: str
    index: int
    temporary: bool = False
    view: Axes = MATRIX

    @property
    def is_full(self) -> bool:
        """Whether it differs from element to element."""
        return self.axes == self.view

    @property
    def is_leaf(self) -> bool:
        return self.op in LEAVES

    @property
    def is_reduction(self) -> bool:
        return self.op in REDUCTIONS

    @property
    def number(self) -> float:
        """The value of a literal."""
        assert isinstance(self.attribute, float)
        return self.attribute

    def __repr__(self) -> str:
        operands = ", ".join(operand.name for operand in self.operands)
        return f"{self.name}{self.axes} = {self.op}({operands})"


@dataclass
class Graph:
    """Builds nodes, each expression once. Node indices are a topological order.

    view: the axes of an element, over which values of full size vary.
    spec_names: names that the spec gives to tensors and constants; only they may have them. Everything else gives way,
        by a number after its name.
    first_index: the index of the first node made here; those of adopted nodes are below.
    """

    spec_names: frozenset[str] = frozenset()
    view: Axes = MATRIX
    first_index: int = 0
    nodes: list[Node] = field(default_factory=list)
    _known: dict[tuple, Node] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _claimed: set[str] = field(default_factory=set)

    @property
    def reserved(self) -> frozenset[str]:
        """The names of tensors and constants, which no other value may have."""
        return self.spec_names | self._claimed

    def claim(self, name: str) -> str:
        """A name for a tensor or constant that the spec has no name for: this one, or where that is taken one like
        it."""
        unique = self._unique(name)
        self._claimed.add(unique)
        return unique

    def add(
        self,
        op: str,
        *operands: Node,
        name: str,
        axes: Axes | None = None,
        attribute: object = None,
        temporary: bool = False,
    ) -> Node:
        """The node of this expression; `axes` defaults to what the operands broadcast to."""
        if axes is None:
            axes = broadcast(*(operand.axes for operand in operands))
        key = _key(op, operands, attribute, axes)
        if key not in self._known:
            own = op in ("tensor", "scalar") and (name in self.spec_names or name in self._claimed)
            unique = name if own else self._unique(name)
            node = Node(op, operands, attribute, axes, unique, self.first_index + len(self.nodes), temporary, self.view)
            self.nodes.append(node)
            self._known[key] = node
        return self._known[key]

    def add_again(self, node: Node, operands: Sequence[Node]) -> Node:
        """What a node of another graph is, of other operands: those of this graph that stand for its own."""
        axes = node.axes if node.is_reduction or node.op == "expand" else None
        return self.add(
            node.op, *operands, name=node.name, axes=axes, attribute=node.attribute, temporary=node.temporary
        )

    def adopt(self, node: Node) -> Node:
        """Makes a node of another graph one of this one, under the name that it has."""
        if node.index >= self.first_index:
            raise InternalError(f"{node!r} would come after the nodes that use it")
        if node.is_leaf:
            self._known.setdefault(_key(node.op, node.operands, node.attribute, node.axes), node)
        self._names[node.name] = max(1, self._names.get(node.name, 0))
        return node

    def tensor(self, name: str, axes: Axes) -> Node:
        return self.add("tensor", name=name, axes=axes, attribute=name)

    def scalar(self, name: str) -> Node:
        """A constant that the module holds as an attribute and passes at run time."""
        return self.add("scalar", name=name, axes=SCALAR, attribute=name)

    def draw(self, p: str, stream: int, axes: Axes, name: str) -> Node:
        """Factors of a dropout. p: the name of a constant, see `scalar`."""
        return self.add("draw", name=name, axes=axes, attribute=Draw(p, stream))

    def literal(self, value: float) -> Node:
        return self.add("literal", name="literal", axes=SCALAR, attribute=float(value))

    def _unique(self, name: str) -> str:
        seen = self._names.setdefault(name, 1 if name in self.spec_names else 0)
        self._names[name] = seen + 1
        return name if seen == 0 else self._unique(f"{name}_{seen + 1}")


def _key(op: str, operands: tuple[Node, ...], attribute: object, axes: Axes) -> tuple:
    """What makes two expressions the same."""
    # 0.0 and -0.0 are equal, but not the same constant.
    exact = repr(attribute) if isinstance(attribute, float) else attribute
    return op, tuple(operand.index for operand in operands), exact, axes


def ancestors(sinks: Iterable[Node], stop: Iterable[Node] = ()) -> list[Node]:
    """Everything that `sinks` need, in topological order; nodes in `stop` are included, but not what only they need."""
    border = set(stop)
    seen: set[Node] = set()
    stack = list(sinks)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node not in border:
            stack.extend(node.operands)
    return sorted(seen, key=lambda node: node.index)


def reductions(nodes: Iterable[Node]) -> Iterator[Node]:
    return (node for node in nodes if node.is_reduction)


def verify(sinks: Iterable[Node]) -> None:
    """Raises InternalError unless every node is well formed."""
    for node in ancestors(sinks):
        if any(operand.index >= node.index for operand in node.operands):
            raise InternalError(f"{node!r} is used before it is made")
        if node.is_leaf:
            continue
        joined = broadcast(*(operand.axes for operand in node.operands))
        if node.is_reduction:
            if node.axes == joined or not node.axes <= joined:
                raise InternalError(f"{node!r} reduces {joined} to {node.axes}")
        elif node.op == "expand":
            if not joined <= node.axes:
                raise InternalError(f"{node!r} expands {joined} to {node.axes}")
        elif node.axes != joined:
            raise InternalError(f"{node!r} should have the axes {joined}")

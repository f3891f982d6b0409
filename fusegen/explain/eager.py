"""What eager PyTorch moves for a chain: one pass over memory for each operator, forward and backward.

An operator reads each of its operands once and writes its result once. Its backward pass reads what the gradients of
this operator alone need, and writes them; a gradient that is the incoming one unchanged costs nothing. PyTorch's own
kernels do no better, and some read an operand twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.diagnostics import Diagnostics
from fusegen.ir.autodiff import differentiate
from fusegen.ir.axes import Axes
from fusegen.ir.graph import Node, ancestors
from fusegen.ops.norms import Norm
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Role, Variant
from fusegen.plan.programs.program_io import saved_nodes
from fusegen.spec.document import Document


@dataclass(frozen=True)
class Tensor:
    """What an operator moves. name: the plan's, where fused kernels have the tensor too. role: as in the plan. pooled:
    whether it has a row for each window of positions."""

    name: str
    axes: Axes
    role: Role
    pooled: bool = False


@dataclass(frozen=True)
class Traffic:
    """What an operator reads and writes in one direction, each tensor once."""

    reads: tuple[Tensor, ...] = ()
    writes: tuple[Tensor, ...] = ()


def operators(plan: Plan, variant: Variant) -> list[tuple[Traffic, Traffic]]:
    """Forward and backward of each step. The product of a linear layer is left out, and its sum with the bias: both
    sides have the former, and the latter is the product's in eager PyTorch. So is a convolution, but not its sum with
    the bias, for which PyTorch has a pass of its own."""
    steps = [_Operator(plan, variant, index) for index in range(len(plan.spec.chain))]
    same: dict[str, str] = {}
    for step in steps:
        if step.passes_on:
            before, after = step.gradient_of_operand, step.gradient_of(step.result).name
            if after == variant.result_gradient:
                same[before] = after
            else:
                same[after] = same.get(before, before)
    parts = _names_of_parts(variant)
    return [(_divided(step.forward(), parts), _divided(_renamed(step.backward(), same), parts)) for step in steps]


def _names_of_parts(variant: Variant) -> dict[str, list[str]]:
    """Those of what fused kernels read and write in parts, by the name of the whole."""
    found = {name: [leaf.name for leaf in leaves] for name, leaves in variant.chain.parts.items()}
    for tensor in variant.backward.outputs:
        if tensor.part is not None:
            found.setdefault(tensor.part.tensor, []).append(tensor.name)
    return found


def _divided(traffic: Traffic, parts: Mapping[str, Sequence[str]]) -> Traffic:
    """With the parts of tensors that have such, each of as many channels as the chain."""
    both = (
        [replace(tensor, name=name) for tensor in tensors for name in parts.get(tensor.name, (tensor.name,))]
        for tensors in (traffic.reads, traffic.writes)
    )
    return Traffic(*map(tuple, both))


def _draws_elements(node: Node) -> bool:
    return any(each.op == "draw" and each.is_full for each in ancestors([node]))


def _renamed(traffic: Traffic, same: Mapping[str, str]) -> Traffic:
    """With one name for a gradient that operators pass on as it is."""
    both = ([replace(t, name=same.get(t.name, t.name)) for t in part] for part in (traffic.reads, traffic.writes))
    return Traffic(*map(tuple, both))


class _Operator:
    """One step, built alone over leaves that stand for the running value and what else it takes.

    made: the gradients that its backward pass computes, by their leaf. needed: what it reads for them; reads_result:
    whether the result is among that. statistics: what the forward pass stores for them besides the result. passes_on:
    whether the gradient of the running value is the incoming one.
    """

    def __init__(self, plan: Plan, variant: Variant, index: int) -> None:
        self.variant, self.chain, self.step = variant, variant.chain, plan.spec.chain[index]
        self.values = [*self.chain.running, self.chain.result.node]
        behind = [each for each in self.values[1:] if each is not None]  # all: an anchor is the first step
        diagnostics = Diagnostics(Document("", {}, (), {}, {}), frozenset())
        self.builder = ChainBuilder(plan.spec, diagnostics, self.chain.training)
        # A parameter that an earlier step has made is only named; the step's own is made anew.
        self.builder.parameters |= {n: p for n, p in self.chain.parameters.items() if p.attribute == n}
        self.parts = self.chain.parts.get(self.chain.source.name, ())
        self.leaves_of_parts = {leaf for leaves in self.chain.parts.values() for leaf in leaves}
        value = self.values[index]
        running = None if value is None else self._leaf(value)
        self.builder.running = [running]
        self.builder.dropped_channels = any(step.drops_channels for step in plan.spec.chain[:index])
        if index:
            whole = self.chain.shape.with_channels(self.chain.source_channels)
            self.builder.shape = whole if self.step.divides else self.chain.shape
        for before, step in enumerate(plan.spec.chain[:index]):
            values = self.parts if len(step.saved) > 1 else [behind[before]]
            for name, value in zip(step.saved, values, strict=False):
                self.builder.remember(name, self._leaf(value))
        self.builder.step = index
        self.node = self.step.build(self.builder, running)
        self.result = Tensor(self._name(behind[index]), self.node.axes, "activation")
        graph = self.builder.graph
        self.grad = graph.tensor(graph.claim("incoming"), self.node.axes)
        leaves = [n for n in ancestors([self.node]) if n.op == "tensor" and n.attribute not in self.chain.buffers]
        found = differentiate(graph, self.node, self.grad, leaves)
        self.made = {leaf: each for leaf, each in found.items() if each is not self.grad}
        saved = saved_nodes(list(self.made.values()), self.grad)
        # A gradient that uses the result reads it, and not what it follows from. PyTorch's norms read their operand,
        # whose normalised values are the result where there is no weight.
        reads_result = not isinstance(self.step, Norm)
        self.needed = ancestors(self.made.values(), {*saved, self.node} if reads_result else set(saved))
        self.reads_result = reads_result and self.node in self.needed
        statistics = [node for node in saved if node in self.needed and node is not self.node]
        self.statistics = [Tensor(node.name, node.axes, "accumulator") for node in statistics]
        # nn.Dropout stores a byte for each element, and reads it in its backward pass. In evaluation it does nothing.
        self.mask = [Tensor(f"{self.result.name} mask", self.node.axes, "mask")] if _draws_elements(self.node) else []
        self.pool = self.builder.pool
        if self.pool is not None:
            self.result = Tensor(variant.result, self.node.axes, "activation", pooled=True)
        # PyTorch's index of the largest of a window.
        self.index = [Tensor(f"{self.result.name} index", self.node.axes, "index", pooled=True)]
        self.index = self.index if self.pool and self.pool.largest else []
        self.does_nothing = self.node is running and self.pool is None
        self.passes_on = running is not None and found.get(running) is self.grad and self.pool is None
        self.gradient_of_operand = "" if running is None else self.gradient_of(self._tensors([running])[0]).name

    def _name(self, value: Node) -> str:
        """The plan's. The result of an anchor is the kernels' input, with a bias or without. So are its parts."""
        leaves = (value,) if value.op == "tensor" else value.operands if value.op == "add" else ()
        if leaves and leaves[0] in self.parts and all(each in self.leaves_of_parts for each in leaves):
            return leaves[0].name
        if self.chain.anchor is not None and value is self.values[1]:
            return self.chain.source.name
        if value is self.chain.result.node and self.chain.result.pool is None:
            return self.variant.result
        return next((each.tensor.name for each in self.variant.further if each.tensor.node is value), value.name)

    def _leaf(self, value: Node) -> Node:
        return self.builder.graph.tensor(self._name(value), value.axes)

    def _role(self, name: str) -> Role:
        if name in self.chain.buffers:
            return "count" if self.chain.buffers[name].integer else "parameter"
        if name in self.chain.further:
            return f"input {name}"
        if name in self.chain.masks:
            return "mask"
        if name in self.chain.targets:
            return "index"
        return "parameter" if name in self.chain.parameters else "activation"

    def _tensors(self, nodes: Iterable[Node]) -> list[Tensor]:
        """The leaves among them that lie in memory."""
        found = {str(node.attribute): node.axes for node in nodes if node.op == "tensor"}
        return [Tensor(name, axes, self._role(name)) for name, axes in found.items()]

    def gradient_of(self, tensor: Tensor) -> Tensor:
        """The gradient of a tensor; that of a value between two operators is one that no fused kernel knows."""
        known = self.variant.gradients
        results = dict(zip(self.variant.results, self.variant.result_gradients, strict=True))
        if tensor.name in results:
            name = results[tensor.name]
        else:
            name = known[tensor.name].name if tensor.name in known else f"gradient of {tensor.name}"
        return replace(tensor, name=name)

    def forward(self) -> Traffic:
        if self.pool is not None:
            return Traffic(tuple(self._tensors([self.node])), (self.result, *self.index))
        if self.node.op == "tensor":  # a view
            return Traffic()
        if self.does_nothing or (self.step.anchor and not (self.chain.convolution and self.step.bias)):
            return Traffic()
        updates = {name: each.update for name, each in self.builder.buffers.items() if each.update is not None}
        reads = self._tensors(ancestors([self.node, *updates.values()]))
        moved = [Tensor(name, node.axes, self._role(name)) for name, node in updates.items()]
        moved += [tensor for tensor in reads if tensor.role == "count"]
        return Traffic(tuple(reads), (self.result, *self.statistics, *self.mask, *moved))

    def backward(self) -> Traffic:
        if self.pool is not None:
            (operand,) = self._tensors([self.node])
            return Traffic((self.gradient_of(self.result), *self.index), (self.gradient_of(operand),))
        if self.node.op == "tensor" and self.step.divides:
            # The gradients of all parts are copied into one tensor.
            return Traffic(
                tuple(self.gradient_of(self._tensors([part])[0]) for part in self.parts), (self._of_whole(),)
            )
        reads = [each for each in self._tensors(self.needed) if each.name != self.grad.attribute]
        reads += [*self.statistics, *self.mask]
        reads += [self.result] if self.reads_result else []
        reads += [self.gradient_of(self.result)] if self.grad in self.needed else []
        if self.step.divides:
            return Traffic(tuple(reads), (self._of_whole(),))
        return Traffic(tuple(reads), tuple(map(self.gradient_of, self._tensors(self.made))))

    def _of_whole(self) -> Tensor:
        """The gradient of what the step divides."""
        return self.gradient_of(Tensor(self.chain.source.name, self.chain.graph.view, "activation"))

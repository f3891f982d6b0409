"""What the programs of a variant are made of: results, gradients, and what they read and save."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusegen.chain.model import Chain
from fusegen.ir.autodiff import differentiate
from fusegen.ir.axes import ROW, SAMPLE, SCALAR
from fusegen.ir.functions.catalogue import is_by_sign
from fusegen.ir.graph import Graph, Node, ancestors
from fusegen.ir.reductions import channel_numbers, stored_operand
from fusegen.ops.step import promote
from fusegen.plan.programs.model import FurtherResult, Mode, Part, Role, Tensor
from fusegen.plan.programs.modes import eager_dtypes
from fusegen.plan.programs.samples import summed_inputs
from fusegen.spec.model import SpecModel

_RESULT = "y"


@dataclass(frozen=True)
class ProgramIO:
    """What the programs of a variant are made of.

    result: the name of the chain's result. grad: the gradient that comes to it. gradients: of the tensors, with what is
    to be told of them. saved: what the forward program makes for the backward one. sources: what the chain reads.
    without: the rewrites that are switched off. further: the other results. grads: the gradients that come to them.
    again: those of them that the backward program reads.
    """

    chain: Chain
    result: str
    grad: Tensor
    gradients: Sequence[Tensor]
    reasons: Sequence[str]
    saved: Sequence[Tensor]
    sources: Sequence[Tensor]
    without: Collection[str] = ()
    further: tuple[FurtherResult, ...] = ()
    grads: Sequence[Tensor] = ()
    again: Sequence[Tensor] = ()

    @property
    def inexact(self) -> set[Node]:
        """An anchor's result has a rounding error of its own; what the module is given may be exact."""
        chain = self.chain
        return set(chain.parts.get(chain.source.name, (chain.source,))) if chain.anchor is not None else set()

    @property
    def read(self) -> list[Tensor]:
        """The tensors that the backward program may read: gradients of results, sources, results read again, and saved
        ones."""
        taps = [self.grad.taps] if self.grad.taps else []
        return [*taps, self.grad, *self.grads, *self.sources, *self.again, *self.saved]

    @property
    def stored_taps(self) -> list[Tensor]:
        """What the forward program stores of them, with its result."""
        return [replace(self.grad.taps, node=self.chain.result.node)] if self.grad.taps else []


def program_io(spec: SpecModel, chain: Chain, found: Sequence[Mode]) -> ProgramIO:
    """The tensors that the programs of a variant read, save and return. found: the dtype configurations of the plan."""
    graph = chain.graph
    result = graph.claim(_RESULT)
    grad = graph.tensor(graph.claim(f"grad_{result}"), chain.result.node.axes)
    leaves = _leaves(chain)
    names = {name: graph.claim(f"grad_{name}") for name in leaves}
    further = _further(chain)
    grads = [Tensor(each.gradient, graph.tensor(each.gradient, each.tensor.axes), each.tensor.role) for each in further]
    flows = [(each.tensor.node, given.node) for each, given in zip(further, grads, strict=True)]
    wanted = [node for nodes in leaves.values() for node in nodes]
    gradients = differentiate(graph, chain.result.node, grad, wanted, flows)
    incoming = [grad, *(given.node for given in grads)]
    outputs, reasons = _gradient_outputs(spec, chain, gradients, names, found, incoming)
    targets = [tensor.node for tensor in outputs]
    nodes = saved_nodes(targets, grad, *(given.node for given in grads))
    pool = chain.result.pool
    taps = Tensor(graph.claim(f"{result}_taps"), grad, "tap", pool=pool) if pool and pool.largest else None
    results = [Tensor(result, chain.result.node, "output")] if is_by_sign(chain.result.node) and not pool else []
    results += [each.tensor for each in further]
    again = _read_again(results, targets, nodes)
    read = ancestors(targets, [*nodes, *(tensor.node for tensor in again)])
    saved = [Tensor(node.name, node, _role(spec, chain, node, found)) for node in nodes if node in read]
    return ProgramIO(
        chain,
        result,
        Tensor(grad.name, grad, "output", pool=pool, taps=taps),
        outputs,
        reasons,
        saved,
        _sources(chain),
        spec.without_rewrites,
        further,
        grads,
        again,
    )


def _further(chain: Chain) -> tuple[FurtherResult, ...]:
    """The results besides the one at the end."""
    found = []
    for saved, node in chain.result.further.items():
        name = chain.graph.claim(saved)
        gradient = chain.graph.claim(f"grad_{name}")
        found.append(FurtherResult(saved, Tensor(name, node, f"output {saved}"), gradient))
    return tuple(found)


def _read_again(results: Sequence[Tensor], targets: list[Node], saved: list[Node]) -> list[Tensor]:
    """The results that the backward program reads instead of computing them from more tensors of full size; one whose
    sign is all that it needs, instead of as many: what takes the result keeps it in any case."""
    found: list[Tensor] = []

    def tensors(given: Sequence[Tensor]) -> list[Node]:
        stop = [*saved, *(tensor.node for tensor in given)]
        return [node for node in ancestors(targets, stop) if node.is_full and (node.op == "tensor" or node in stop)]

    for each in results:
        if each.node.is_leaf or each.node in saved:
            continue
        before, behind = tensors(found), tensors([*found, each])
        if len(behind) < len(before) + (is_by_sign(each.node) and each.node in behind):
            found.append(each)
    return found


def statistics_of_ranks(chain: Chain) -> list[Tensor]:
    """The means and variances over all ranks that a chain over ranks reads, [channels] in the accumulation dtype; empty
    for another chain."""
    nodes = [node for norm in chain.rank_norms for node in (norm.mean, norm.variance)]
    return [Tensor(node.name, node, "accumulator") for node in nodes]


def _leaves(chain: Chain) -> dict[str, tuple[Node, ...]]:
    """Those of each differentiable tensor, by its name: one, or one for each of its parts."""
    parameters = [chain.graph.tensor(p.name, p.axes) for p in chain.parameters.values()]
    nodes = [chain.source, *chain.tail_inputs.values(), *parameters]
    return {node.name: chain.parts.get(node.name, (node,)) for node in nodes}


def _tensors(name: str, parts: dict[str, Node], role: Role, **what: Any) -> list[Tensor]:
    """The tensor of this name, or its parts by their names."""
    if len(parts) == 1:
        return [Tensor(name, node, role, **what) for node in parts.values()]
    return [
        Tensor(each, node, role, part=Part(name, index, len(parts)), **what)
        for index, (each, node) in enumerate(parts.items())
    ]


def _sources(chain: Chain) -> list[Tensor]:
    """Every tensor that the tail may read."""
    leaves = {name: {node.name: node for node in nodes} for name, nodes in _leaves(chain).items()}
    tensors = _tensors(chain.source.name, leaves[chain.source.name], "activation")
    roles = {**{name: f"input {name}" for name in chain.further}, **dict.fromkeys(chain.masks, "mask")}
    for name, node in {**chain.further, **chain.masks}.items():
        compact = chain.compact[name].rows or "" if name in chain.compact else ""
        tensors.append(Tensor(name, node, roles[name], compact=compact))
    tensors += [Tensor(name, node, "index") for name, node in chain.targets.items()]
    for parameter in chain.parameters.values():
        tensors += _tensors(parameter.name, leaves[parameter.name], "parameter", in_product=parameter.in_product)
    for buffer in chain.buffers.values():
        role = "count" if buffer.integer else "parameter"
        tensors.append(Tensor(buffer.name, chain.graph.tensor(buffer.name, buffer.axes), role, optional=chain.training))
    tensors += statistics_of_ranks(chain)
    if chain.dropouts:
        tensors.append(Tensor(chain.seed, chain.graph.tensor(chain.seed, SCALAR), "seed"))
    return tensors


def _gradient_outputs(
    spec: SpecModel,
    chain: Chain,
    gradients: dict[Node, Node],
    names: dict[str, str],
    found: Sequence[Mode],
    grads: Sequence[Node],
) -> tuple[list[Tensor], list[str]]:
    """The results of the backward program, and what is worth telling about them. names: of each tensor's gradient.
    found: the modes. grads: of the chain's results."""
    leaves, reasons = _leaves(chain), []
    outputs: list[Tensor] = []

    def add(name: str, role: Role) -> None:
        given = [_reduced(chain.graph, gradients.get(node), grads) for node in leaves[name]]
        # Parts are of one tensor: those that the result does not depend on have a gradient of zero there.
        nodes = [
            _zero(chain.graph, leaf) if each is None else each for leaf, each in zip(leaves[name], given, strict=True)
        ]
        parts = {names[name]: nodes[0]}
        if len(nodes) > 1:
            parts = {chain.graph.claim(f"{names[name]}_part{index}"): node for index, node in enumerate(nodes, 1)}
        outputs.extend(_tensors(names[name], parts, role, optional=True, gradient_of=name))

    add(chain.source.name, "activation")
    of_samples = summed_inputs(chain)
    for name, node in chain.further.items():
        if name in of_samples and node in gradients and gradients[node].is_full:
            total = chain.graph.add("sum", gradients[node], axes=SAMPLE, name=f"{names[name]}_sum")
            outputs.append(Tensor(names[name], total, f"input {name}", optional=True, gradient_of=name, samples=name))
            reasons.append(f"the gradient of {name} is summed in the last pass: blocks have rows of one sample each")
        elif node in gradients:
            add(name, _role_before_sum(spec, chain, name, found) if name in chain.compact else f"input {name}")
            if name in chain.compact:
                reasons.append(f"the gradient of {name} is written for every row, and then summed by PyTorch")
    for parameter in chain.parameters.values():
        given = [gradients[node] for node in leaves[parameter.name] if node in gradients]
        if not given:
            continue
        add(parameter.name, "parameter")
        if any(other.op == "vanishing" for other in ancestors(given)):
            reasons.append(
                f"the gradient of {parameter.attribute} is zero: a normalisation after it subtracts the mean"
            )
    return outputs, reasons


def _reduced(graph: Graph, node: Node | None, grads: Sequence[Node]) -> Node | None:
    """The same as a sum over the channels, if it is a value of each row that no reduction makes: kernels store such
    values with the sums of rows."""
    if node is None or node.axes != ROW:
        return node
    reductions = [each for each in ancestors([node]) if each.is_reduction]
    if any(grad in ancestors(reductions) for grad in grads):
        return node
    one = graph.add("at_channel", node, channel_numbers(graph), graph.literal(0), name=f"{node.name}_once")
    return graph.add("sum", one, axes=ROW, name=f"{node.name}_alone")


def _zero(graph: Graph, leaf: Node) -> Node:
    return graph.add("expand", graph.literal(0), axes=leaf.axes, name=f"d_{leaf.name}")


def saved_nodes(targets: list[Node], *grads: Node) -> list[Node]:
    """What the backward program takes from the forward pass: the operands that it compares, and instead of reducing
    again the statistics, which are what follows from reductions, without the gradient, as full-size values use it."""
    stored = [stored_operand(node) for node in ancestors(targets)]
    found = {node: None for node in stored if node is not None and not node.is_leaf}
    seen = set(found)
    stack = list(targets)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        again = node.op == "moments" or stored_operand(node) is not None
        if not node.is_full and not again and _is_statistic(node, grads):
            found[node] = None
        else:
            stack.extend(node.operands)
    return sorted(found, key=lambda node: node.index)


def _role(spec: SpecModel, chain: Chain, node: Node, found: Sequence[Mode]) -> Role:
    """That of what is saved. An operand of full size has the dtype that eager PyTorch keeps it in, for the sake of
    memory; where no role has that dtype in all modes, it is float32."""
    steps = [index for index, value in enumerate(chain.running) if value is node]
    if node.is_full and steps:
        dtypes = [(mode.roles, eager_dtypes(spec, chain, mode, steps[0])) for mode in found]
        for role in ("activation", "output"):
            if all(eager == {roles[role]} for roles, eager in dtypes):
                return role
    return "accumulator"


def _role_before_sum(spec: SpecModel, chain: Chain, name: str, found: Sequence[Mode]) -> Role:
    """That of the gradient of an input with fewer rows, before PyTorch sums it: eager PyTorch has it in the dtype of
    the result of the step that takes the input, or in a wider one of several."""
    takers = [index for index, step in enumerate(spec.chain, 1) if name in (getattr(step, "input", None), step.from_)]
    for role in (f"input {name}", "activation", "output"):
        if all(
            {mode.roles[role]} == {promote(mode.roles[f"input {name}"], dtype) for dtype in dtypes}
            for mode in found
            for dtypes in [[each for index in takers for each in eager_dtypes(spec, chain, mode, index)]]
        ):
            return role
    return "accumulator"


def _is_statistic(node: Node, grads: Sequence[Node]) -> bool:
    before = ancestors([node])
    return not any(grad in before for grad in grads) and any(other.is_reduction for other in before)

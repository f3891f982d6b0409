"""From a spec to its plan: the variants of the module, each with a forward and a backward program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusegen.chain.build import build_chain, examine_chain
from fusegen.chain.model import Chain
from fusegen.errors import SpecError
from fusegen.ir.autodiff import differentiate
from fusegen.ir.axes import SCALAR
from fusegen.ir.graph import Graph, Node, ancestors
from fusegen.ir.reductions import stored_operand
from fusegen.plan.devices import Device, planning_device
from fusegen.plan.epilogue import is_split, reason, why_after_product
from fusegen.plan.folding import Folding
from fusegen.plan.model import Mode, Part, Program, Role, Tensor, Variant
from fusegen.plan.modes import eager_dtypes, modes
from fusegen.plan.outer import with_outer
from fusegen.plan.over_ranks import Ingredients, RankPlan, plan_over_ranks, statistics_of_ranks
from fusegen.plan.refusals import refusals, synchronised
from fusegen.plan.tuning import Tuning
from fusegen.spec.model import SpecModel
from fusegen.spec.validate import merge

_RESULT = "y"


@dataclass(frozen=True)
class Plan:
    """Everything that rendering needs to know. tuning: by architecture; empty where nothing was measured. over_ranks:
    training with the statistics of several ranks, where the spec has it."""

    spec: SpecModel
    device: Device
    variants: tuple[Variant, ...]
    modes: tuple[Mode, ...]
    tuning: Tuning = ()
    over_ranks: RankPlan | None = None

    @property
    def programs(self) -> list[Program]:
        """Every program: forward and backward of each variant, then those over ranks."""
        found = [program for variant in self.variants for program in (variant.forward, variant.backward)]
        return [*found, *(self.over_ranks.programs if self.over_ranks else ())]

    @property
    def chain(self) -> Chain:
        """The training variant's chain: it has every parameter, buffer and constant."""
        return self.variants[0].chain

    @property
    def has_precisions(self) -> bool:
        """Whether there is a product of float32 operands, which a module may want in another precision than IEEE's."""
        return self.chain.contraction is not None and "float32" in self.spec.dtypes

    def in_epilogue(self, program: Program) -> bool:
        """Whether a program is compiled for the epilogue of the product too: forward ones alone are."""
        forward = any(program is variant.forward for variant in self.variants)
        return forward and is_split(self.spec) and why_after_product(program) is None

    @property
    def op_names(self) -> list[str]:
        """What the package registers below torch.ops.fusegen."""
        others = [*(["split"] if self.has_precisions else []), *(["ranks_merge"] if self.over_ranks else [])]
        return [f"{self.spec.name}_{name}" for name in (*(program.name for program in self.programs), *others)]


def make_plan(spec: SpecModel, document) -> Plan:
    """Plans a validated spec. Raises SpecError where the chain does not fit together or cannot be scheduled."""
    training, diagnostics = examine_chain(spec, document, training=True)
    diagnostics = merge(diagnostics, refusals(spec, training, document))
    if diagnostics:
        raise SpecError(diagnostics)
    chains = {"": training}
    if training.dropouts or any(tracked for _, tracked in training.batch_norms):
        chains = {"train": training, "eval": build_chain(spec, document, training=False)}
    found = tuple(modes(spec, training))
    variants = tuple(_variant(spec, name, chain, found) for name, chain in chains.items())
    over_ranks = None
    if synchronised(spec):
        chain = build_chain(spec, document, training=True, over_ranks=True)
        over_ranks = plan_over_ranks(_ingredients(spec, chain, found))
    return Plan(spec, planning_device(spec.targets), variants, found, over_ranks=over_ranks)


def _ingredients(spec: SpecModel, chain: Chain, found: Sequence[Mode]) -> Ingredients:
    graph = chain.graph
    result = graph.claim(_RESULT)
    grad = graph.tensor(graph.claim(f"grad_{result}"), chain.result.axes)
    leaves = _leaves(chain)
    names = {name: graph.claim(f"grad_{name}") for name in leaves}
    gradients = differentiate(graph, chain.result, grad, [node for nodes in leaves.values() for node in nodes])
    outputs, reasons = _gradient_outputs(chain, gradients, names)
    nodes = saved_nodes([tensor.node for tensor in outputs], grad)
    saved = [Tensor(node.name, node, _role(spec, chain, node, found)) for node in nodes]
    return Ingredients(chain, result, Tensor(grad.name, grad, "output"), outputs, reasons, saved, _sources(chain))


def _variant(spec: SpecModel, name: str, chain: Chain, found: Sequence[Mode]) -> Variant:
    prefix = f"{name}_" if name else ""
    of, graph = _ingredients(spec, chain, found), chain.graph
    forward_outputs = [Tensor(of.result, chain.result, "output"), *of.saved]
    forward_outputs += [Tensor(buffer, value, "parameter", optional=True) for buffer, value in chain.updates.items()]
    forward_outputs += [tensor for tensor in of.sources if tensor.role == "count"]
    forward = Folding(graph, f"{prefix}forward", of.sources, forward_outputs, inexact=of.inexact).program()
    if is_split(spec):
        forward = replace(forward, reasons=(*forward.reasons, reason(forward)))
    read = [of.grad, *of.sources, *of.saved]
    backward = Folding(graph, f"{prefix}backward", read, of.gradients, of.reasons, of.inexact).program()
    forward, backward = with_outer(chain, forward, backward, of.saved)
    needs_source = any(tensor.name == chain.source.name for tensor in backward.given)
    return Variant(name, chain, forward, backward, tuple(of.saved), needs_source, of.result, of.grad.name)


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
    for name, node in chain.tail_inputs.items():
        if node is not chain.source:
            tensors.append(Tensor(name, node, f"input {name}"))
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
    chain: Chain, gradients: dict[Node, Node], names: dict[str, str]
) -> tuple[list[Tensor], list[str]]:
    """The results of the backward program, and what is worth telling about them. names: of each tensor's gradient."""
    leaves, reasons = _leaves(chain), []
    outputs: list[Tensor] = []

    def add(name: str, role: Role) -> None:
        found = [gradients.get(node) for node in leaves[name]]
        # Parts are of one tensor: those that the result does not depend on have a gradient of zero there.
        nodes = [
            _zero(chain.graph, leaf) if each is None else each for leaf, each in zip(leaves[name], found, strict=True)
        ]
        parts = {names[name]: nodes[0]}
        if len(nodes) > 1:
            parts = {chain.graph.claim(f"{names[name]}_part{index}"): node for index, node in enumerate(nodes, 1)}
        outputs.extend(_tensors(names[name], parts, role, optional=True, gradient_of=name))

    add(chain.source.name, "activation")
    for name, node in chain.tail_inputs.items():
        if node is not chain.source and node in gradients:
            add(name, f"input {name}")
    for parameter in chain.parameters.values():
        found = [gradients[node] for node in leaves[parameter.name] if node in gradients]
        if not found:
            continue
        add(parameter.name, "parameter")
        if any(other.op == "vanishing" for other in ancestors(found)):
            reasons.append(
                f"the gradient of {parameter.attribute} is zero: a normalisation after it subtracts the mean"
            )
    return outputs, reasons


def _zero(graph: Graph, leaf: Node) -> Node:
    return graph.add("expand", graph.literal(0), axes=leaf.axes, name=f"d_{leaf.name}")


def saved_nodes(targets: list[Node], grad: Node) -> list[Node]:
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
        if not node.is_full and not again and _is_statistic(node, grad):
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


def _is_statistic(node: Node, grad: Node) -> bool:
    before = ancestors([node])
    return grad not in before and any(other.is_reduction for other in before)

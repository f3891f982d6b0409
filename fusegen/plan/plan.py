"""From a spec to its plan: the variants of the module, each with a forward and a backward program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusegen.chain.build import build_chain, examine_chain
from fusegen.chain.model import Chain
from fusegen.errors import SpecError
from fusegen.ir.autodiff import differentiate
from fusegen.ir.graph import Node, ancestors
from fusegen.ir.reductions import stored_operand
from fusegen.plan.devices import Device, planning_device
from fusegen.plan.epilogue import is_split, reason, why_after_product
from fusegen.plan.folding import Folding
from fusegen.plan.model import Mode, Program, Role, Tensor, Variant
from fusegen.plan.modes import eager_dtypes, modes
from fusegen.plan.refusals import refusals
from fusegen.plan.tuning import Tuning
from fusegen.spec.model import SpecModel
from fusegen.spec.validate import merge

_RESULT = "y"


@dataclass(frozen=True)
class Plan:
    """Everything that rendering needs to know. tuning: by architecture; empty where nothing was measured."""

    spec: SpecModel
    device: Device
    variants: tuple[Variant, ...]
    modes: tuple[Mode, ...]
    tuning: Tuning = ()

    @property
    def programs(self) -> list[Program]:
        """Every program, forward and backward of each variant."""
        return [program for variant in self.variants for program in (variant.forward, variant.backward)]

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
        split = ["split"] if self.has_precisions else []
        return [f"{self.spec.name}_{name}" for name in (*(program.name for program in self.programs), *split)]


def make_plan(spec: SpecModel, document) -> Plan:
    """Plans a validated spec. Raises SpecError where the chain does not fit together or cannot be scheduled."""
    training, diagnostics = examine_chain(spec, document, training=True)
    diagnostics = merge(diagnostics, refusals(spec, training, document))
    if diagnostics:
        raise SpecError(diagnostics)
    chains = {"": training}
    if any(tracked for _, tracked in training.batch_norms):
        chains = {"train": training, "eval": build_chain(spec, document, training=False)}
    found = tuple(modes(spec, training))
    variants = tuple(_variant(spec, name, chain, found) for name, chain in chains.items())
    return Plan(spec, planning_device(spec.targets), variants, found)


def _variant(spec: SpecModel, name: str, chain: Chain, found: Sequence[Mode]) -> Variant:
    prefix = f"{name}_" if name else ""
    graph = chain.graph
    result = graph.claim(_RESULT)
    grad = graph.tensor(graph.claim(f"grad_{result}"), chain.result.axes)
    leaves = {node.name: node for node in _leaves(chain)}
    names = {name: graph.claim(f"grad_{name}") for name in leaves}
    gradients = differentiate(graph, chain.result, grad, list(leaves.values()))
    outputs, reasons = _gradient_outputs(chain, gradients, names)
    nodes = saved_nodes([tensor.node for tensor in outputs], grad)
    saved = [Tensor(node.name, node, _role(spec, chain, node, found)) for node in nodes]
    forward_outputs = [Tensor(result, chain.result, "output")]
    forward_outputs += saved
    forward_outputs += [Tensor(buffer, value, "parameter", optional=True) for buffer, value in chain.updates.items()]
    sources = _sources(chain)
    forward_outputs += [tensor for tensor in sources if tensor.role == "count"]
    # An anchor's result has a rounding error of its own; what the module is given may be exact.
    inexact = {chain.source} if chain.has_anchor else set()
    forward = Folding(graph, f"{prefix}forward", sources, forward_outputs, inexact=inexact).program()
    if is_split(spec):
        forward = replace(forward, reasons=(*forward.reasons, reason(forward)))
    grad_tensor = Tensor(grad.name, grad, "output")
    read = [grad_tensor, *sources, *saved]
    backward = Folding(graph, f"{prefix}backward", read, outputs, reasons, inexact).program()
    needs_source = any(tensor.node is chain.source for tensor in backward.inputs)
    return Variant(name, chain, forward, backward, tuple(saved), needs_source, result, grad.name)


def _leaves(chain: Chain) -> list[Node]:
    parameters = [chain.graph.tensor(p.name, p.axes) for p in chain.parameters.values()]
    return [chain.source, *chain.tail_inputs.values(), *parameters]


def _sources(chain: Chain) -> list[Tensor]:
    """Every tensor that the tail may read."""
    tensors = [Tensor(chain.source.name, chain.source, "activation")]
    for name, node in chain.tail_inputs.items():
        if node is not chain.source:
            tensors.append(Tensor(name, node, f"input {name}"))
    tensors += [Tensor(name, node, "index") for name, node in chain.targets.items()]
    for parameter in chain.parameters.values():
        node = chain.graph.tensor(parameter.name, parameter.axes)
        tensors.append(Tensor(parameter.name, node, "parameter", in_product=parameter.in_product))
    for buffer in chain.buffers.values():
        role = "count" if buffer.integer else "parameter"
        tensors.append(Tensor(buffer.name, chain.graph.tensor(buffer.name, buffer.axes), role, optional=chain.training))
    return tensors


def _gradient_outputs(
    chain: Chain, gradients: dict[Node, Node], names: dict[str, str]
) -> tuple[list[Tensor], list[str]]:
    """The results of the backward program, and what is worth telling about them. names: of each tensor's gradient."""
    source, reasons = chain.source, []

    def gradient(name: str, node: Node, role: Role) -> Tensor:
        return Tensor(names[name], gradients[node], role, optional=True, gradient_of=name)

    outputs = [gradient(source.name, source, "activation")]
    for name, node in chain.tail_inputs.items():
        if node is not source and node in gradients:
            outputs.append(gradient(name, node, f"input {name}"))
    for parameter in chain.parameters.values():
        node = chain.graph.tensor(parameter.name, parameter.axes)
        if node not in gradients:
            continue
        outputs.append(gradient(parameter.name, node, "parameter"))
        if any(other.op == "vanishing" for other in ancestors([gradients[node]])):
            reasons.append(
                f"the gradient of {parameter.attribute} is zero: a normalisation after it subtracts the mean"
            )
    return outputs, reasons


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

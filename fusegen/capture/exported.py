"""A program of torch.export with ops of packages in the place of its regions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._export.passes.replace_autocast_with_hop_pass import replace_autocast_with_hop_pass
from torch._higher_order_ops.wrap import wrap_with_autocast, wrap_with_set_grad_enabled
from torch._subclasses import FakeTensor
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.export import ExportedProgram, ModuleCallEntry
from torch.export.graph_signature import ExportGraphSignature
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fusegen.capture.call import Call
from fusegen.capture.lower import NotLowered

# What stands for a block of a program, and the place of the block's graph among its operands.
_BLOCKS = {wrap_with_autocast: 4, wrap_with_set_grad_enabled: 1}


def with_ops(program: ExportedProgram, rewritten: Callable[[fx.GraphModule], fx.GraphModule]) -> ExportedProgram:
    """The program with a graph of its own, which `rewritten` makes of a copy; itself if that puts no Calls into it.

    The graph is lowered as it runs: under the autocast that it has inside, and for inference. Raises NotLowered.
    """
    if any(free_unbacked_symbols(node.meta.get("val")) for node in program.graph.nodes):
        raise NotLowered("it has sizes that depend on values")
    traced = _without_blocks(program.graph_module)
    for old, new in zip(_inputs(program.graph), _inputs(traced.graph), strict=True):
        new.meta = old.meta | {"example_value": old.meta["val"]}
    with torch.no_grad(), torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        module = rewritten(traced)
        if not any(isinstance(part, Call) for part in module.modules()):
            return program
        for part in list(module.modules()):
            if isinstance(part, fx.GraphModule):
                _write_ops(part)
    module = _named(module, _inputs(program.graph))
    signature = _signature(program.graph_signature, module.graph)
    if any(node.target is _enter_autocast for node in module.graph.nodes):
        module, made = replace_autocast_with_hop_pass(module, signature)  # as programs are saved
        signature = made or signature
    module.meta.update(program.graph_module.meta)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=[_without_signature(entry) for entry in program.module_call_graph],
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _inputs(graph: fx.Graph) -> list[fx.Node]:
    return graph.find_nodes(op="placeholder")


def _without_blocks(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph, where blocks under autocast begin and end as in Dynamo's graphs, and blocks under a mode of
    gradients are none."""
    graph, attributes = fx.Graph(), dict[str, Any]()
    graph.output(_copied(module, graph, attributes, {}))
    return fx.GraphModule(attributes, graph)


def _copied(module: fx.GraphModule, graph: fx.Graph, attributes: dict[str, Any], copies: dict[fx.Node, Any]) -> Any:
    """Copies a graph into another, and returns its results there. attributes: of the owner of the other, gets what the
    graph reads. copies: the nodes that are there, by those of the graph."""
    for node in module.graph.nodes:
        if node.op == "output":
            return fx.map_arg(node.args[0], copies.__getitem__)
        if node.op == "get_attr":
            if all(user.target in _BLOCKS for user in node.users):
                continue
            copies[node] = graph.get_attr(f"{node.name}_{len(attributes)}")
            copies[node].meta = dict(node.meta)
            attributes[copies[node].target] = operator.attrgetter(node.target)(module)
        elif node.target in _BLOCKS:
            at = _BLOCKS[node.target]
            inner: Any = module.get_submodule(node.args[at].target)
            given = fx.map_arg(node.args[at + 1 :], copies.__getitem__)
            entered = graph.call_function(_enter_autocast, node.args[:at]) if at == 4 else None
            copies[node] = _copied(inner, graph, attributes, dict(zip(_inputs(inner.graph), given, strict=True)))
            if entered is not None:
                graph.call_function(_exit_autocast, (entered,))
        elif node.target is operator.getitem and not isinstance(copies[node.args[0]], fx.Node):
            copies[node] = copies[node.args[0]][node.args[1]]
        elif node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return None


def _write_ops(module: fx.GraphModule) -> None:
    """Writes each Call as the ops that it calls."""
    for node in module.graph.find_nodes(op="call_module"):
        call = module.get_submodule(node.target)
        if not isinstance(call, Call):
            continue
        values = [each.meta["val"] for each in node.args]
        mode = next(value.fake_mode for value in values if isinstance(value, FakeTensor))
        with mode:
            ops = make_fx(call, pre_dispatch=True)(*values)
        ops.graph.eliminate_dead_code()  # results that the region does not have
        place = next((trace for each in (node, *node.users) if (trace := each.meta.get("stack_trace"))), None)
        with module.graph.inserting_before(node):
            for each in ops.graph.nodes:
                each.meta["stack_trace"] = place
            copies = dict(zip(_inputs(ops.graph), node.args, strict=True))
            result = module.graph.graph_copy(ops.graph, copies)
        if isinstance(result, tuple):
            for user in list(node.users):
                user.replace_all_uses_with(result[user.args[1]])
                module.graph.erase_node(user)
        else:
            node.replace_all_uses_with(result)
        module.graph.erase_node(node)
        module.delete_submodule(node.target)
    module.recompile()


def _named(module: fx.GraphModule, inputs: Sequence[fx.Node]) -> fx.GraphModule:
    """A graph with the names that inputs have in another."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node, before in zip(_inputs(module.graph), inputs, strict=True):
        copies[node] = graph.create_node("placeholder", before.target)
        copies[node].name = before.name  # which may be that of a function, as `input`
        copies[node].meta = dict(before.meta)
    graph.output(graph.graph_copy(module.graph, copies))
    return fx.GraphModule(module, graph)


def _signature(before: ExportGraphSignature, graph: fx.Graph) -> ExportGraphSignature:
    """With the names that results have in a graph."""
    nodes: Any = graph.output_node().args[0]
    results = [
        replace(spec, arg=replace(spec.arg, name=node.name)) if isinstance(node, fx.Node) else spec
        for spec, node in zip(before.output_specs, nodes, strict=True)
    ]
    return ExportGraphSignature(list(before.input_specs), results)


def _without_signature(entry: ModuleCallEntry) -> ModuleCallEntry:
    """Of a part of a model, whose values a graph may have no more."""
    return replace(entry, signature=None) if entry.fqn else entry

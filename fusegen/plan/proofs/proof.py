"""Proves each program against its graph when it is planned: translation validation at tiny sizes.

Three things are compared. The rewritten graph of the program with the graph that it was made of: rewrites change no
value. And the program, as kernels run it (`fusegen.plan.proofs.interpreter`), with its graph: no pass computes anything
else. And what a forward program stores with what the backward one takes that for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fusegen.errors import InternalError
from fusegen.ir.axes import Axes
from fusegen.ir.evaluate import Sizes, Value, agree, evaluate, largest, leaves
from fusegen.ir.graph import Node
from fusegen.plan.programs.model import Program, Tensor
from fusegen.plan.programs.passes import Passes
from fusegen.plan.proofs.interpreter import ROUNDING, Fault, Interpreter, is_resident

_CASES = (
    Sizes({"N": 4, "C": 6}, blocks=2, samples=2),
    Sizes({"N": 3, "C": 6}, blocks=3),
    Sizes({"N": 2, "C": 5}, blocks=1),
    Sizes({"N": 1, "C": 4}, blocks=2),
)
_ALGEBRA = 1e-6  # of the largest element: rewrites round otherwise
_CANCELLED = 1e-12  # of the largest value between: sums that cancel are of its rounding errors


def prove(program: Program, outputs: Sequence[Tensor]) -> None:
    """Raises InternalError unless the program computes what the nodes of `outputs` are. outputs: those of the program,
    of the graph before any rewrite."""
    originals = {tensor.name: tensor.node for tensor in outputs if tensor.role != "count"}
    passes = Passes(program)
    for sizes in _CASES:
        try:
            with np.errstate(all="ignore"):
                _compare(passes, originals, sizes)
        except Fault as fault:
            text = ", ".join(f"{name} {length}" for name, length in sizes.lengths.items())
            raise InternalError(f"the plan of {program.name} is wrong, at {text}: {fault}") from None


def prove_saved(forward: Program, backward: Program) -> None:
    """Raises InternalError unless what the backward program reads of the forward one is what that stores as such."""
    made = {tensor.name: tensor.node for tensor in forward.outputs}
    read = {tensor.name: tensor.node for tensor in backward.inputs if not tensor.node.is_leaf}
    if missing := read.keys() - made.keys():
        raise InternalError(f"{forward.name} does not store {', '.join(sorted(missing))}, which {backward.name} reads")
    sizes = _CASES[0]
    with np.errstate(all="ignore"):
        given = _given(backward, [made[name] for name in read], sizes)
        stored = evaluate([made[name] for name in read], {n: x for n, x in given.items() if n.is_leaf}, sizes)
        rounding = _CANCELLED * largest(stored.values())
        for name, node in read.items():
            if not agree(stored[made[name]], given[node], _ALGEBRA, rounding):
                raise InternalError(f"what {forward.name} stores as {name} is not the {name} of {backward.name}")


def _compare(passes: Passes, originals: Mapping[str, Node], sizes: Sizes) -> None:
    program = passes.program
    nodes = {t.name: t.node for t in program.outputs if t.role != "count"}
    given = _given(program, [*nodes.values(), *originals.values()], sizes)
    if missing := originals.keys() - nodes.keys():
        raise Fault(f"nothing computes {', '.join(sorted(missing))}")
    original = evaluate(originals.values(), given, sizes)
    truth = evaluate(nodes.values(), given, sizes)
    rounding = _CANCELLED * largest([*original.values(), *truth.values()])
    for name, node in nodes.items():
        if not agree(truth[node], original[originals[name]], _ALGEBRA, rounding):
            raise Fault(f"{name} is not what it was before the graph was rewritten")
    for tensor in program.outputs:
        if (alias := tensor.alias_of) is not None:
            (other,) = (t.node for t in (*program.inputs, *program.outputs) if t.name == alias.name)
            if not agree(truth[tensor.node], {**given, **truth}[other], _ALGEBRA, rounding):
                raise Fault(f"{tensor.name} is not {alias.name}")
    arrays = {t.name: truth[t.node] for t in program.inputs if t.node in truth}
    arrays |= {node.name: truth[node] for node in program.draws}
    for resident in [False, *([True] if is_resident(passes) else [])]:
        found = Interpreter(passes, arrays, truth, sizes, rounding, resident).run()
        for name, node in nodes.items():
            if name not in found:
                raise Fault(f"nothing stores {name}")
            if not agree(found[name], truth[node], ROUNDING, rounding):
                raise Fault(f"what is stored as {name} is not {node!r}")


def _given(program: Program, sinks: Sequence[Node], sizes: Sizes) -> dict[Node, Value]:
    """Values of the leaves, anew for each program but always the same, and of what else lies in memory."""
    random = np.random.default_rng(sum(sizes.lengths.values()))
    roles = {tensor.node: tensor.role for tensor in program.inputs}
    stored = [tensor.node for tensor in program.inputs if not tensor.node.is_leaf]
    found: dict[Node, Value] = {}
    for node in leaves([*sinks, *stored]):
        shape = sizes.shape(node.axes)
        match roles.get(node, node.op):
            case "mask":
                found[node] = random.integers(0, 2, shape).astype(float)
            case "index":
                found[node] = random.integers(0, sizes.lengths["C"], shape).astype(float)
            case "count":
                found[node] = np.full(shape, 3.0)
            case _:
                found[node] = _repeated(
                    random.uniform(0.5, 1.5, shape) * random.choice((-1, 1), shape), node.axes, sizes
                )
    values = evaluate(stored, found, sizes)
    return {**found, **{node: values[node] for node in stored}}


def _repeated(x: np.ndarray, axes: Axes, sizes: Sizes) -> np.ndarray:
    """The first value of each block at all of its indices."""
    for index, name in enumerate(sizes.lengths):
        count = sizes.count(axes, name)
        if name in axes and count != x.shape[index]:
            width = x.shape[index] // count
            x = np.repeat(np.take(x, range(0, x.shape[index], width), index), width, index)
    return x

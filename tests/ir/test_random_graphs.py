"""Gradients and rewrites of random graphs, in double precision beside PyTorch's autograd of the same graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from fusegen.ir.autodiff import differentiate  # noqa: E402
from fusegen.ir.extent import CHANNEL, FULL, ROW, SCALAR, Extent, segment  # noqa: E402
from fusegen.ir.functions import normalisation, reduced, softmax  # noqa: E402
from fusegen.ir.graph import Graph, Node, ancestors, verify  # noqa: E402
from fusegen.ir.simplify import simplify  # noqa: E402
from tests.ir.evaluate import Values  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, CHANNELS, GROUPS = 5, 6, 3
SHAPES = {FULL: (ROWS, CHANNELS), CHANNEL: (1, CHANNELS), SCALAR: (1, 1)}
ARITHMETIC = ("add", "sub", "mul")
REDUCED = {
    "sum": reduced.total,
    "mean": reduced.mean,
    "max": reduced.largest,
    "min": reduced.smallest,
    "amax": reduced.tied_largest,
    "amin": reduced.tied_smallest,
}
OF_ONE = ("negate", "tanh", "sigmoid", "relu", "silu", "softmax", "log_softmax", "logsumexp", *REDUCED, "detach")
NORMS = {"batch_norm": CHANNEL, "layer_norm": ROW, "group_norm": segment(GROUPS), "rms_norm": ROW}
STEPS = st.tuples(st.sampled_from((*ARITHMETIC, *OF_ONE, *NORMS)), st.integers(0, 20), st.integers(0, 20))


@dataclass
class Random:
    """A graph that grows step by step. values: what steps may take, leaves first."""

    graph: Graph = field(default_factory=Graph)
    values: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.leaves = [self.graph.tensor(name, extent) for name, extent in LEAVES.items()]
        self.values += self.leaves

    def step(self, op: str, first: int, second: int) -> None:
        x = self.values[-1 - first % len(self.values)]
        if op in ARITHMETIC:
            self.values.append(self.add(op, x, self.values[second % len(self.values)]))
        elif op in ("negate", "tanh", "sigmoid", "relu", "detach"):
            self.values.append(self.add(op, x))
        elif x.extent == FULL:  # the others are about all elements of a row or column
            self.values.append(self.of_elements(op, x))

    def of_elements(self, op: str, x: Node) -> Node:
        name, graph = f"{op}{len(self.values)}", self.graph
        if op in REDUCED:
            return REDUCED[op](graph, x, ROW, name)
        match op:
            case "silu":
                return self.add("silu", x, self.add("sigmoid", x))
            case "softmax" | "log_softmax" | "logsumexp":
                return getattr(softmax, op)(graph, x, ROW, name)
            case "rms_norm":
                return normalisation.uncentred(graph, x, NORMS[op], graph.literal(0.1), name)
        return normalisation.centred(graph, x, NORMS[op], graph.literal(0.1), name)[0]

    def add(self, op: str, *operands: Node) -> Node:
        return self.graph.add(op, *operands, name=f"{op}{len(self.values)}")


LEAVES: dict[str, Extent] = {"x": FULL, "r": FULL, "b": CHANNEL, "s": SCALAR}


@given(st.lists(STEPS, min_size=1, max_size=9), st.integers(0, 2**16))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_gradients_are_those_of_autograd(steps: list[tuple[str, int, int]], seed: int) -> None:
    random = Random()
    for step in steps:
        random.step(*step)
    # Everything full-size counts, and what is not is repeated: a term that autodiff loses shows.
    result = random.leaves[0]
    for value in random.values[len(random.leaves) :]:
        result = random.add("add", result, value)
    graph, leaves = random.graph, random.leaves
    torch.manual_seed(seed)
    given_ = {name: torch.randn(SHAPES[extent]).double().requires_grad_() for name, extent in LEAVES.items()}
    given_["g"] = torch.randn(ROWS, CHANNELS).double()
    values = Values(ROWS, CHANNELS, torch.float64, given_)
    known = {leaf: leaf.name for leaf in leaves}
    y = values.of({"y": result}, known)["y"]
    expected = torch.autograd.grad(y, list(given_.values())[:-1], given_["g"], allow_unused=True)

    g = graph.tensor("g", FULL)
    known[g] = "g"
    found = differentiate(graph, result, g, leaves)
    verify(found.values())
    sinks = {leaf.name: node for leaf, node in found.items()}
    close(values.of(sinks, known), expected)
    # A program has the rewritten graph.
    rewritten, _ = simplify(graph, [result, *found.values()], set(known), inexact={leaves[0]})
    close(values.of({name: rewritten[node] for name, node in sinks.items()}, known), expected)
    again = values.of({"y": rewritten[result]}, known)["y"]
    torch.testing.assert_close(again.expand(y.shape), y, rtol=1e-9, atol=1e-9 * scale(y))
    assert not any(node.op == "detach" and node.extent == FULL for node in ancestors(rewritten.values()))


def close(found: dict[str, torch.Tensor], expected: tuple[torch.Tensor | None, ...]) -> None:
    for name, exact in zip(LEAVES, expected, strict=True):
        if exact is not None and name in found:
            value = found[name].expand(exact.shape)
            torch.testing.assert_close(
                value, exact, rtol=1e-8, atol=1e-9 * scale(exact), msg=lambda m, n=name: f"{n}: {m}"
            )
        else:
            assert exact is None or float(exact.abs().max()) == 0, name


def scale(x: torch.Tensor) -> float:
    return max(1.0, float(x.detach().abs().max()))

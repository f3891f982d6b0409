"""Gradients and rewrites of random graphs, in double precision beside PyTorch's autograd of the same graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from fusegen.ir.autodiff import differentiate  # noqa: E402
from fusegen.ir.axes import CHANNEL, MATRIX, ROW, SCALAR, Axes  # noqa: E402
from fusegen.ir.functions import normalisation, reduced, softmax  # noqa: E402
from fusegen.ir.graph import Graph, Node, ancestors, verify  # noqa: E402
from fusegen.ir.rewrites import REWRITES  # noqa: E402
from fusegen.ir.simplify import simplify  # noqa: E402
from tests.ir.evaluate import Values  # noqa: E402

pytestmark = pytest.mark.torch

LENGTHS = {"N": 5, "C": 6, "S": 4}
SPACE = Axes.of("N", "C", "S")
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
NORMS = {"batch_norm": CHANNEL, "layer_norm": ROW, "instance_norm": MATRIX, "group_norm": Axes.of("N", C=3)}
"""One value of the statistics for each element of these axes. Over a matrix, instance norm has nothing to reduce."""
STEPS = st.tuples(st.sampled_from((*ARITHMETIC, *OF_ONE, *NORMS, "rms_norm")), st.integers(0, 20), st.integers(0, 20))


@dataclass
class Random:
    """A graph that grows step by step. values: what steps may take, leaves first."""

    graph: Graph
    values: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        view = self.graph.view
        axes = {"x": view, "r": view, "b": CHANNEL, "s": SCALAR, "p": view - CHANNEL, "m": MATRIX}
        self.leaves = [self.graph.tensor(name, each) for name, each in axes.items()]
        self.values += self.leaves

    def step(self, op: str, first: int, second: int) -> None:
        x = self.values[-1 - first % len(self.values)]
        if op in ARITHMETIC:
            self.values.append(self.add(op, x, self.values[second % len(self.values)]))
        elif op in ("negate", "tanh", "sigmoid", "relu", "detach"):
            self.values.append(self.add(op, x))
        elif x.is_full and NORMS.get(op) != self.graph.view:  # the others are about elements
            self.values.append(self.of_elements(op, x))

    def of_elements(self, op: str, x: Node) -> Node:
        name, graph = f"{op}{len(self.values)}", self.graph
        over = NORMS.get(op, graph.view - CHANNEL)
        if op in REDUCED:
            return REDUCED[op](graph, x, over, name)
        match op:
            case "silu":
                return self.add("silu", x, self.add("sigmoid", x))
            case "softmax" | "log_softmax" | "logsumexp":
                return getattr(softmax, op)(graph, x, over, name)
            case "rms_norm":
                return normalisation.uncentred(graph, x, over, graph.literal(0.1), name)
        return normalisation.centred(graph, x, over, graph.literal(0.1), name)[0]

    def add(self, op: str, *operands: Node) -> Node:
        return self.graph.add(op, *operands, name=f"{op}{len(self.values)}")


@pytest.mark.parametrize("view", [MATRIX, SPACE], ids=str)
@given(st.lists(STEPS, min_size=1, max_size=9), st.integers(0, 2**16))
@settings(max_examples=120)
def test_gradients_are_those_of_autograd(view: Axes, steps: list[tuple[str, int, int]], seed: int) -> None:
    random = Random(Graph(view=view))
    for step in steps:
        random.step(*step)
    # Everything full-size counts, and what is not is repeated: a term that autodiff loses shows.
    result = random.leaves[0]
    for value in random.values[len(random.leaves) :]:
        result = random.add("add", result, value)
    graph, leaves = random.graph, random.leaves
    torch.manual_seed(seed)
    lengths = {name: length for name, length in LENGTHS.items() if name in view}
    given_ = {leaf.name: draw(leaf.axes, lengths).requires_grad_() for leaf in leaves}
    given_["g"] = draw(view, lengths)
    values = Values(lengths, torch.float64, given_)
    known = {leaf: leaf.name for leaf in leaves}
    y = values.of({"y": result}, known)["y"]
    names = [leaf.name for leaf in leaves]
    gradients = torch.autograd.grad(y, [given_[name] for name in names], given_["g"], allow_unused=True)
    expected = dict(zip(names, gradients, strict=True))

    g = graph.tensor("g", view)
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
    assert not any(node.op == "detach" and node.is_full for node in ancestors(rewritten.values()))
    # Nor do its values need any rewrite.
    off = [name for index, name in enumerate(REWRITES) if seed >> index & 1]
    rewritten, _ = simplify(graph, [*found.values()], set(known), inexact={leaves[0]}, without=off)
    close(values.of({name: rewritten[node] for name, node in sinks.items()}, known), expected)


def draw(axes: Axes, lengths: dict[str, int]) -> torch.Tensor:
    return torch.randn([axes.count(name, length) for name, length in lengths.items()], dtype=torch.float64)


def close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor | None]) -> None:
    for name, exact in expected.items():
        if exact is not None and name in found:
            value = found[name].expand(exact.shape)
            torch.testing.assert_close(
                value, exact, rtol=1e-8, atol=1e-9 * scale(exact), msg=lambda m, n=name: f"{n}: {m}"
            )
        else:
            assert exact is None or float(exact.abs().max()) == 0, name


def scale(x: torch.Tensor) -> float:
    return max(1.0, float(x.detach().abs().max()))

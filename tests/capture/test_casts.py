"""Casts that autocast makes: where they are in the graph, and which results the kernels store in 16 bits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.aten.nodes import operator_of, value_of  # noqa: E402
from fusegen.capture.chain import Chain  # noqa: E402
from fusegen.capture.partition import partition  # noqa: E402
from fusegen.capture.steps import chain_of  # noqa: E402
from tests.capture.graphs import lowered, of_lowered  # noqa: E402
from tests.capture.test_autocast import check, within  # noqa: E402
from tests.capture.test_backend import Make  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]
X = torch.randn(4, 8, requires_grad=True)
WEIGHT = torch.randn(8, 8)


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, (8,))


def graph_of(call: Callable[..., Any], x: Tensor = X) -> torch.fx.Graph:
    return lowered(within(call), x).graph


def chains(call: Callable[..., Any]) -> list[Chain]:
    return [chain_of(region) for region in partition(graph_of(call))]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: norm(x) @ WEIGHT,
        lambda x: F.linear(norm(x), WEIGHT),
        lambda x: norm(x).view(2, 2, 8).transpose(1, 2) @ WEIGHT[:2, :2],
        lambda x: F.silu(norm(x) * 2) @ WEIGHT,
        lambda x: norm(x).to(torch.bfloat16).view(2, 16),
        lambda x: norm(x).to(torch.bfloat16) @ WEIGHT,
    ],
    ids=["product", "linear", "layouts", "tail", "explicit", "explicit product"],
)
def test_a_result_in_16_bits(call: Callable[..., Any]) -> None:
    (chain,) = chains(call)
    assert chain.data["chain"][-1] == {"op": "cast", "dtype": "bfloat16"}
    ((result, at),) = chain.results
    assert result.meta["val"].dtype == torch.bfloat16 and at == 0


def test_the_fakes_are_those_of_the_operators() -> None:
    """Also of layouts behind a cast that has moved."""
    graph = graph_of(lambda x: norm(x).view(2, 2, 8).transpose(1, 2).roll(1, 1) @ WEIGHT[:2, :2])
    layouts = [node for node in graph.nodes if operator_of(node)[1] in ("view", "transpose", "roll")]
    assert len(layouts) == 3
    for node in layouts:
        made = node.target(*torch.fx.node.map_arg(node.args, lambda each: each.meta["val"]))
        value = value_of(node)
        assert value.dtype == torch.bfloat16 and (made.dtype, made.stride()) == (value.dtype, value.stride())


def squared(x: Tensor) -> Tensor:
    y = norm(x[..., None, :].expand(4, 8, 8))
    return y @ y


def twice(x: Tensor) -> Tensor:
    y = norm(x)
    return y @ WEIGHT + y @ WEIGHT.T


def twice_cast(x: Tensor) -> Tensor:
    y = norm(x)
    return y.to(torch.bfloat16) @ WEIGHT + y.to(torch.bfloat16) @ WEIGHT.T


@pytest.mark.parametrize("call", [twice, twice_cast, squared], ids=["products", "explicit", "square"])
def test_of_several_casts_none_is_in_the_chain(call: Callable[..., Any]) -> None:
    """PyTorch adds their gradients in float32."""
    (chain,) = chains(call)
    assert [step["op"] for step in chain.data["chain"]] == ["layer_norm"]


def changed_in_place(x: Tensor) -> Tensor:
    y = norm(x)
    flat = y.view(-1)
    flat.mul_(2)
    return y @ WEIGHT


def changed_behind_a_layout(x: Tensor) -> Tensor:
    y = norm(x)
    turned = y.view(2, 2, 8)
    y.view(-1).mul_(2)
    return turned @ WEIGHT


@pytest.mark.parametrize("call", [changed_in_place, changed_behind_a_layout])
def test_a_value_that_is_changed_in_place_is_cast_where_it_was(call: Callable[..., Any]) -> None:
    x = X.detach()
    torch.testing.assert_close(of_lowered(within(call), x), within(call)(x), rtol=0, atol=0)


def residual(x: Tensor) -> Tensor:
    y = norm(x)
    return y + F.linear(y, WEIGHT)


def test_a_result_in_both_dtypes() -> None:
    (chain,) = chains(residual)
    assert [step["op"] for step in chain.data["chain"]] == ["layer_norm", "cast"]
    assert len(chain.data["outputs"]) == 2
    assert {result.meta["val"].dtype for result, _ in chain.results} == {torch.float32, torch.bfloat16}


def test_a_cast_to_float32_at_the_end_stays_outside() -> None:
    (chain,) = chains(lambda x: norm(x.to(torch.bfloat16)).to(torch.float32).view(2, 16))
    assert "cast" not in [step["op"] for step in chain.data["chain"]]
    assert [result.meta["val"].dtype for result, _ in chain.results] == [torch.bfloat16]


class Attention(nn.Module):
    """What is in front of attention: a sum, which the next block has too, its norm, and a product of that."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.norm, self.out = nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.up(x)
        return x + self.out(self.norm(x).transpose(0, 1)).transpose(0, 1)


class Feed(nn.Module):
    """As BERT has it: the product takes what the sum takes too."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x * 2)
        return y + self.up(y)


@pytest.mark.parametrize("make", [Attention, Feed])
def test_values_and_gradients(backend: Make, make: Callable[[int], nn.Module]) -> None:
    torch.manual_seed(0)
    eager = make(13)
    fused, own = copy.deepcopy(eager), backend()
    check(eager, within(torch.compile(fused, backend=own)), fused, within(eager), (3, 7, 13), torch.float32)
    assert [each.ops[-1] for each in own.report.taken] == ["to"], str(own.report)

"""What Dynamo's graph is as operators of ATen: what changes in place, casts, and what is not lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch._dynamo.exc import BackendCompilerFailed  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from fusegen.aten.nodes import operator_of, value_of  # noqa: E402
from fusegen.capture.lower import NotLowered, lower  # noqa: E402
from tests.capture.graphs import lowered, of_lowered  # noqa: E402

pytestmark = pytest.mark.torch

X, WEIGHT = torch.randn(4, 8), torch.randn(8, 8)


def in_place(call: Callable[..., Any], *inputs: Tensor) -> list[str]:
    """The operators that change their operands still."""
    nodes = lowered(call, *inputs).graph.nodes
    return [operator_of(node)[1] for node in nodes if str(node.target).endswith("_.Tensor")]


def results(call: Callable[..., Any], *inputs: Tensor) -> list[torch.dtype]:
    (output,) = lowered(call, *inputs).graph.find_nodes(op="output")
    return [value_of(node).dtype for node in output.args[0]]


def test_a_change_of_a_value_of_its_own() -> None:
    def call(x: Tensor) -> Tensor:
        y = x * 2
        y += x
        y.mul_(x)
        return y

    assert in_place(call, X) == []


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.tensor_split(2, 1)[0],
        lambda x: x.ravel(),
        lambda x: torch.einsum("ij->ji", x),
        lambda x: x.detach(),
        lambda x: x.chunk(2)[1],
    ],
)
def test_a_change_that_a_view_shows(view: Callable[[Tensor], Tensor]) -> None:
    def call(x: Tensor) -> Tensor:
        y = x * 2
        seen = view(y)
        y.add_(x)
        return seen * 1

    assert in_place(call, X) == ["add"]


@pytest.mark.parametrize(
    "view",
    [lambda x: x.flatten(), lambda x: x.chunk(2)[1], lambda x: x[1:]],
    ids=["flatten", "chunk", "slice"],
)
def test_a_view_of_what_was_changed(view: Callable[[Tensor], Tensor]) -> None:
    """As the end of a convolutional network has it: the view may be changed as well, and shows in the value."""

    def call(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        before = (view(y) * 3).sum()
        y.add_(x)
        seen = view(y)
        seen.add_(1)
        return seen * 1, y * before

    assert in_place(call, X) == ["add"]
    for mine, wanted in zip(of_lowered(call, X), call(X), strict=True):
        torch.testing.assert_close(mine, wanted)


def test_a_change_keeps_the_dtype() -> None:
    """The sum of both would be float32."""

    def call(x: Tensor) -> tuple[Tensor]:
        y = x.to(torch.bfloat16) * 2
        y += x
        return (y,)

    assert in_place(call, X) == ["add"] and results(call, X) == [torch.bfloat16]


def test_a_cast_that_autocast_makes_one() -> None:
    """Without autocast it would be the value itself, and `y` the float32 one."""

    def call(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            y = F.linear(x, WEIGHT)
            wide = y.to(torch.float32)
            return y, wide * 2

    assert results(call, X) == [torch.bfloat16, torch.float32]
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("policy", [None, "save"])
def test_a_checkpoint_stays_one(policy: str | None) -> None:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def context() -> Any:
        return create_selective_checkpoint_contexts(lambda *_, **__: CheckpointPolicy.PREFER_RECOMPUTE)

    given = {} if policy is None else {"context_fn": context}

    def call(x: Tensor) -> Tensor:
        return checkpoint(lambda y: F.relu(y @ WEIGHT), x, use_reentrant=False, **given) * 2

    module = lowered(call, X.clone().requires_grad_())
    (node,) = module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.tag_activation_checkpoint)
    assert ("_checkpoint_context_fn" in getattr(module, node.args[0].target).meta) == (policy is not None)


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 3


def within_a_checkpoint(x: Tensor) -> Tensor:
    return checkpoint(lambda y: Tripled.apply(y @ WEIGHT), x, use_reentrant=False) * 2


def with_a_hook(x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    return F.relu(y)


@pytest.mark.parametrize("call", [lambda x: Tripled.apply(x) * 2, within_a_checkpoint, with_a_hook])
def test_a_gradient_of_its_own_is_kept(call: Callable[[Tensor], Tensor]) -> None:
    """A trace has the forward pass alone."""

    def backend(module: Any, inputs: Any) -> Callable[..., Any]:
        try:
            return lower(module)
        except NotLowered:
            return module

    found = []
    torch._dynamo.reset()
    for each in (call, torch.compile(call, backend=backend)):
        x = X.clone().requires_grad_()
        each(x).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    ("call", "inputs", "reason"),
    [
        (lambda: torch.ones(3) + 1, (), "it takes no tensor"),
        (lambda x: torch.func.vmap(torch.sin)(x), (X,), "a transform of torch.func is a part of it"),
    ],
)
def test_what_is_not_lowered(call: Callable[..., Any], inputs: tuple[Tensor, ...], reason: str) -> None:
    with pytest.raises(BackendCompilerFailed, match=f"NotLowered: {reason}"):
        lowered(call, *inputs)


def test_what_only_imports_write_out() -> None:
    """The library adds a bias in the product, and PyTorch's compiler has losses of elements as well."""

    def call(x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
        z = torch.addmm(y, x, weight)
        return F.mse_loss(torch.addcmul(z, x, y), y, reduction="none") + F.l1_loss(z, y, reduction="none")

    found = {operator_of(node)[1] for node in lowered(call, X, WEIGHT, X).graph.nodes if node.op == "call_function"}
    assert {"addmm", "addcmul", "mse_loss", "l1_loss"} <= found

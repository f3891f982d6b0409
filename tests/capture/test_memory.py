"""PyTorch's budget for the memory of activations: kernels run again in the backward pass, with the same numbers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch._functorch import config  # noqa: E402

from tests.capture.models import PostNorm, PreNorm, Residual  # noqa: E402
from tests.capture.test_backend import Make  # noqa: E402

MODELS = {
    "pre_norm": (lambda: nn.Sequential(*(PreNorm(16) for _ in range(3))), (3, 7, 16)),
    "images": (lambda: nn.Sequential(*(Residual(6) for _ in range(2))), (3, 6, 7, 5)),
    "dropouts": (lambda: nn.Sequential(*(PostNorm(16, 0.5) for _ in range(3))), (3, 7, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_budget(name: str, backend: Make) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    start, x = make(), torch.randn(shape)
    saved: list[int] = []

    def save(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    def run(budget: float) -> tuple[int, list[Any]]:
        """The elements that a step saves, and what it gives."""
        torch._dynamo.reset()
        model = copy.deepcopy(start)
        compiled = torch.compile(model, backend=backend(choose="all"))
        given = x.clone().requires_grad_()
        torch.manual_seed(1)
        with config.patch(activation_memory_budget=budget):
            compiled(given).sum().backward()  # a trace saves, too
        saved.clear()
        torch.manual_seed(2)
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            y = compiled(given)
        y.square().sum().backward()
        values = [y.detach(), given.grad, *(each.grad for each in model.parameters()), *model.buffers()]
        return sum(saved), values

    (whole, expected), (part, values) = run(1.0), run(0.3)
    assert part < whole
    for one, other in zip(expected, values, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)

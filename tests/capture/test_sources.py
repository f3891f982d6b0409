"""Inputs that stay where they are: CUDA graphs copy all others at each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, fx, nn  # noqa: E402

from fusegen.backend import Backend  # noqa: E402
from tests.capture.models import Residual  # noqa: E402
from tests.capture.test_parts import Around  # noqa: E402


class Constant(nn.Module):
    """With a tensor that belongs to the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(24)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) + torch.tensor(2.0)


@pytest.mark.parametrize(
    ("make", "shape", "constants"),
    [
        (lambda: Residual(8), (2, 8, 5, 5), []),
        (Constant, (3, 24), [()]),
        (lambda: Around(24), (3, 24), []),  # in parts
    ],
)
def test_parameters_and_buffers_are_known_to_stay(
    make: Callable[[], nn.Module],
    shape: Sequence[int],
    constants: list[tuple[int, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends import debugging
    from torch._dynamo.backends.common import aot_autograd

    static: list[tuple[int, ...]] = []

    def forward(module: fx.GraphModule, inputs: Sequence[Tensor]) -> Any:
        metadata = torch._guards.TracingContext.get().fw_metadata  # Inductor reads it there
        static.extend(tuple(inputs[i].shape) for i in metadata.static_input_indices)
        return make_boxed_func(module)

    def backward(module: fx.GraphModule, _: Sequence[Tensor]) -> Any:
        return make_boxed_func(module)

    monkeypatch.setattr(debugging, "aot_eager", aot_autograd(fw_compiler=forward, bw_compiler=backward))
    model = make()
    compiled = torch.compile(model, backend=Backend(tmp_path, build="never", rest="eager"))
    compiled(torch.randn(shape, requires_grad=True)).sum().backward()
    held = [tuple(each.shape) for each in (*model.parameters(), *model.buffers())]
    assert sorted(static) == sorted(held + constants)

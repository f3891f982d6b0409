"""PyTorch's caches of compiled graphs: graphs with calls of packages are in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

from fusegen.backend import Backend  # noqa: E402


def hits_and_misses(step: Callable[[], None]) -> tuple[int, int]:
    torch._dynamo.reset()
    counters.clear()
    step()
    found = counters["aot_autograd"]
    assert not found["autograd_cache_bypass"]
    return found["autograd_cache_hit"], found["autograd_cache_miss"]


def test_a_graph_with_calls_is_compiled_once(
    backend: Callable[..., Backend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model, x = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8)), torch.randn(4, 8)

    def step() -> None:
        made = backend(rest="inductor", choose="all")
        torch.compile(model, backend=made)(x).sum().backward()
        assert len(made.report.taken) == 1

    assert [hits_and_misses(step) for _ in range(2)] == [(0, 1), (1, 0)]
    model[1].eps = 1e-3  # an argument of the call
    assert hits_and_misses(step) == (0, 1)

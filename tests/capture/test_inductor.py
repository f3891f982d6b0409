"""The ops of packages, in Inductor's table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.backend import Backend  # noqa: E402
from fusegen.capture.inductor import announce_ops, ops  # noqa: E402


def test_inductor_knows_the_ops_before_it_comes_to_them(
    backend: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else torch 2.11 writes out what they are made of, which is twice as much for each residual block."""
    from torch._inductor.decomposition import decompositions
    from torch._inductor.lowering import lowerings

    module = nn.Sequential(nn.LayerNorm(8), nn.Dropout(0.5))
    torch.compile(module, backend=backend(choose="all"))(torch.randn(4, 8)).sum().backward()
    found = list(ops())
    seed = torch.ops.fusegen.draw_seed.default  # an op that is traced into
    assert len(found) >= 2 and seed not in found
    assert {each.name().partition("::")[0] for each in found} == {"fusegen"}
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.11.0")
        patch.setitem(decompositions, seed, seed.decompose)  # so where a package was loaded before Inductor
        announce_ops()
    assert all(each in lowerings for each in found)

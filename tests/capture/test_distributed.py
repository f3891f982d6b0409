"""Models that DistributedDataParallel or FSDP wraps have the kernels, and the same gradients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tests.capture.test_backend import Make  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]
WIDTH = 512  # a layer is as large as the least bucket of gradients, between which Dynamo divides the graph


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(F.gelu(self.norm(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def gradients(model: nn.Module, call: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    call(x).sum().backward()
    found = [each.grad for each in model.parameters()]
    return [each.full_tensor() if hasattr(each, "full_tensor") else each.clone() for each in found]


def check(mine: list[Tensor], eager: list[Tensor]) -> None:
    for found, known in zip(mine, eager, strict=True):
        assert (found - known).norm() <= 1e-5 * known.norm()


def test_data_parallel(group: None, backend: Make) -> None:
    torch.manual_seed(0)
    model, x = Model(), torch.randn(4, WIDTH)
    eager = gradients(model, model, x)
    own = backend()
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=2)
    check(gradients(model, torch.compile(wrapped, backend=own), x), eager)
    assert own.report.graphs > 1 and len(own.report.taken) == 3, str(own.report)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "blocks"])
def test_fully_sharded(group: None, backend: Make, whole: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model, x = Model(), torch.randn(4, WIDTH)
    eager = gradients(model, model, x)
    own, mesh = backend(), init_device_mesh("cpu", (1,))
    for block in model.blocks:
        if not whole:
            block.compile(backend=own)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    check(gradients(model, torch.compile(model, backend=own) if whole else model, x), eager)
    assert own.report.taken and not own.report.left, str(own.report)

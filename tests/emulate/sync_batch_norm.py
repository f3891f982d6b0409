"""One of two processes that train emulated packages over ranks, by gloo: what it was given, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from fusegen.emulate.package import emulate_package
from fusegen.verify.runs.run import run

WIDTH, CHANNELS = 24, 40

SPEC = """\
fusegen: 1
name: {name}
about: A batch norm over ranks
dims: {{{dims}}}
arguments: {{{arguments}}}
inputs: {{{inputs}}}
dtypes: [{dtypes}]
targets: [sm_90]
chain:
"""


class Linear(nn.Module):
    """Bias, a constant and a norm behind a linear layer; a parameter behind the norm."""

    text = SPEC.format(
        name="ranks_linear",
        dims="batch: 16, width: 24, hidden: 40",
        arguments="width: {type: dim}, hidden: {type: dim}",
        inputs="x: [batch, width]",
        dtypes="float32, bfloat16",
    ) + (
        "  - {op: linear, name: gemm, out_features: hidden}\n"
        "  - {op: mul, constant: 1.5}\n"
        "  - {op: batch_norm, name: bn, sync: true}\n"
        "  - {op: add, parameter: shift, shape: [hidden], init: randn}\n"
        "  - {op: relu}\n"
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.gemm, self.bn = nn.Linear(WIDTH, CHANNELS), nn.BatchNorm1d(CHANNELS)
        self.shift = nn.Parameter(torch.randn(CHANNELS))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.gemm(x) * 1.5) + self.shift)


class Convolution(nn.Module):
    """The norm behind each of two convolutions, and a further input."""

    text = SPEC.format(
        name="ranks_convolution",
        dims="batch: 4, width: 3, height: 5, breadth: 6, hidden: 40",
        arguments="width: {type: dim}, hidden: {type: dim}",
        inputs="x: [batch, width, height, breadth], rest: [batch, hidden, height, breadth]",
        dtypes="float32",
    ) + (
        "  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 3, padding: 1}\n"
        "  - {op: batch_norm, name: bn, sync: true}\n"
        "  - {op: add, input: rest}\n"
        "  - {op: relu}\n"
        "  - {op: conv2d, name: second, out_channels: hidden, kernel_size: 1, bias: false}\n"
        "  - {op: batch_norm, name: second_bn, sync: true}\n"
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS)
        self.second, self.second_bn = nn.Conv2d(CHANNELS, CHANNELS, 1, bias=False), nn.BatchNorm2d(CHANNELS)

    def forward(self, x: Tensor, rest: Tensor) -> Tensor:
        return self.second_bn(self.second(F.relu(self.bn(self.conv(x)) + rest)))


class Images(nn.Module):
    """The same without the convolution: the norm takes an input."""

    text = SPEC.format(
        name="ranks_images", dims="batch: 4, height: 5, breadth: 6, hidden: 40", arguments="hidden: {type: dim}",
        inputs="x: [batch, hidden, height, breadth], rest: [batch, hidden, height, breadth]", dtypes="float32",
    ) + (
        "  - {op: batch_norm, name: bn, sync: true}\n"
        "  - {op: add, input: rest}\n"
        "  - {op: relu}\n"
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(CHANNELS)

    def forward(self, x: Tensor, rest: Tensor) -> Tensor:
        return F.relu(self.bn(x) + rest)


class Groups(nn.Module):
    """No layer in front, no running statistics, and a group norm before, which reduces rows."""

    text = SPEC.format(
        name="ranks_groups", dims="batch: 16, hidden: 40", arguments="hidden: {type: dim}",
        inputs="x: [batch, hidden]", dtypes="float32",
    ) + (
        "  - {op: group_norm, name: before, num_groups: 4}\n"
        "  - {op: batch_norm, name: bn, affine: false, track_running_stats: false, sync: true}\n"
        "  - {op: silu}\n"
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.GroupNorm(4, CHANNELS)
        self.bn = nn.BatchNorm1d(CHANNELS, affine=False, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.bn(self.before(x)))


class Head(nn.Module):
    """Norms in two regions: each has an exchange of its own. The second weight is the module's own."""

    text = SPEC.format(
        name="ranks_head", dims="batch: 16, width: 24, hidden: 40",
        arguments="width: {type: dim}, hidden: {type: dim}", inputs="x: [batch, width]", dtypes="float32",
    ) + (
        "  - {op: linear, name: gemm, out_features: hidden}\n"
        "  - {op: batch_norm, name: bn, sync: true}\n"
        "  - {op: relu}\n"
        "  - {op: matmul, parameter: second, shape: [hidden, hidden], init: randn}\n"
        "  - {op: batch_norm, name: second_bn, sync: true}\n"
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.gemm, self.bn = nn.Linear(WIDTH, CHANNELS), nn.BatchNorm1d(CHANNELS)
        self.second, self.second_bn = nn.Parameter(torch.randn(CHANNELS, CHANNELS)), nn.BatchNorm1d(CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.second_bn(F.relu(self.bn(self.gemm(x))) @ self.second)


@dataclass(frozen=True)
class Case:
    """counts: the rows, or elements of the batch, of each rank. momentum: of the norm."""

    original: type[nn.Module]
    counts: tuple[int, int]
    momentum: float | None = 0.1
    autocast: torch.dtype | None = None
    alone: bool = False

    @property
    def name(self) -> str:
        return f"ranks_{self.original.__name__.lower()}"

    def module(self) -> nn.Module:
        torch.manual_seed(3)
        module = self.original()
        for norm in (each for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)):
            norm.momentum = self.momentum
        with torch.no_grad():
            for each in module.parameters():
                each.add_(torch.randn_like(each) * 0.3)
        return module

    def tensors(self) -> tuple[list[Tensor], Tensor]:
        """The inputs of both ranks one after the other, far from zero, and the gradient of the result."""
        torch.manual_seed(4)
        rows = sum(self.counts)
        if self.original in (Convolution, Images):
            x = torch.randn(rows, 3 if self.original is Convolution else CHANNELS, 5, 6)
            x = x.contiguous(memory_format=torch.channels_last)
            inputs, shape = [x + 3, torch.randn(rows, CHANNELS, 5, 6)], (rows, CHANNELS, 5, 6)
        else:
            width = CHANNELS if self.original is Groups else WIDTH
            inputs, shape = [torch.randn(rows, width) + 3], (rows, CHANNELS)
        dtype = self.autocast or torch.float32
        return [each.requires_grad_() for each in inputs], torch.randn(shape, dtype=dtype)

    def part(self, rank: int) -> slice:
        return slice(0, self.counts[0]) if rank == 0 else slice(self.counts[0], None)


CASES = {
    "uneven": Case(Linear, (7, 5)),
    "one row on one": Case(Linear, (1, 9)),
    "no rows on one": Case(Linear, (0, 6)),
    "autocast": Case(Linear, (11, 6), autocast=torch.bfloat16),
    "cumulative average": Case(Linear, (4, 8), momentum=None),
    "a group of its own": Case(Linear, (6, 6), alone=True),
    "convolution": Case(Convolution, (1, 2)),
    "convolution without a batch": Case(Convolution, (2, 0)),
    "images": Case(Images, (1, 2)),
    "images without a batch": Case(Images, (0, 2)),
    "behind a group norm": Case(Groups, (6, 3)),
    "regions": Case(Head, (7, 5)),
    "regions, no rows on one": Case(Head, (6, 0)),
}
MODES = {Linear: (0, 2), Convolution: (0,), Images: (0,), Groups: (0,), Head: (0,)}


def load(original: type[nn.Module], root: Path, cache: Path) -> type[nn.Module]:
    """The class of the emulated package."""
    name = f"ranks_{original.__name__.lower()}"
    package = emulate_package(root / name, cache=cache, checked=False)
    return getattr(package, package.__all__[0])


def fused(case: Case, cls: type[nn.Module], group: object = None) -> nn.Module:
    """The generated module with the state of the original, through what users convert models by."""
    sizes = {Convolution: (3, CHANNELS), Images: (CHANNELS,), Groups: (CHANNELS,)}.get(case.original, (WIDTH, CHANNELS))
    module = cls(*sizes)
    module.load_state_dict(case.module().state_dict())
    module.bn.momentum = case.momentum
    module.fusegen_strict = True
    return nn.SyncBatchNorm.convert_sync_batchnorm(module, group)


def train(case: Case, cls: type[nn.Module], rank: int, alone: object) -> dict[str, object]:
    """A forward and a backward pass of this rank's part, and whether the same again gives the same bits."""
    module = fused(case, cls, alone if case.alone else None)
    inputs, grad = case.tensors()
    own = [each.detach()[case.part(rank)].requires_grad_() for each in inputs]
    runs = [run(module, own, grad[case.part(rank)], autocast_dtype=case.autocast) for _ in range(2)]
    found = [(each.output, each.gradients, each.buffers) for each in runs]
    written = [each for each in (module.bn.running_mean, module.bn.running_var) if each is not None]
    before = [each._version for each in written]
    module.train()(*own)
    counted = [each._version for each in written] > before or not written
    return {"run": found[0], "again": found[1], "counted": counted}


def reasons(cls: type[nn.Module]) -> Sequence[str]:
    """Why PyTorch's operators run, in calls that the ops over ranks do not serve."""
    module, x = fused(CASES["uneven"], cls), torch.randn(4, WIDTH)
    module.fusegen_precision = "bf16"
    found = [module.fusegen_kernels(x).reason]
    module.fusegen_precision = "ieee"
    with mock.patch.object(torch.compiler, "is_compiling", lambda: True):
        found.append(module.fusegen_kernels(x).reason)
    return found


def asked(cls: type[nn.Module]) -> str:
    """Why the kernels of a module of regions would not run; nothing is exchanged."""
    return fused(CASES["regions"], cls).fusegen_kernels(torch.randn(4, WIDTH)).reason


def main(root: Path, cache: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=(root / "meeting").as_uri(), rank=rank, world_size=2)
    alone = [dist.new_group([each]) for each in range(2)][rank]
    classes = {original: load(original, root, cache) for original in MODES}
    found = {name: train(case, classes[case.original], rank, alone) for name, case in CASES.items()}
    told = {"cases": found, "reasons": reasons(classes[Linear]), "regions": asked(classes[Head])}
    torch.save(told, root / f"rank{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))

"""The loss of a linear layer over a vocabulary, some rows at a time, beside PyTorch and Liger.

    PYTHONPATH=. python benchmarks/linear_losses.py --csv benchmarks/results/linear_losses_h200.csv   on a CUDA device

A training step in bfloat16: the mean loss, and the gradients of x and of the weight. All take turns. peak_mib: the most
memory of a step beyond x, the weight, and the gradients of both. Errors are relative, against float64. products: the
three products of a step alone. A peer that is not installed is left out, and said so.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from chains import append, fusegen_build  # noqa: E402
from chains_subject import times  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.bench.clock import CudaClock  # noqa: E402

SPEC = """fusegen: 1
name: linear_loss{suffix}
about: The loss of a linear layer over a vocabulary
class: LinearLoss
dims: {{rows: 8192, features: 4096, classes: 128256}}
arguments: {{features: {{type: dim}}, classes: {{type: dim}}}}
inputs: {{x: [rows, features], target: [rows]}}
dtypes: [bfloat16]
chain:
  - {{op: linear, name: head, out_features: classes, bias: false}}
  - {{op: cross_entropy, target: target{chunk}}}
"""
SIZES = ((8192, 4096, 128256), (8192, 2048, 32000))  # rows, features, classes
PRODUCTS = "products"
Loss = Callable[[], Tensor]


@dataclass(frozen=True)
class Line:
    """A row of the CSV. ms: the median of device time."""

    gpu: str
    torch: str
    size: str
    subject: str
    ms: float
    peak_mib: float | None = None
    loss_error: float | None = None
    x_error: float | None = None
    weight_error: float | None = None


class Sizes:
    """x, weight and target of one size, and the losses of all subjects."""

    def __init__(self, rows: int, features: int, classes: int, work: Path) -> None:
        torch.manual_seed(0)
        with torch.device("cuda"):
            self.x = torch.randn(rows, features).bfloat16().requires_grad_()
            weight = (torch.randn(classes, features) * features**-0.5).bfloat16()
            self.target = torch.randint(0, classes, (rows,))
        self.target[::17] = -100  # as padding and prompts are
        self.weight = torch.nn.Parameter(weight)
        self.work, self.classes = work, classes

    def losses(self) -> dict[str, Loss]:
        x, weight, target = self.x, self.weight, self.target

        def eager() -> Tensor:
            return F.cross_entropy(F.linear(x, weight), target)

        found: dict[str, Loss] = {"fused, chunk: auto": self._fused("_chunks"), "fused, whole": self._fused("")}
        for chunk in (512, 2048):
            found[f"fused, chunk: {chunk}"] = self._fused("_chunks", chunk)
        found |= {"eager": eager, "torch.compile": torch.compile(eager)}
        if hasattr(F, "linear_cross_entropy"):
            found["F.linear_cross_entropy"] = lambda: F.linear_cross_entropy(x, weight, target)
        try:
            liger: Any = importlib.import_module("liger_kernel.ops.fused_linear_cross_entropy")
            function = liger.LigerFusedLinearCrossEntropyFunction
            found["Liger"] = lambda: function.apply(x, weight, target)[0]
        except ImportError as why:
            print(f"without Liger: {why}", flush=True)
        return found

    def _fused(self, suffix: str, chunk: int | None = None) -> Loss:
        module = importlib.import_module(f"linear_loss{suffix}").LinearLoss(
            self.x.shape[1], self.classes, device="meta", dtype=torch.bfloat16
        )
        module.head.weight, module.fusegen_strict, module.fusegen_chunk = self.weight, True, chunk
        return lambda: module(self.x, self.target)

    def step(self, loss: Loss) -> Callable[[], None]:
        def call() -> None:
            self.x.grad = self.weight.grad = None
            loss().backward()

        return call

    def products(self) -> Callable[[], None]:
        with torch.no_grad():
            dz = torch.empty(len(self.x), self.classes, dtype=torch.bfloat16, device="cuda")
            dx, dw = torch.empty_like(self.x), torch.empty_like(self.weight)

        @torch.no_grad()
        def call() -> None:
            torch.mm(self.x, self.weight.t(), out=dz)
            torch.mm(dz, self.weight, out=dx)
            torch.mm(dz.t(), self.x, out=dw)

        return call

    def exact(self) -> list[Tensor]:
        """Loss and gradients in float64, some rows at a time."""
        x, weight = self.x.detach().double(), self.weight.detach().double()
        count = int((self.target != -100).sum())
        total, dx, dw = torch.zeros((), device="cuda").double(), torch.empty_like(x), torch.zeros_like(weight)
        for rows in torch.arange(len(x), device="cuda").split(1024):
            logits = (x[rows] @ weight.t()).requires_grad_()
            loss = F.cross_entropy(logits, self.target[rows], reduction="sum") / count
            (dz,) = torch.autograd.grad(loss, logits)
            total += loss.detach()
            dx[rows] = dz @ weight
            dw += dz.t() @ x[rows]
        return [total, dx, dw]

    def errors(self, loss: Loss, exact: list[Tensor]) -> list[float]:
        found = loss()
        gradients = torch.autograd.grad(found, [self.x, self.weight])
        return [float((a.detach() - b).norm() / b.norm()) for a, b in zip([found, *gradients], exact, strict=True)]


def measure(size: tuple[int, int, int], work: Path) -> Iterator[Line]:
    clock = CudaClock()
    sizes = Sizes(*size, work)
    gradients = sizes.x.nbytes + sizes.weight.nbytes
    losses, shown = sizes.losses(), "x".join(map(str, size))
    place = (torch.cuda.get_device_name(), torch.__version__, shown)
    exact = sizes.exact()
    errors = {name: sizes.errors(loss, exact) for name, loss in losses.items()}
    del exact
    gc.collect()
    torch.cuda.empty_cache()
    peaks = {}
    for name, loss in losses.items():
        sizes.x.grad = sizes.weight.grad = None
        sizes.step(loss)()
        sizes.x.grad = sizes.weight.grad = None
        peaks[name] = (clock.peak_bytes(sizes.step(loss)) - gradients) / 2**20
    calls = {PRODUCTS: sizes.products(), **{name: sizes.step(loss) for name, loss in losses.items()}}
    for name, spread in times(clock, calls).items():
        yield Line(*place, name, spread.median, peaks.get(name), *errors.get(name, []))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp())
    files = []
    for suffix, chunk in (("", ""), ("_chunks", ", chunk: auto")):
        files.append(work / "specs" / f"linear_loss{suffix}.yaml")
        files[-1].parent.mkdir(exist_ok=True)
        files[-1].write_text(SPEC.format(suffix=suffix, chunk=chunk), encoding="utf-8")
    if not fusegen_build(work, files):
        sys.exit(1)
    sys.path.insert(0, str(work / "generated"))
    for size in SIZES:
        for line in measure(size, work):
            append(options.csv, [line])
            print(line.size, line.subject, f"{line.ms:.2f} ms", f"{line.peak_mib or 0:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()

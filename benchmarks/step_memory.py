"""Peak memory of a training step of chains behind a linear layer, beside torch.compile and eager PyTorch.

    PYTHONPATH=. python benchmarks/step_memory.py --csv benchmarks/results/step_memory_h200.csv   on a CUDA device

The most memory of a step beyond the input, the parameters and the gradients of all of these, in MiB. retained: with
retain_graph=True, where the backward pass may not write over what the forward pass has saved. It ends with an error
where gradients of the two differ in a bit. A size is rows x input features x features.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from chains import append, fusegen_build  # noqa: E402
from row_calls import Place, place_of  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from fusegen.bench.clock import CudaClock  # noqa: E402

SPEC = """fusegen: 1
name: {name}
about: A chain behind a linear layer
class: Chain
dims: {{rows: 16384, width: 1024, features: 4096}}
arguments: {{width: {{type: dim}}, features: {{type: dim}}}}
inputs: {inputs}
dtypes: [float32, bfloat16]
chain:
  - {{op: linear, name: fc, out_features: features{precision}}}
{chain}
"""
CHAINS = {
    "gelu": "  - {op: gelu}",
    "layer_norm_gelu": "  - {op: layer_norm, name: norm}\n  - {op: gelu}",
    "batch_norm_gelu": "  - {op: batch_norm, name: norm}\n  - {op: gelu}",
    "cross_entropy": "  - {op: cross_entropy, target: target}",
}
SIZES = {"cross_entropy": ((16384, 1024, 32768),)}
USUAL = ((16384, 1024, 4096), (16384, 8192, 2048))
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp32_split": torch.float32}


@dataclass(frozen=True)
class Line(Place):
    """A row of the CSV."""

    fused_mib: float
    retained_mib: float
    compiled_mib: float
    eager_mib: float


class Eager(nn.Module):
    """The chain in PyTorch's operators, with the parameters of a fused module."""

    def __init__(self, fused: nn.Module) -> None:
        super().__init__()
        self.of = copy.deepcopy(fused)

    def forward(self, *inputs: Tensor) -> Tensor:
        of: Any = self.of
        return of.fusegen_reference(*inputs)  # type: ignore[no-any-return]


def package(chain: str, precision: str) -> str:
    return f"{chain}_{'split' if precision == 'fp32_split' else 'plain'}"


def spec(chain: str, precision: str) -> str:
    inputs = "{x: [rows, width], target: [rows]}" if "target" in CHAINS[chain] else "{x: [rows, width]}"
    split = ", precision: fp32_split" if precision == "fp32_split" else ""
    return SPEC.format(name=package(chain, precision), inputs=inputs, precision=split, chain=CHAINS[chain])


def step(module: nn.Module, inputs: Sequence[Tensor], retain: bool = False) -> Sequence[Tensor]:
    """The gradients of a step. The result is multiplied by an op of PyTorch's, so that autograd alone holds its
    gradient."""
    y = module(*inputs)
    loss = (y * 2).float().sum()
    del y
    return torch.autograd.grad(loss, [inputs[0], *module.parameters()], retain_graph=retain)


def peak_mib(clock: CudaClock, call: Callable[[], Sequence[Tensor]]) -> float:
    for _ in range(2):
        made = sum(each.nbytes for each in call())
    return (clock.peak_bytes(lambda: call() and None) - made) / 2**20


def measure(chain: str, precision: str, size: tuple[int, int, int]) -> Iterator[Line]:
    clock, (rows, width, features), dtype = CudaClock(), size, DTYPES[precision]
    torch.manual_seed(0)
    made: Any = importlib.import_module(package(chain, precision)).Chain
    fused = made(width, features).to("cuda", dtype)
    fused.fusegen_strict = True
    inputs = [torch.randn(rows, width, device="cuda").to(dtype).requires_grad_()]
    if "target" in CHAINS[chain]:
        inputs.append(torch.randint(0, features, (rows,), device="cuda"))
    pairs = zip(step(fused, inputs), step(fused, inputs, retain=True), strict=True)
    if not all(torch.equal(freed, retained) for freed, retained in pairs):
        raise AssertionError(f"{chain} {precision} {size}: other bits where the graph is retained")
    eager = Eager(fused)
    compiled = torch.compile(eager)
    found = [
        peak_mib(clock, lambda: step(fused, inputs)),
        peak_mib(clock, lambda: step(fused, inputs, retain=True)),
        peak_mib(clock, lambda: step(compiled, inputs)),
        peak_mib(clock, lambda: step(eager, inputs)),
    ]
    yield Line(*place_of(chain, precision, size), *found)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True)
    options = parser.parse_args()
    work, files = Path(tempfile.mkdtemp()), []
    for chain in CHAINS:
        for precision in ("fp32", "fp32_split"):
            files.append(work / f"{package(chain, precision)}.yaml")
            files[-1].write_text(spec(chain, precision), encoding="utf-8")
    if not fusegen_build(work, files):
        sys.exit(1)
    sys.path.insert(0, str(work / "generated"))
    for chain in CHAINS:
        for precision in DTYPES:
            for size in SIZES.get(chain, USUAL):
                for line in measure(chain, precision, size):
                    append(options.csv, [line])
                    print(line, flush=True)
                torch.compiler.reset()
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

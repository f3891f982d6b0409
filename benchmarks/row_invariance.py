"""What `invariant: rows` promises and costs: the same chains with it and without.

    PYTHONPATH=. python benchmarks/row_invariance.py --csv benchmarks/results/row_invariance_h200.csv   on a CUDA device

Both take turns. A size is rows x features, or rows x input features x features of a linear layer. ms: device time of a
forward pass, and of a step: that and the gradients of the input and of all parameters. varies: the selections of rows,
of five, whose results or gradients have other bits than in the whole batch: fusegen/verify/checks/invariance.py. fp32
is IEEE's float32.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from chains import append, fusegen_build  # noqa: E402
from chains_subject import times  # noqa: E402
from row_calls import Place, calls_of, place_of  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from fusegen.bench.clock import CudaClock  # noqa: E402
from fusegen.verify.checks.invariance import rows_alone  # noqa: E402

SPEC = """fusegen: 1
name: {name}
about: A chain with and without the promise
class: Chain
{invariant}
dims: {{rows: 8192, {dims}}}
arguments: {arguments}
inputs: {inputs}
dtypes: [float32, bfloat16]
chain:
{chain}
"""
LINEAR = "  - {op: linear, name: fc, out_features: features}\n"
LOSS = "{op: cross_entropy, target: target}"
CHAINS = {
    "linear, layer norm, silu": LINEAR + "  - {op: layer_norm, name: norm}\n  - {op: silu}",
    "linear, cross entropy": f"{LINEAR}  - {LOSS}",
    "gated": "  - {op: linear, name: gate, out_features: features}\n  - {op: silu, save: g}\n"
    "  - {op: linear, name: up, from: x, out_features: features}\n  - {op: mul, value: g}\n"
    "  - {op: linear, name: down, out_features: width}\n  - {op: rms_norm, name: norm}",
    "cross entropy": f"  - {LOSS}",
    "softmax": "  - {op: softmax}",
    "layer norm": "  - {op: layer_norm, name: norm}",
    "rms norm": "  - {op: rms_norm, name: norm}",
    "group norm, silu": "  - {op: group_norm, name: norm, num_groups: 8}\n  - {op: silu}",
}
WITH_LAYER = ((8192, 4096, 4096), (8192, 1024, 4096), (2048, 4096, 1024), (64, 4096, 4096), (1, 4096, 4096))
ALONE = ((8192, 1024), (8192, 4096), (4096, 16384), (1024, 65536), (1024, 50257), (64, 4096), (1, 4096))
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "tf32": torch.float32}


@dataclass(frozen=True)
class Line(Place):
    """A row of the CSV. plain, invariant: without and with the promise."""

    run: str
    plain_ms: float
    invariant_ms: float
    plain_varies: int
    invariant_varies: int


class Targeted(nn.Module):
    """A chain that takes targets, with some that follow from its input: a row's go where the row goes."""

    def __init__(self, chain: nn.Module, classes: int) -> None:
        super().__init__()
        self.chain, self.classes = chain, classes

    def forward(self, x: Tensor) -> Tensor:
        digits = (x.detach()[:, :16] > 0).long() * 2 ** torch.arange(16, device=x.device)
        return self.chain(x, digits.sum(1) % self.classes)


def package(chain: str, invariant: bool) -> str:
    return f"{'_'.join(chain.replace(',', '').split())}_{'rows' if invariant else 'any'}"


def spec(chain: str, invariant: bool) -> str:
    steps = CHAINS[chain]
    sizes = {"width": 1024, "features": 4096} if "linear" in steps else {"features": 4096}
    arguments = ", ".join(f"{name}: {{type: dim}}" for name in sizes if "name:" in steps)
    inputs = {"x": f"[rows, {next(iter(sizes))}]", **({"target": "[rows]"} if LOSS in steps else {})}
    return SPEC.format(
        name=package(chain, invariant),
        invariant="invariant: rows" if invariant else "# nothing is promised",
        dims=", ".join(f"{name}: {size}" for name, size in sizes.items()),
        arguments=f"{{{arguments}}}",
        inputs=", ".join(f"{name}: {shape}" for name, shape in inputs.items()).join("{}"),
        chain=steps,
    )


def module(chain: str, invariant: bool, size: tuple[int, ...], dtype: torch.dtype) -> nn.Module:
    made: Any = importlib.import_module(package(chain, invariant)).Chain
    arguments = dict(zip(("features", "width"), reversed(size[1:]), strict=False)) if "name:" in CHAINS[chain] else {}
    torch.manual_seed(0)
    found: nn.Module = made(**arguments).to("cuda", dtype)
    found.fusegen_strict = True  # type: ignore[assignment]
    return Targeted(found, size[-1]) if LOSS in CHAINS[chain] else found


def measure(chain: str, precision: str, size: tuple[int, ...]) -> Iterator[Line]:
    clock = CudaClock()
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    modules = [module(chain, invariant, size, DTYPES[precision]) for invariant in (False, True)]
    x = torch.randn(size[:2], device="cuda").to(DTYPES[precision]).requires_grad_()
    counted = len if LOSS in CHAINS[chain] else None
    varies = [sum(not each.ok for each in rows_alone(one, [x], counted)) if len(x) > 1 else 0 for one in modules]
    with torch.no_grad():
        grad = torch.randn_like(modules[0](x))

    place, plain, invariant = place_of(chain, precision, size), *(calls_of(each, x, grad) for each in modules)
    for run in plain:
        taken = times(clock, {"plain": plain[run], "invariant": invariant[run]})
        yield Line(*place, run, taken["plain"].median, taken["invariant"].median, *varies)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True)
    options = parser.parse_args()
    work, files = Path(tempfile.mkdtemp()), []
    for chain in CHAINS:
        for invariant in (False, True):
            files.append(work / f"{package(chain, invariant)}.yaml")
            files[-1].write_text(spec(chain, invariant), encoding="utf-8")
    if not fusegen_build(work, files):
        sys.exit(1)
    sys.path.insert(0, str(work / "generated"))
    for chain, steps in CHAINS.items():
        for precision in DTYPES if "linear" in steps else ("bf16", "fp32"):
            sizes = WITH_LAYER if "linear" in steps else ALONE
            for size in (each for each in sizes if "group" not in chain or each[-1] % 8 == 0):
                for line in measure(chain, precision, size):
                    append(options.csv, [line])
                    ratio = line.invariant_ms / line.plain_ms
                    print(f"{line.chain} {line.precision} {line.size} {line.run}: {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()

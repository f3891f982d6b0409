"""Softmax and norms of rows, alone, beside eager PyTorch, torch.compile and Liger.

    PYTHONPATH=. python benchmarks/row_peers.py --csv benchmarks/results/row_peers_h200.csv   on a CUDA device

All take turns. A size is rows x features. ms: device time of a forward pass without gradients, and of a step: a forward
pass and the gradients of the input and of all parameters. A peer that is not installed, or fails, has no figure.
"""

from __future__ import annotations

import argparse
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
from row_calls import Place, calls_of, place_of  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from fusegen.bench.clock import CudaClock  # noqa: E402

SPEC = """fusegen: 1
name: {name}
about: Rows alone
class: Chain
dims: {{rows: 8192, features: 4096}}
{arguments}inputs: {{x: [rows, features]}}
dtypes: [float32, bfloat16]
chain:
  - {{op: {name}{options}}}
"""
CHAINS = ("softmax", "layer_norm", "rms_norm")
SIZES = ((8192, 4096), (32768, 1024), (4096, 16384), (8192, 8192), (4096, 32768))
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Line(Place):
    """A row of the CSV; None: the peer does not run."""

    run: str
    fusegen_ms: float
    eager_ms: float
    compile_ms: float | None
    liger_ms: float | None


class Peer(nn.Module):
    """A chain that computes with the weight and the bias of another module, if there are any."""

    def __init__(self, of: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function
        for name, weight in of.named_parameters():
            self.register_parameter(name.rpartition(".")[2], weight)
        self.names = [name for name, _ in self.named_parameters()]

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *(getattr(self, name) for name in self.names))


def liger(chain: str) -> Callable[..., Tensor]:
    """Liger's function of x and the weights; it may write into the gradient that it is given."""
    function: Any = {
        "softmax": lambda: importlib.import_module("liger_kernel.ops.softmax").LigerSoftmaxFunction,
        "layer_norm": lambda: importlib.import_module("liger_kernel.ops.layer_norm").LigerLayerNormFunction,
        "rms_norm": lambda: importlib.import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction,
    }[chain]()
    options = {"softmax": (), "layer_norm": (1e-5,), "rms_norm": (1e-5,)}[chain]
    return lambda x, *weights: function.apply(x, *weights, *options)


def modules(chain: str, features: int, dtype: torch.dtype) -> dict[str, nn.Module]:
    made: Any = importlib.import_module(chain).Chain
    fused: nn.Module = (made() if chain == "softmax" else made(features)).to("cuda", dtype)
    fused.fusegen_strict = True  # type: ignore[assignment]
    functions: dict[str, Callable[..., Tensor]] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x, weight, bias: nn.functional.layer_norm(x, (features,), weight, bias),
        "rms_norm": lambda x, weight: nn.functional.rms_norm(x, (features,), weight, 1e-5),
    }
    found = {"fusegen": fused, "eager": Peer(fused, functions[chain])}
    found["compile"] = torch.compile(Peer(fused, functions[chain]), dynamic=False)
    try:
        found["liger"] = Peer(fused, liger(chain))
    except ImportError:
        pass
    return found


def measure(chain: str, precision: str, size: tuple[int, int]) -> Iterator[Line]:
    torch._dynamo.reset()
    x = torch.randn(size, device="cuda").to(DTYPES[precision]).requires_grad_()
    grad = torch.randn_like(x)
    subjects = modules(chain, size[1], DTYPES[precision])

    place, every = place_of(chain, precision, size), {name: calls_of(each, x, grad) for name, each in subjects.items()}
    for run in every["fusegen"]:
        calls = {}
        for name, of_subject in every.items():
            call = of_subject[run]
            try:
                call()
            except Exception as problem:
                print(f"{name} {place} {run}: {problem!r:.200}", flush=True)
                continue
            calls[name] = call
        taken = {name: spread.median for name, spread in times(CudaClock(), calls).items()}
        peers = (taken["fusegen"], taken["eager"], taken.get("compile"), taken.get("liger"))
        yield Line(*place, run, *peers)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--chains", nargs="*", default=CHAINS)
    options = parser.parse_args()
    work, files = Path(tempfile.mkdtemp()), []
    for chain in options.chains:
        has_weights = chain != "softmax"
        text = SPEC.format(
            name=chain,
            arguments="arguments: {features: {type: dim}}\n" if has_weights else "",
            options=", name: norm, eps: 1.0e-5" if has_weights else "",
        )
        files.append(work / f"{chain}.yaml")
        files[-1].write_text(text, encoding="utf-8")
    if not fusegen_build(work, files):
        sys.exit(1)
    sys.path.insert(0, str(work / "generated"))
    for chain in options.chains:
        for precision in DTYPES:
            for size in SIZES:
                for line in measure(chain, precision, size):
                    append(options.csv, [line])
                    peers = [each for each in (line.eager_ms, line.compile_ms, line.liger_ms) if each]
                    gain = min(peers) / line.fusegen_ms
                    print(f"{chain} {precision} {line.size} {line.run}: {gain:.3f} of the fastest peer", flush=True)


if __name__ == "__main__":
    main()

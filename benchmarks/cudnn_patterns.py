"""cuDNN's fused patterns beside fused modules on one GPU: convolution, frozen batch norm, residual, relu in evaluation.

    PYTHONPATH=. python benchmarks/cudnn_patterns.py --csv benchmarks/results/cudnn_patterns_h100.csv

cuDNN multiplies, adds a bias and a residual, and clamps in one kernel. A batch norm is folded into weight and bias
before the call, which the time leaves out. An operand or a result that is not in channels_last is copied, as in every
module here. cuDNN's patterns have no backward pass. float32 is in TF32, as PyTorch has convolutions.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from chains import fusegen_build
from chains_subject import FORWARD, FUSED, modes_of, opened, pair, subjects_of, times
from torch import Tensor, nn

from fusegen.bench.clock import CudaClock

ROOT = Path(__file__).resolve().parents[1]

CUDNN = "cudnn"
COLUMNS = ("gpu", "torch", "chain", "size", "dtype", "memory", "fused_us", "eager_us", "compile_us", "cudnn_us", "far")
SIZES = ((128, 64, 56, 56), (128, 256, 28, 28), (128, 512, 14, 14))
CHAINS = {
    "conv_relu": "",
    "conv_bn_relu": "  - {op: batch_norm, name: bn}\n",
    "conv_bn_add_relu": "  - {op: batch_norm, name: bn}\n  - {op: add, input: residual}\n",
}
_SPEC = """fusegen: 1
name: cudnn_{name}
dims: {{batch: {batch}, channels: {channels}, height: {height}, width: {width}}}
arguments: {{channels: {{type: dim}}}}
inputs: {{x: [batch, channels, height, width]{residual}}}
dtypes: [float32, bfloat16]
chain:
  - {{op: conv2d, name: conv, out_channels: channels, kernel_size: 3, padding: 1, bias: {bias}}}
{rest}  - {{op: relu}}
"""


def spec(chain: str, size: Sequence[int], name: str) -> str:
    """The text of a chain's spec."""
    rest = CHAINS[chain]
    given = dict(zip(("batch", "channels", "height", "width"), size, strict=True))
    residual = ", residual: [batch, channels, height, width]" if "residual" in rest else ""
    return _SPEC.format(name=name, **given, residual=residual, bias="false" if rest else "true", rest=rest)


class Pattern(nn.Module):
    """cuDNN's pattern in the place of a module in evaluation."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        conv, bn = original.conv, getattr(original, "bn", None)
        weight, bias = conv.weight.detach(), None if conv.bias is None else conv.bias.detach()
        if bn is not None:
            factor = bn.weight.double() * torch.rsqrt(bn.running_var.double() + bn.eps)
            bias = (bn.bias.double() - bn.running_mean.double() * factor).to(weight.dtype).detach()
            weight = (weight.double() * factor[:, None, None, None]).to(weight.dtype).detach()
        self.weight, self.bias = weight.contiguous(memory_format=torch.channels_last), bias

    def forward(self, x: Tensor, *residual: Tensor) -> Tensor:
        """As the original, in the memory format of x."""
        last = [each.contiguous(memory_format=torch.channels_last) for each in (x, *residual)]
        place = [1, 1], [1, 1], [1, 1], 1
        if residual:
            found = torch.cudnn_convolution_add_relu(last[0], self.weight, last[1], 1.0, self.bias, *place)
        else:
            found = torch.cudnn_convolution_relu(last[0], self.weight, self.bias, *place)
        return found if x.is_contiguous(memory_format=torch.channels_last) else found.contiguous()


def measured(chain: str, size: Sequence[int], name: str, work: Path) -> list[list[Any]]:
    """Rows of the CSV: of each dtype, with contiguous operands and with ones in channels_last."""
    subject, clock, rows = opened(f"cudnn_{name}", work), CudaClock(), []
    for mode in modes_of(subject.plan):
        both = pair(subject, mode)
        for memory in (torch.contiguous_format, torch.channels_last):
            both.inputs[:] = [x.detach().contiguous(memory_format=memory).requires_grad_() for x in both.inputs]
            modules = subjects_of(both, [], ("eager", "compile")) | {CUDNN: Pattern(both.eager)}
            calls = {each: both.call(module, FORWARD) for each, module in modules.items()}
            exact, found = (calls[each]().float() for each in ("eager", CUDNN))
            taken = {each: spread.median * 1e3 for each, spread in times(clock, calls).items()}
            place = (torch.cuda.get_device_name(), torch.__version__, chain, "x".join(map(str, size)), mode.name)
            far = float((exact - found).norm() / exact.norm())
            figures = [f"{taken[each]:.1f}" for each in (FUSED, "eager", "compile", CUDNN)]
            rows.append([*place, str(memory).removeprefix("torch."), *figures, f"{far:.1e}"])
            print(*rows[-1][2:], flush=True)
            torch.compiler.reset()
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=ROOT / "benchmarks/results/cudnn_patterns.csv")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp())
    (work / "specs").mkdir()
    cases = {f"{chain}_{size[1]}": (chain, size) for chain in CHAINS for size in SIZES}
    for name, (chain, size) in cases.items():
        (work / "specs" / f"cudnn_{name}.yaml").write_text(spec(chain, size, name), encoding="utf-8")
    if not fusegen_build(work, sorted((work / "specs").iterdir())):
        sys.exit("the packages were not built")
    with options.csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for name, (chain, size) in cases.items():
            writer.writerows(measured(chain, size, name, work))
            file.flush()


if __name__ == "__main__":
    main()

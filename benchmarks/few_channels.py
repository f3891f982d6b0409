"""cuDNN's forward convolutions in channels_last with zeros as further channels, beside the same ones without.

    PYTHONPATH=. python benchmarks/few_channels.py --csv benchmarks/results/few_channels_h100.csv

templates/support/few_channels.py has a rule that is from these figures: microseconds, medians of single calls. The
copies of x are not among them. A kernel has as many dimensions as the positions, with a stride of one.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("gpu", "torch", "dtype", "channels", "out", "kernel", "batch", "positions", "conv_us", "zeros_us")
MULTIPLE = 32
_WARM_UP, _SAMPLES, _SPIN = 3, 15, 60000
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}

Case = tuple[torch.dtype, int, int, tuple[int, ...], int, tuple[int, ...]]


def cases() -> Iterator[Case]:
    """dtype, channels, those of the result, the kernel, the batch, positions."""
    bf16, fp16, square = torch.bfloat16, torch.float16, (3, 3)
    for dtype in (bf16, fp16):
        for channels in (1, 2, 3, 4, 8, 12, 16, 20, 24, 31, 33, 40, 48, 56):
            yield dtype, channels, 64, square, 64, (128, 128)
        for channels in (3, 4, 8, 12, 16, 24):
            yield dtype, channels, 32, (3, 3, 3), 16, (16, 64, 64)
        for channels in (72, 88, 100, 136, 200, 250):
            yield dtype, channels, 256, square, 64, (64, 64)
    for channels in (3, 8, 16):
        for out in (8, 16, 32, 128, 256):
            yield bf16, channels, out, square, 64, (128, 128)
        for batch in (64, 128, 512):
            yield bf16, channels, 64, square, batch, (32, 32)
    for kernel in ((1, 3), (2, 2), (1, 5), (1, 7), (3, 2), (1, 9), (5, 5), (7, 7)):
        yield bf16, 8, 64, kernel, 64, (128, 128)
    for channels in (3, 8, 24):
        for length in (3, 5, 7, 9, 15):
            yield bf16, channels, 64, (length,), 64, (1 << 14,)


def median_us(call: Callable[[], Tensor]) -> float:
    """Microseconds of a call on the device."""
    for _ in range(_WARM_UP):
        call()
    found = []
    for _ in range(_SAMPLES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_SPIN)  # while the call is issued
        begin.record()
        call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1e3)
    return sorted(found)[len(found) // 2]


def measured(case: Case) -> list[float]:
    """Without zeros, and with them."""
    dtype, channels, out, kernel, batch, positions = case
    if len(positions) == 1:  # which PyTorch has no channels_last for
        kernel, positions = (1, *kernel), (1, *positions)
    function = F.conv3d if len(positions) == 3 else F.conv2d
    padding = [size // 2 for size in kernel]
    found = []
    for width in (channels, -(-channels // MULTIPLE) * MULTIPLE):
        x = torch.zeros(batch, width, *positions, device="cuda", dtype=dtype)
        weight = torch.zeros(out, width, *kernel, device="cuda", dtype=dtype)
        x[:, :channels].normal_(), weight[:, :channels].normal_()
        given = [each.contiguous(memory_format=_FORMATS[each.dim()]) for each in (x, weight)]
        found.append(median_us(lambda given=given: function(*given, None, 1, padding)))
    return found


def _text(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=ROOT / "benchmarks/results/few_channels.csv")
    options = parser.parse_args()
    with options.csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for dtype, channels, out, kernel, batch, positions in cases():
            taken = measured((dtype, channels, out, kernel, batch, positions))
            place = (torch.cuda.get_device_name(), torch.__version__, str(dtype).removeprefix("torch."), channels, out)
            writer.writerow([*place, _text(kernel), batch, _text(positions), *(f"{each:.1f}" for each in taken)])


if __name__ == "__main__":
    main()

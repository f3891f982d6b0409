"""The part of docs/performance.md about cuDNN's fused patterns, from the CSV of cudnn_patterns.py."""

from __future__ import annotations

from collections.abc import Sequence

from performance_sections import Line, Markdown

_HEAD = """## cuDNN's fused patterns in evaluation, {gpu}

By `benchmarks/cudnn_patterns.py` with torch {torch}, in microseconds of device time: a convolution of
3x3, a batch norm with its running statistics, a residual and relu, forward. cuDNN makes them in one
kernel when the batch norm is folded into the weight, which is not timed. It has no such kernel for
training, nor a backward pass. float32 is in TF32. Operands that are not in channels_last are copied.
"""


def patterns_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """A line for each chain, size, dtype and memory format; nothing without lines."""
    if not lines:
        return ""
    table = [
        {
            "chain": line["chain"],
            "size": line["size"],
            "dtype": line["dtype"],
            "memory": line["memory"].removesuffix("_format"),
            **{name: line[f"{name}_us"] for name in ("fused", "eager", "compile", "cudnn")},
            "cudnn / fused": f"{float(line['cudnn_us']) / float(line['fused_us']):.2f}",
        }
        for line in lines
    ]
    return _HEAD.format(gpu=lines[0]["gpu"], torch=lines[0]["torch"].partition("+")[0]) + "\n" + markdown(table)

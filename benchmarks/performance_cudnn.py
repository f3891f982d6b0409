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
    """A table for each memory format, with a line for each chain, size and dtype; nothing without lines."""
    if not lines:
        return ""
    parts = [_HEAD.format(gpu=lines[0]["gpu"], torch=lines[0]["torch"].partition("+")[0])]
    for memory in dict.fromkeys(line["memory"] for line in lines):
        table = [_row(line) for line in lines if line["memory"] == memory]
        parts += [f"Operands that are {memory.removesuffix('_format')}:\n", markdown(table)]
    return "\n".join(parts)


def _row(line: Line) -> Line:
    return {
        **{name: line[name] for name in ("chain", "size", "dtype")},
        **{name: line[f"{name}_us"] for name in ("fused", "eager", "compile", "cudnn")},
        "cudnn / fused": f"{float(line['cudnn_us']) / float(line['fused_us']):.2f}",
    }

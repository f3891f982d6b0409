"""The part of docs/performance.md about norms of images and blocks around them, from the CSV of images.py."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from performance_sections import Line, Markdown

_HEAD = """## Norms of images, and blocks around them: {gpu}

By `benchmarks/images.py` with torch {torch}, in bfloat16: device time in microseconds of a training step
(forward and backward pass) and of a forward pass in evaluation, in both memory formats. Peers are eager
PyTorch and `torch.compile`, of group norm and silu at the first size with
`mode=max-autotune-no-cudagraphs`, too. Gain: the fastest peer's time over that of the fused module. Copy: a copy
of the fewest bytes that such a pass can move.

Where a gain is below 1: the two gradients of squeeze and excite's x are added by PyTorch, in a pass of its
own, and the layer of a DenseNet has a `cat`, which copies what it joins. The geometric mean of the gains of
the blocks, without the norms alone, is {step} in a step and {forward} in a forward pass in channels_last.
"""
_MODES = {"step": "A training step:\n", "forward": "A forward pass:\n"}


def images_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """A table for each mode, with a line for each chain, size and format; nothing without lines."""
    if not lines:
        return ""

    def mean(mode: str) -> str:
        blocks = [line for line in lines if not line["copy_ms"] and line["format"] == "channels_last"]
        return f"{statistics.geometric_mean(1 / float(line['ratio']) for line in blocks if line['mode'] == mode):.2f}"

    place = {"gpu": lines[0]["gpu"], "torch": lines[0]["torch"].partition("+")[0]}
    head = _HEAD.format(**place, step=mean("step"), forward=mean("forward"))
    tables = [markdown([_row(line) for line in lines if line["mode"] == mode]) for mode in _MODES]
    return "\n".join([head, *(part for pair in zip(_MODES.values(), tables, strict=True) for part in pair)])


def _row(line: Line) -> Line:
    times = {name: line[f"{name}_ms"] for name in ("fused", "eager", "compile", "autotune", "copy")}
    return {
        **{name: line[name] for name in ("chain", "size", "format")},
        **{name: f"{float(value) * 1e3:.0f}" if value else "" for name, value in times.items()},
        "gain": f"{1 / float(line['ratio']):.2f}",
    }

"""The part of docs/performance.md about losses of a linear layer, from the CSV of linear_losses.py."""

from __future__ import annotations

from collections.abc import Sequence

from performance_sections import Line, Markdown

_HEAD = """## Losses of a linear layer

By `benchmarks/linear_losses.py` on {gpu} with torch {torch}: a training step of the mean cross entropy of a
linear layer, rows x features x classes, in bfloat16, with every 17th row ignored. Time is device time.
Memory is the most of a step beyond x, the weight and the gradients of both. Errors are relative, in the
2-norm, against float64. `products` are the three products alone. [losses.md](losses.md) says what a chunk
is.

Liger has chunks of fewer rows and the least memory. `chunk: 512` adds up the weight's gradient in float32.
"""


def losses_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """A table for each size; nothing without lines."""
    if not lines:
        return ""
    parts = [_HEAD.format(gpu=lines[0]["gpu"], torch=lines[0]["torch"].partition("+")[0])]
    for size in dict.fromkeys(line["size"] for line in lines):
        own = [line for line in lines if line["size"] == size]
        products = next(float(line["ms"]) for line in own if line["subject"] == "products")
        parts += [f"{size}:\n", markdown([_row(line, products) for line in own])]
    return "\n".join(parts)


def _row(line: Line, products: float) -> Line:
    errors = {name: line[f"{name}_error"] for name in ("x", "weight")}
    return {
        "subject": line["subject"],
        "ms": f"{float(line['ms']):.2f}",
        "of the products": f"{float(line['ms']) / products:.2f}",
        "MiB": f"{float(line['peak_mib']):.0f}" if line["peak_mib"] else "",
        **{f"error of grad {name}": f"{float(value):.1e}" if value else "" for name, value in errors.items()},
    }

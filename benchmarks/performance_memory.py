"""The part of docs/performance.md about the memory of a step, from the CSV of step_memory.py."""

from __future__ import annotations

from collections.abc import Sequence

from performance_sections import Line, Markdown

_HEAD = """## Memory of a step behind a linear layer

By `benchmarks/step_memory.py` on {gpu} with torch {torch}: the most memory of a training step beyond the
input, the parameters and the gradients of all of these, in MiB. Where autograd does not retain the graph,
the backward pass writes the gradient of the layer's result over that result. Sizes are rows x input
features x features. fp32_split has the pieces of its operands besides.
"""


def step_memory_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """A table; nothing without lines."""
    if not lines:
        return ""
    head = _HEAD.format(gpu=lines[0]["gpu"], torch=lines[0]["torch"].partition("+")[0])
    return f"{head}\n{markdown([_row(line) for line in lines])}"


def _row(line: Line) -> Line:
    mib = {name: float(line[f"{name}_mib"]) for name in ("fused", "retained", "compiled", "eager")}
    return {
        "chain": line["chain"].replace("_gelu", ", gelu").replace("_", " "),
        "precision": line["precision"],
        "size": line["size"],
        "fusegen": f"{mib['fused']:.0f}",
        "with retain_graph": f"{mib['retained']:.0f}",
        "torch.compile": f"{mib['compiled']:.0f}",
        "eager": f"{mib['eager']:.0f}",
        "of torch.compile": f"{mib['fused'] / mib['compiled']:.2f}",
    }

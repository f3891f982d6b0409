"""The part of docs/performance.md about rows alone, from the CSV of row_peers.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

from performance_sections import Line, Markdown

_PEERS = {"eager": "eager_ms", "torch.compile": "compile_ms", "Liger": "liger_ms"}
_HEAD = """## Softmax and norms of rows alone

By `benchmarks/row_peers.py` on {gpu} with torch {torch}: device time in us of a forward pass without
gradients and of a step, where nothing is around the norm or the softmax. gain: the time of the fastest peer
over fusegen's; in the geometric mean {means}. Alone, a forward pass moves its bytes once whoever
computes it: what can be gained is in the step.
"""


def rows_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """A table of each chain; nothing without lines."""
    if not lines:
        return ""
    runs = dict.fromkeys(line["run"] for line in lines)
    means = " and ".join(f"{_mean([_gain(line) for line in lines if line['run'] == run]):.2f} ({run})" for run in runs)
    head = _HEAD.format(gpu=lines[0]["gpu"], torch=lines[0]["torch"].partition("+")[0], means=means)
    chains = dict.fromkeys(line["chain"] for line in lines)
    return "\n".join([head, *(markdown([_row(line) for line in lines if line["chain"] == chain]) for chain in chains)])


def _row(line: Line) -> Line:
    return {
        "chain": line["chain"].replace("_", " "),
        **{name: line[name] for name in ("precision", "size", "run")},
        **{name: _us(line[column]) for name, column in _PEERS.items()},
        "fusegen": _us(line["fusegen_ms"]),
        "gain": f"{_gain(line):.2f}",
    }


def _us(ms: str) -> str:
    return f"{float(ms) * 1e3:.1f}" if ms else ""


def _gain(line: Line) -> float:
    return min(float(line[column]) for column in _PEERS.values() if line[column]) / float(line["fusegen_ms"])


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))

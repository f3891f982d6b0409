"""The part of docs/performance.md about rows with the same bits in any batch, from the CSV of row_invariance.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

from performance_sections import Line, Markdown

_HEAD = """## Rows with the same bits in any batch

By `benchmarks/row_invariance.py` on {gpu} with torch {torch}: the device time of chains with
`invariant: rows` over that of the same chains without it, as a geometric mean and the largest. Sizes are
rows x features, or rows x input features x features of a linear layer. `vary without` counts the chains in
which one of five selections of rows had other bits than in the whole batch; with the key {vary}.
[invariance.md](invariance.md) says why it costs what it does.
"""


def invariance_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """A table by precision and size; nothing without lines."""
    if not lines:
        return ""
    varying = len({(line["chain"], line["size"]) for line in lines if int(line["invariant_varies"])})
    head = _HEAD.format(
        gpu=lines[0]["gpu"],
        torch=lines[0]["torch"].partition("+")[0],
        vary=f"{varying} of {len(lines) // 2} did" if varying else f"none of {len(lines) // 2} measured did",
    )
    places = dict.fromkeys((line["precision"], line["size"]) for line in lines)
    rows = [_row([line for line in lines if (line["precision"], line["size"]) == place]) for place in places]
    return f"{head}\n{markdown(rows)}"


def _row(lines: Sequence[Line]) -> Line:
    chains = list(dict.fromkeys(line["chain"] for line in lines))
    varying = {line["chain"] for line in lines if int(line["plain_varies"])}
    several = int(lines[0]["size"].partition("x")[0]) > 1
    return {
        "precision": lines[0]["precision"],
        "size": lines[0]["size"],
        "chains": str(len(chains)),
        **{run: _ratios([line for line in lines if line["run"] == run]) for run in ("forward", "step")},
        "vary without": f"{len(varying)}" if several else "",
    }


def _ratios(lines: Sequence[Line]) -> str:
    found = [float(line["invariant_ms"]) / float(line["plain_ms"]) for line in lines]
    mean = math.exp(sum(map(math.log, found)) / len(found))
    return f"{mean:.2f} ({max(found):.2f})"

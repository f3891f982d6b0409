"""The part of docs/performance.md about the chains of tests/chains/*.yaml, from the CSV of chains.py."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from performance_sections import Line, Markdown

MODES = ("step", "forward")
# Below that a chain is named as slower.
LEAST = 0.97
LONGEST = 20  # lines of a table
_HEAD = """## The chains that people write, {gpu}

By `benchmarks/chains.py` with torch {torch}: chains of
[kernelbench.yaml](../tests/chains/kernelbench.yaml), [training.yaml](../tests/chains/training.yaml)
and [today.yaml](../tests/chains/today.yaml). {verified}
In float32 PyTorch's default counts: convolutions are in TF32, matrices are not.

The figures say how many times as fast as the fastest of its peers the fused module is, by device
time at the spec's sizes: a training step (forward and backward pass), and a forward pass in
evaluation. Medians of rounds in which all of them take turns. Peers are eager PyTorch and
`torch.compile`{autotuned}.
"""
_VERIFIED = "Of {made}\ncomparisons with double precision at small sizes {failed} failed."


def latest(lines: Sequence[Line]) -> list[Line]:
    """The last row of each chain, dtype and mode, in the order of the file."""
    found = {(line["chain"], line["dtype"], line["mode"]): line for line in lines}
    return list(found.values())


def by_gpu(lines: Sequence[Line]) -> list[list[Line]]:
    """Those of each GPU, the one that was measured last first."""
    found = [[line for line in lines if line["gpu"] == gpu] for gpu in dict.fromkeys(line["gpu"] for line in lines)]
    return found[::-1]


def gain(line: Line) -> float | None:
    """How many times as fast as the fastest peer, where both were measured."""
    return 1 / float(line["ratio"]) if line["ratio"] else None


def chains_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """A summary by what the chains begin with, then a line for each, in tables of LONGEST; nothing without lines."""
    if not lines:
        return ""
    lines = latest(lines)
    counted = {(line["chain"], line["dtype"]): line for line in lines}.values()
    made, failed = (sum(int(line[name]) for line in counted) for name in ("comparisons", "failed"))
    verified = _VERIFIED.format(made=made, failed=failed or "none")
    autotuned = dict.fromkeys(line["kind"] for line in lines if line["autotune_ms"])
    also = f", and with `mode=max-autotune-no-cudagraphs` for {', '.join(autotuned)}" if autotuned else ""
    torch, gpu = lines[0]["torch"].partition("+")[0], lines[0]["gpu"]
    head = _HEAD.format(gpu=gpu, torch=torch, verified=verified, autotuned=also)
    groups = [[line for line in lines if _group(line) == group] for group in dict.fromkeys(map(_group, lines))]
    tables = [part for rows in map(_chains, groups) for part in _parts(rows)]
    return "\n".join([head, markdown(_summary(lines)), *map(markdown, tables), _problems(lines)])


def _parts(rows: Sequence[Line]) -> list[Sequence[Line]]:
    """As few parts as have LONGEST rows at most, of about as many."""
    length = math.ceil(len(rows) / math.ceil(len(rows) / LONGEST))
    return [rows[at : at + length] for at in range(0, len(rows), length)]


def _summary(lines: Sequence[Line]) -> list[Line]:
    table = []
    for group in dict.fromkeys(map(_group, lines)):
        for dtype in dict.fromkeys(line["dtype"] for line in lines):
            for mode in MODES:
                same = [line for line in lines if (_group(line), line["dtype"], line["mode"]) == (group, dtype, mode)]
                gains = {line["chain"]: found for line in same if (found := gain(line)) is not None}
                if gains:
                    table.append(
                        {
                            "chains": group,
                            "dtype": dtype,
                            "mode": mode,
                            "number": str(len(gains)),
                            "geometric mean": f"{statistics.geometric_mean(gains.values()):.2f}",
                            "least": f"{min(gains.values()):.2f}",
                            f"below {LEAST}": ", ".join(name for name, each in gains.items() if each < LEAST),
                        }
                    )
    return table


def _group(line: Line) -> str:
    return f"KernelBench, {line['kind']}" if line["file"] == "kernelbench" else line["file"]


def _chains(lines: Sequence[Line]) -> list[Line]:
    table: dict[str, Line] = {}
    for line in lines:
        row = table.setdefault(line["chain"], {"chain": line["chain"], "kind": line["kind"], "sizes": line["size"]})
        found = gain(line)
        if found is not None:
            fused = f"{float(line['fused_ms']):.3g} ms"
            row[f"{line['mode']}, {line['dtype']}"] = f"{found:.2f} ({fused})"
    return list(table.values())


_ABOUT_FLOAT32 = """Where a line below says how far gradients are from IEEE float32, cuDNN rounds the convolution's
operands to TF32 in channels_last, and not the contiguous operands that eager PyTorch gives it: then the
largest or least of some values is another one. `torch.backends.cudnn.allow_tf32 = False` has both in float32.

"""


def _problems(lines: Sequence[Line]) -> str:
    found = {(line["chain"], line["dtype"]): line["problem"] for line in lines if line["problem"]}
    text = "".join(f"- {chain}, {dtype}: {' '.join(problem.split())}\n" for (chain, dtype), problem in found.items())
    return (_ABOUT_FLOAT32 if "IEEE float32" in text else "") + text

"""How docs/performance.md begins, and what README.md says of it: whether it is faster, by how much, and where not."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterator, Sequence

from performance_sections import Line, Markdown, is_in_front_of_convolution, is_small

from fusegen.bench.names import FUSED, MODES, PEERS, PRECISIONS, STEP
from fusegen.bench.rows import Row, by_configuration

_HEAD = """## Is it faster?

{answer}

The table says how many times as fast as the same chain in PyTorch the fused module is: the
geometric mean over the chains, and in brackets the least and the most. Large shapes are by device
time, small ones by wall time. **torch.compile** is the fastest of its modes that were measured,
**fastest peer** the fastest of these and eager.

"""
_ANSWER = "On an {gpu}, over the faster of eager PyTorch and `torch.compile`, a fused training step is {gains}."
_WHERE_NOT = """
**Where it is not.** A peer is faster in {slower} of {all} configurations{named}

**What cannot be gained.** Where the linear layer's products are library calls, they are the same for everybody. Of a
fused training step at large shapes they take {share}.
"""
_MEMORY = """The most that a training step allocates at a time, beyond its inputs and parameters.

The fused module needs more than `torch.compile` in {more} of {all} rows, by at most {most} times an activation [N, C],
and less than eager in {less}.

For the backward pass it keeps the linear layer's result and the norm's statistics, once each. The
difference is when they are freed:

- The backward pass is one op, whose arguments live until it returns. They are still there while the
  gradients of weight and input are made, though no kernel reads them any more. That is the peak.
- A compiled graph frees them before.
- Two ops, one for the kernels and one for the products, would free them too. They would take one
  more node of autograd in each step, which costs time at small shapes.
- In fp32_split the pieces of input and weight are kept besides, as many bytes as input and weight
  have, and those of the gradient are made.

"""
_README = """{models}A training step of modules from `specs/` in PyTorch {torch}, by how many times it is as fast: the
geometric mean over them, and in brackets the least and the most.

{table}
In fp32_split float32 matrices are multiplied on fp16 tensor cores, as accurately as in float32
([numerics](docs/numerics.md#precisions-of-a-float32-product)); peers are in float32, without TF32. Measured by
`{command}`
and such. [docs/performance.md](docs/performance.md) has every chain, forward passes, and where it is slower.
"""
_MODELS = """A training step of whole models behind `backend="fusegen"`, by autocast to bfloat16, {gpu}, torch {torch},
in ms of device time: {gain} times as fast as `torch.compile` in the geometric mean, {least} at least
([all of it](docs/performance.md#whole-models-nvidia-h200)).

{table}
"""
BEGIN, END = "<!-- from benchmarks/results by benchmarks/performance_page.py -->", "<!-- end -->"

Found = dict[str, Row]
Time = Callable[[Row], float | None]


def answer_section(rows: Sequence[Row], markdown: Markdown) -> str:
    """A part for all GPUs; nothing without a fused module beside a peer."""
    table = [line for mode in (STEP, *(mode for mode in MODES if mode != STEP)) for line in _lines(rows, mode)]
    if not table:
        return ""
    shares: dict[str, list[float]] = {}
    for row in rows:
        if row.subject == FUSED and row.mode == STEP and not is_small(row.shape) and row.device_ms:
            if row.contraction_ms is not None:  # the fused module takes the library's
                shares.setdefault(row.dtype, []).append(row.contraction_ms / row.device_ms)
    shown = [f"{statistics.mean(values):.0%} in {dtype}" for dtype, values in shares.items()]
    kinds = []
    last = _measured_last(rows)
    for shapes in ("large", "small"):
        steps = [line for line in _lines(last, STEP) if line["shapes"] == shapes]
        gains = [f"{line['over the fastest peer'].partition(' ')[0]} ({line['dtype']})" for line in steps]
        kinds += [f"{_and(gains)} times as fast at {shapes} shapes"] if gains else []
    answer = textwrap.fill(_ANSWER.format(gpu=last[0].gpu, gains=", ".join(kinds)), 120) if kinds else ""
    text = _WHERE_NOT.format(**_slower(rows), share=_and(shown)) if shown else ""
    return _HEAD.format(answer=answer) + markdown(table) + text


def _lines(rows: Sequence[Row], mode: str) -> Iterator[Line]:
    """A line for each GPU, kind of shape and dtype."""
    for gpu in dict.fromkeys(row.gpu for row in rows):
        for small in (False, True):
            mine = [row for row in rows if (row.gpu, row.mode, is_small(row.shape)) == (gpu, mode, small)]
            for dtype in dict.fromkeys(row.dtype for row in mine):
                same = [found for _, found in by_configuration([row for row in mine if row.dtype == dtype])]
                time: Time = (lambda row: row.wall_us) if small else (lambda row: row.device_ms)
                eager = _gains(same, PEERS[:1], time)
                compiled = _gains(same, PEERS[1:], time)
                if eager or compiled:
                    yield {
                        "GPU": gpu,
                        "what": MODES.get(mode, mode),
                        "shapes": "small" if small else "large",
                        "dtype": dtype,
                        "configurations": str(len(same)),
                        "over eager": _range(eager),
                        "over torch.compile": _range(compiled),
                        "over the fastest peer": _range(_gains(same, PEERS, time)),
                    }


def _gains(configurations: Sequence[Found], peers: Sequence[str], time: Time) -> list[float]:
    """The time of the fastest of the peers over that of the fused module, where both were measured."""
    gains = []
    for found in configurations:
        times = [taken for name in peers if name in found and (taken := time(found[name])) is not None]
        fused = time(found[FUSED]) if FUSED in found else None
        if times and fused:
            gains.append(min(times) / fused)
    return gains


def _range(gains: Sequence[float]) -> str:
    if not gains:
        return ""
    mean, ends = statistics.geometric_mean(gains), (min(gains), max(gains))
    return f"{mean:.2f}" if len(gains) == 1 else f"{mean:.2f} ({ends[0]:.2f} to {ends[1]:.2f})"


def _slower(rows: Sequence[Row]) -> dict[str, str]:
    """How many configurations a peer is faster in, by the time that counts there, of how many, and the worst ones."""
    ratios = [
        (ratio, row)
        for row in rows
        if row.subject == FUSED and (ratio := row.wall_ratio if is_small(row.shape) else row.device_ratio) is not None
    ]
    slower = sorted(((ratio, row) for ratio, row in ratios if ratio > 1), key=lambda each: -each[0])
    named = "".join(
        f"\n- {row.spec}, {row.shape}, {row.dtype}, {MODES.get(row.mode, row.mode)}: {ratio:.3f} of the peer's time"
        for ratio, row in slower[:5]
    )
    head = ":\n" if len(slower) <= 5 else ", most in:\n"
    return {"slower": str(len(slower)), "all": str(len(ratios)), "named": f"{head}{named}" if slower else "."}


def memory_section(rows: Sequence[Row], table: str) -> str:
    """Why the peak is what it is, before its table; nothing without a table."""
    over, less = [], []
    for first, found in by_configuration([row for row in rows if row.mode == STEP]):
        if is_in_front_of_convolution(first.shape):  # the shape does not tell how large an activation is
            continue
        fused, compiled, eager = (found.get(name) for name in (FUSED, "compile", "eager"))
        extents = [int(extent) for extent in first.shape.split("x")]
        activation = extents[0] * extents[-1] * (4 if PRECISIONS[first.dtype].dtype == "float32" else 2)
        if fused and compiled and fused.peak_bytes is not None and compiled.peak_bytes is not None:
            over.append((fused.peak_bytes - compiled.peak_bytes) / activation)
        if fused and eager and fused.peak_bytes is not None and eager.peak_bytes is not None:
            less.append(fused.peak_bytes < eager.peak_bytes)
    if not table or not over:
        return table
    more = sum(each > 0.01 for each in over)
    return _MEMORY.format(more=more, all=len(over), most=f"{max(over):.2f}", less=f"{sum(less)} of {len(less)}") + table


def headline(rows: Sequence[Row], models: Sequence[Line], markdown: Markdown) -> str:
    """What README.md says: a training step of whole models, and of chains on each GPU, the one that was measured last
    first, and the command. models: the lines of the CSV of models.py."""
    mine = _measured_last(rows)
    both = [*mine, *(row for row in rows if row.gpu != mine[0].gpu)]
    table = [{key: text for key, text in line.items() if key != "what"} for line in _lines(both, STEP)]
    large = [row for row in mine if row.mode == STEP and not is_small(row.shape)]
    dtype = list(dict.fromkeys(row.dtype for row in large))[-1]
    command = next(row.command for row in large if row.dtype == dtype)
    torch = mine[0].torch.partition("+")[0]
    return _README.format(models=_models(models, markdown), torch=torch, table=markdown(table), command=command)


def _models(lines: Sequence[Line], markdown: Markdown) -> str:
    """Each model that torch.compile and fusegen compiled under autocast."""
    times: dict[str, dict[str, str]] = {}
    for line in lines:
        if line["precision"] == "amp":
            times.setdefault(line["model"], {})[line["route"]] = line["device_ms"]
    both = {name: found for name, found in times.items() if {"compile", "fusegen"} <= found.keys()}
    if not both:
        return ""
    gains = {name: float(found["compile"]) / float(found["fusegen"]) for name, found in both.items()}
    table = [
        {
            "model": name,
            "eager": f"{float(found['eager']):.1f}" if "eager" in found else "",
            "torch.compile": f"{float(found['compile']):.1f}",
            "fusegen": f"{float(found['fusegen']):.1f}",
            "gain": f"{gains[name]:.2f}",
        }
        for name, found in both.items()
    ]
    mean, least = statistics.geometric_mean(gains.values()), min(gains.values())
    place = {"gpu": lines[0]["gpu"], "torch": lines[0]["torch"].partition("+")[0]}
    return _MODELS.format(**place, gain=f"{mean:.2f}", least=f"{least:.2f}", table=markdown(table))


def _measured_last(rows: Sequence[Row]) -> list[Row]:
    """Those of the GPU that was measured last."""
    last = max(rows, key=lambda row: row.run)
    return [row for row in rows if row.gpu == last.gpu]


def with_headline(readme: str, text: str) -> str:
    """A page with the text between its marks. Raises ValueError where they are not there."""
    if BEGIN not in readme or END not in readme:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return re.sub(f"(?s){re.escape(BEGIN)}.*{re.escape(END)}", lambda _: f"{BEGIN}\n\n{text}\n{END}", readme)


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"

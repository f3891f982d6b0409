"""The part of docs/performance.md that says what is wanted, what was measured, and what stands in the way."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from performance_sections import LEAST_STEP, Line, Markdown, host_times, is_small

from fusegen.bench.names import FUSED, GRAPH_PEERS, PEERS, STEP
from fusegen.bench.rows import Row, by_configuration
from fusegen.bench.scale import MOST_JUMP, MOST_OVER_BEST, Choice, ScaleRow, grouped, jumps, poor_choices
from fusegen.plan.launches.shapes import AUTOMATIC, L2, PERSISTENT, TWO_PASS

MOST_OF_FLOOR, LEAST_SHARE, LEAST_GAIN, LEAST_SMALL_GAIN = 1.3, 0.85, 1.15, 2.5
_BEYOND_L2 = 50 * 2**20  # bytes: what that of an H100 or H200 has
_MANY_ROWS, _FEWER_ROWS, _MANY_BYTES = 8192, 32768, 128 * 2**20
_WITH_BATCH_STATISTICS = "train_"  # how the names of such programs begin
_LINE, _VECTOR = 128, 16  # bytes
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_GAINED = ("matmul_bn_bias_div_swish", "gemm_scale_bn", "gemm_scale_bn_4096")
_HEAD = """## What is wanted, and what stands in the way, {device}

"""
_TAILS = """
**Tails and kernels.** In float32 most are within what is wanted. What stands in the way of the others:

- *Row kernels* have more instructions for each element, or more of the special unit's, than a copy
  leaves slots for (*What bounds the kernels*). An element of 16 bits takes half as long to move and
  as long to compute.
- *Column kernels of the backward pass* use up neither the slots nor the memory. Over 1024 rows a tile
  whose rows are 64 bytes takes 128 KB of shared memory. A multiprocessor has one tile at a time, and
  reads nothing while it sums and stores.
- *L2-resident kernels* use up neither, either. Batch norm over 16384 rows reads twice what no block
  holds, the second time from the L2. These reads are besides those from memory.
"""
_ROWS = """
**Batch norm over many rows.** A cluster of eight blocks has shared memory for some 113 bytes of each
of 16384 rows, of all tensors. From {least} rows and {bytes} MiB on, the table has the time of column
tiles in shared memory and of tiles in the L2 over that of the two-pass schedule, which reads the
memory twice at about a copy's speed; and the time of the launcher's choice over a copy of the fewest
bytes. Figures are geometric means.

**begin at** says whether rows fill lines of 128 bytes, begin at multiples of 16 bytes, or neither. With
many more than {most} rows a tile takes so much of the L2 that it has no room for the next ones.

{table}"""
_GAIN = """
**{gain} times faster in bf16.** The contraction is the same library call for everybody. The table says
how much faster than the fastest peer a training step is, and would be with a tail as fast as a copy:

{table}"""
_SMALL = """
**Small shapes.** With the autograd engine in one thread (*The host's time*):

- The two ops behind a Function in Python that does nothing else are {least} times as fast as
  eager's step.
- The fused step is {fused} times as fast, and takes {over} of their time. Its node is in
  C++ (`templates/support/autograd.cpp`).

What is left is the time of the ops (three library products, the kernels' launches and the tensors)
and of the Python of the module.
"""
_BUILD = """
**Builds.** A cold build takes the CPU time of its compilers, divided by the cores (*Builds and imports*):

| part | CPU, s |
|---|---|
| kernels of {spec}, for the dtypes of five modes, with vectors and without | {kernels} |
| a binding | {binding} |
| once for an output directory: the library that differentiates the ops | {library} |
| once for an output directory: the Python module of all packages | {module} |
| of all that, the headers of pybind11 alone | {pybind} |

The last line says how fast the machine is. Where the cores have other work, all of it takes longer.
"""
_SCALE = """
**Scale.** The jumps are beside sizes that fill vectors and warps (*What is behind the largest jumps*).
Where rows or groups begin within a vector, threads idle at their ends and smaller accesses move the
elements. An element then takes up to several times as many instructions. The largest jumps are
beside rows of 8 elements of 16 bits, one vector, and groups of 32 elements, whose lanes fill warps.
"""
_CHOICES = """
Of the {poor} choices more than {most} times as slow as the best, {persistent} are persistent
where another schedule reads twice, {l2} L2-resident.
"""


def targets_section(
    rows: Sequence[Row],
    kernels: Sequence[Line],
    scale: Sequence[ScaleRow],
    host: Sequence[Line],
    builds: Sequence[Line],
    markdown: Markdown,
) -> str:
    """A part for each GPU that `fusegen bench` measured; rows as of its last run. Nothing without them."""
    parts = []
    for device in dict.fromkeys(row.gpu for row in rows):
        mine = [row for row in rows if row.gpu == device]
        swept = [row for row in scale if row.device == device]
        poor = poor_choices(swept)
        table = [
            *_tails(mine),
            *_kernels([line for line in kernels if line["device"] == device]),
            *_whole_chains(mine),
            *_small_shapes(mine),
            *_builds(builds),
            *_scale(swept, poor),
        ]
        parts += [_HEAD.format(device=device) + markdown(table), _TAILS]
        if many := _many_rows(swept):
            parts.append(
                _ROWS.format(least=_MANY_ROWS, most=_FEWER_ROWS, bytes=_MANY_BYTES >> 20, table=markdown(many))
            )
        gains = _gains(mine)
        if gains:
            parts.append(_GAIN.format(gain=LEAST_GAIN, table=markdown(gains)))
        steps = _steps([line for line in host if line["device"] == device])
        if steps:
            least, fused, over = (f"{min(each):.2f} to {max(each):.2f}" for each in zip(*steps, strict=True))
            parts.append(_SMALL.format(least=least, fused=fused, over=over))
        seconds = _build_seconds(builds)
        if seconds:
            parts.append(_BUILD.format(**seconds))
        parts += [_SCALE] * bool(swept)
        if poor:
            persistent, l2 = (sum(each.automatic.chosen == name for each in poor) for name in (PERSISTENT, L2))
            parts.append(_CHOICES.format(poor=len(poor), most=MOST_OVER_BEST, persistent=persistent, l2=l2))
    return "".join(parts)


def _line(wanted: str, measured: str, met: bool) -> Line:
    return {"wanted": wanted, "measured": measured, "met": "yes" if met else "no"}


def _share(met: Sequence[bool]) -> str:
    return f"{sum(met)} of {len(met)}"


def _fused(rows: Sequence[Row], *, small: bool) -> list[Row]:
    return [row for row in rows if row.subject == FUSED and is_small(row.shape) == small]


def _tails(rows: Sequence[Row]) -> list[Line]:
    found = []
    for dtype in ("fp32", "bf16"):
        tails = [row.tail_over_floor for row in _fused(rows, small=False) if row.dtype == dtype and row.tail_over_floor]
        if tails:
            met = [tail <= MOST_OF_FLOOR for tail in tails]
            wanted = f"tails in {dtype} at most {MOST_OF_FLOOR:g} of the floor"
            found.append(_line(wanted, f"{_share(met)}, worst {max(tails):.2f}", all(met)))
    return found


def _kernels(lines: Sequence[Line]) -> list[Line]:
    ratios = [float(line["ratio"]) for line in lines if line["ratio"] and int(line["bytes"]) > _BEYOND_L2]
    if not ratios:
        return []
    met = [ratio <= 1 / LEAST_SHARE for ratio in ratios]
    wanted = f"kernels that move more than the L2 holds at {LEAST_SHARE:.0%} of a copy's speed"
    return [_line(wanted, f"{_share(met)}, worst {1 / max(ratios):.0%}", all(met))]


def _whole_chains(rows: Sequence[Row]) -> list[Line]:
    ratios = [row.device_ratio for row in _fused(rows, small=False) if row.device_ratio is not None]
    gains = [1 / row.device_ratio for row in _gained(rows) if row.device_ratio]
    found = []
    if ratios:
        met = [ratio <= 1 for ratio in ratios]
        wanted = "chains at least as fast as the fastest peer"
        found.append(_line(wanted, f"{_share(met)}, worst {max(ratios):.3f} of its time", all(met)))
    if gains:
        wanted = f"{LEAST_GAIN:g} times faster in bf16, forward and backward, chains with batch norm"
        found.append(_line(wanted, f"{min(gains):.2f} to {max(gains):.2f}", min(gains) >= LEAST_GAIN))
    return found


def _gained(rows: Sequence[Row]) -> list[Row]:
    large = _fused(rows, small=False)
    return [row for row in large if row.spec in _GAINED and row.dtype == "bf16" and row.mode == STEP]


def _gains(rows: Sequence[Row]) -> list[Line]:
    """Over the fastest peer: what the fused chain is, and one with a tail as fast as a copy."""
    table = []
    for row in _gained(rows):
        if row.device_ms and row.device_ratio and row.contraction_ms and row.floor_ms:
            peer, least = row.device_ms / row.device_ratio, row.contraction_ms + row.floor_ms
            table.append(
                {
                    "chain": row.spec,
                    "size": row.shape,
                    "fastest peer / fused": f"{1 / row.device_ratio:.2f}",
                    "fastest peer / (contraction + floor)": f"{peer / least:.2f}",
                }
            )
    return table


def _small_shapes(rows: Sequence[Row]) -> list[Line]:
    plain, graphs = [], []
    for _, found in by_configuration([row for row in rows if is_small(row.shape)]):
        fused = found.get(FUSED)
        if fused is None or not fused.wall_us:
            continue
        times = {name: found[name].wall_us for name in PEERS if name in found and found[name].wall_us}
        without = [time for name, time in times.items() if name not in GRAPH_PEERS]
        plain += [min(without) / fused.wall_us] if without else []
        graphs += [time / fused.wall_us for name, time in times.items() if name in GRAPH_PEERS]
    found = []
    if plain:
        wanted = f"small shapes {LEAST_SMALL_GAIN:g} times faster than peers without CUDA graphs"
        found.append(_line(wanted, f"{min(plain):.2f} to {max(plain):.2f}", min(plain) >= LEAST_SMALL_GAIN))
    if graphs:
        measured = f"{_share([ratio > 1 for ratio in graphs])}, least {min(graphs):.2f}"
        found.append(_line("and faster than with them", measured, min(graphs) > 1))
    return found


def _steps(lines: Sequence[Line]) -> list[tuple[float, float, float]]:
    """In one thread, at each size: eager's step over about the least of one, and over the fused one; the fused one
    over the least."""
    found = []
    for times in host_times(lines).values():
        eager, fused, least = (times[subject, "one thread"] for subject in ("eager", "fused", LEAST_STEP))
        found.append((eager / least, eager / fused, fused / least))
    return found


def _builds(lines: Sequence[Line]) -> list[Line]:
    found = []
    for what, targets in dict.fromkeys((line["what"], line["targets"]) for line in lines if line["limit_s"]):
        same = [line for line in lines if (line["what"], line["targets"]) == (what, targets)]
        walls, limit = [float(line["wall_s"]) for line in same], float(same[0]["limit_s"])
        specs = "of a seed spec" if len(same) > 1 else "of " + same[0]["specs"]
        several = "s" if " " in targets else ""
        wanted = f"{what} {specs} for {len(targets.split())} architecture{several} within {limit:g} s"
        least = "" if len(walls) == 1 else f"{min(walls):.3g} to "
        found.append(_line(wanted, f"{least}{max(walls):.3g} s", max(walls) <= limit))
    return found


def _build_seconds(lines: Sequence[Line]) -> dict[str, str]:
    """CPU seconds of the parts of a spec's build; empty where they were not measured."""
    starts = {
        "kernels": "kernels.cu",
        "binding": "bindings.cpp",
        "pybind": "headers of pybind11",
        "library": "autograd.cpp",
        "module": "python_module.cpp",
    }
    found = {name: [line for line in lines if line["what"].startswith(start)] for name, start in starts.items()}
    if not all(found.values()):
        return {}
    seconds = {name: f"{sum(float(line['cpu_s']) for line in each):.1f}" for name, each in found.items()}
    return {"spec": found["kernels"][0]["specs"], **seconds}


def _many_rows(rows: Sequence[ScaleRow]) -> list[Line]:
    """How long each schedule takes over many rows, over the two-pass schedule, and what is chosen over a copy."""
    found: dict[tuple[str, ...], dict[str, list[float]]] = {}
    train = [row for row in rows if row.program.startswith(_WITH_BATCH_STATISTICS)]
    large = [row for row in train if row.rows >= _MANY_ROWS and row.bytes >= _MANY_BYTES]
    for mine in grouped(large, "spec", "program", "dtype", "rows", "channels", "groups"):
        times = {row.schedule: row.microseconds for row in mine}
        if TWO_PASS not in times or AUTOMATIC not in times:
            continue
        first = mine[0]
        row_bytes = first.channels * _BYTES[first.dtype]
        fill = "lines" if row_bytes % _LINE == 0 else "vectors" if row_bytes % _VECTOR == 0 else "neither"
        rows_of = f"to {_FEWER_ROWS}" if first.rows <= _FEWER_ROWS else "more"
        ratios = found.setdefault((first.spec, first.program, first.dtype, rows_of, fill), {})
        ratios.setdefault("choice / copy", []).append(times[AUTOMATIC] / first.copy_microseconds)
        for schedule in (PERSISTENT, L2):
            if schedule in times:
                ratios.setdefault(schedule, []).append(times[schedule] / times[TWO_PASS])
    return [
        {
            **dict(zip(("chain", "program", "dtype", "rows", "begin at"), key, strict=True)),
            "sizes": str(len(ratios["choice / copy"])),
            "persistent / two-pass": _mean(ratios.get(PERSISTENT)),
            "L2 / two-pass": _mean(ratios.get(L2)),
            "choice / copy": _mean(ratios["choice / copy"]),
        }
        for key, ratios in sorted(found.items())
    ]


def _mean(ratios: Sequence[float] | None) -> str:
    return f"{statistics.geometric_mean(ratios):.2f}" if ratios else ""


def _scale(rows: Sequence[ScaleRow], choices: Sequence[Choice]) -> list[Line]:
    if not rows:
        return []
    worst = jumps(rows)
    # Where there was something to choose.
    forced = [row for row in rows if row.schedule != AUTOMATIC]
    sizes = len(grouped(forced, "spec", "program", "dtype", "rows", "channels", "groups"))
    jump = f"{len(worst)}, largest {worst[0].ratio:.2f}" if worst else "none"
    choice = f"{sizes - len(choices)} of {sizes}" + (f", worst {choices[0].ratio:.2f}" if choices else "")
    return [
        _line(f"no element more than {MOST_JUMP:g} times what it takes at a neighbouring size", jump, not worst),
        _line(f"the schedule chosen within {MOST_OVER_BEST:g} of the fastest", choice, not choices),
    ]

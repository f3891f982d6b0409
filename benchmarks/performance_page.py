"""Writes docs/performance.md, and the figures in README.md and docs/comparison.md, from the CSVs in benchmarks/results.

    PYTHONPATH=. python benchmarks/performance_page.py

bench_*.csv are those of `fusegen bench --csv`, the others those of the scripts that they are named after. Needs no
GPU.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from performance_answer import answer_section, headline, memory_section, with_headline
from performance_chains import by_gpu, chains_section
from performance_comparison import comparison
from performance_cudnn import patterns_section
from performance_images import images_section
from performance_invariance import invariance_section
from performance_losses import losses_section
from performance_memory import step_memory_section
from performance_models import models_section, starts_section
from performance_rows import rows_section
from performance_sections import (
    build_section,
    host_section,
    is_small,
    jumps_section,
    kernels_section,
    limits_section,
    read_lines,
)
from performance_targets import targets_section

from fusegen.bench.names import COPY, FUSED, GRAPH_PEERS, MODES, PEERS, STEP, SUBJECTS
from fusegen.bench.rows import Row, by_configuration, latest, read_rows
from fusegen.bench.scale import read_scale
from fusegen.bench.scale_text import scale_section
from fusegen.bench.table import number

RESULTS, PAGE, README = Path("benchmarks/results"), Path("docs/performance.md"), Path("README.md")
COMPARISON = Path("docs/comparison.md")
_TITLE = "# Performance\n"
_HEAD = """## How it was measured

Written by `benchmarks/performance_page.py` from the CSVs in [benchmarks/results](../benchmarks/results).
They have every figure with its quartiles, the versions and the command:

{files}
This page has training steps at full size and what explains them. All other modes and sizes are in
the CSVs. `fusegen bench` measures so:

- Before anything is timed, output, gradients and running statistics are checked as `fusegen verify`
  does.
- All subjects are built and warmed up first. Samples are taken in rounds, every subject once, then
  every subject again. So all of them see the same clocks and temperatures of the GPU. A figure is
  the median of its samples.
- In evaluation a module in fp32_split keeps the pieces of its weight (`fusegen_keep_pieces`).

| word | meaning |
|---|---|
| device time | between two CUDA events around one call; the L2 is full of other data, launch latency does not count |
| wall time | of a call in a loop of some 40 ms that is synchronised at its ends only: what a caller sees |
| contraction | the linear layer's library calls alone |
| tail | the time of the chain without the contraction |
| floor | a device copy of the fewest bytes that the tail moves: each input read once, each result written once |
| schedule | in the CSV: what the launchers run, forward / backward; `none` where PyTorch's operators run |
| launches | in the CSV: the kernels with their grids and blocks; a third extent of a grid is the blocks of a cluster |
| spread | the largest distance between the quartiles of a subject in that line, over its median |
| peers | eager PyTorch; `torch.compile` by default, with `reduce-overhead` and `max-autotune-no-cudagraphs` |
| fused / best peer | below 1, the fused module is faster than the fastest of the peers |
"""
_NOT_IN_ROUNDS = """That was before `fusegen bench`: one subject after another, while the clocks of the GPU moved, so
that ratios between 0.85 and 1.15 tell little; neither spread nor floors.
"""


def page(rows: Sequence[Row], kernels: Sequence[dict[str, str]], files: str = "") -> str:
    """The text of docs/performance.md. rows: of `fusegen bench`. kernels: lines of kernel_times.py, by column. files:
    the list of all CSVs."""
    rows = latest(rows)
    parts = [_TITLE, answer_section(rows, _markdown), _HEAD.format(files=files)]
    for gpu in dict.fromkeys(row.gpu for row in rows):
        mine = [row for row in rows if row.gpu == gpu]
        small = [row for row in mine if is_small(row.shape)]
        large = [row for row in mine if not is_small(row.shape)]
        parts.append(f"## {gpu}\n\n{_origin(mine)}")
        for title, table in (
            ("A training step at large shapes: device time, ms", _device(large)),
            ("Small shapes: wall time, us", _wall(small)),
            ("Tails of a training step", _tails(large)),
            ("Peak memory of a training step, MiB", memory_section(mine, _memory(mine))),
        ):
            if table:
                parts.append(f"### {title}\n\n{table}")
    if kernels:
        parts.append(kernels_section(kernels, _markdown))
    return "\n".join(parts)


def _origin(rows: Sequence[Row]) -> str:
    """Versions, commands and ceilings."""
    lines = []
    for versions in dict.fromkeys((row.torch, row.cuda, row.targets) for row in rows):
        lines.append(f"torch {versions[0]}, CUDA {versions[1]}, kernels for {versions[2]}. Measured by\n")
        mine = [row for row in rows if (row.torch, row.cuda, row.targets) == versions]
        commands = dict.fromkeys(row.command for row in mine)
        lines += [*(f"    {command}" for command in commands), ""]
        if not all(command.startswith("fusegen bench") for command in commands):
            lines.append(_NOT_IN_ROUNDS)
    copies = [row.copy_gb_s for row in rows if row.copy_gb_s is not None]
    if copies:
        products: dict[str, list[float]] = {}
        for row in rows:
            if row.contraction_tflop_s is not None:
                products.setdefault(row.dtype, []).append(row.contraction_tflop_s)
        shown = ", ".join(f"{dtype} {max(values):.0f} TFLOP/s" for dtype, values in products.items())
        product = f", a large matrix product in {shown}" if shown else ""
        lines.append(f"Ceilings: a large copy {max(copies):.0f} GB/s{product}.\n")
    return "\n".join(lines)


def _device(rows: Sequence[Row]) -> str:
    table, ratios = [], []
    for place, found in _configurations(rows):
        fused = found.get(FUSED)
        ratios += [fused.device_ratio] if fused and fused.device_ratio is not None else []
        table.append(
            {
                **place,
                **{name: number(row.device_ms) for name, row in found.items() if name != COPY},
                "fused / best peer": _digits(fused and fused.device_ratio),
                "tail / floor": _digits(fused and fused.tail_over_floor, 2),
                "spread": _spread((row.device_ms_q1, row.device_ms, row.device_ms_q3) for row in found.values()),
            }
        )
    steps = [line for line in table if line.pop("mode") == MODES[STEP]]
    return _summary(ratios, "all modes") + _markdown(steps)


def _wall(rows: Sequence[Row]) -> str:
    table, ratios = [], []
    for place, found in _configurations(rows):
        fused = found.get(FUSED)
        ratios += [fused.wall_ratio] if fused and fused.wall_ratio is not None else []
        plain = [found[name].wall_us for name in PEERS if name in found and name not in GRAPH_PEERS]
        graphs = [found[name].wall_us for name in GRAPH_PEERS if name in found]
        table.append(
            {
                **place,
                **{name: number(row.wall_us) for name, row in found.items() if name != COPY},
                "best without graphs / fused": _over(plain, fused and fused.wall_us),
                "graphs / fused": _over(graphs, fused and fused.wall_us),
                "spread": _spread((row.wall_us_q1, row.wall_us, row.wall_us_q3) for row in found.values()),
            }
        )
    return _summary(ratios, "these") + _markdown(table)


def _tails(rows: Sequence[Row]) -> str:
    table = []
    for place, found in _configurations([row for row in rows if row.mode == STEP]):
        fused = found.get(FUSED)
        if fused is None or fused.tail_ms is None or not fused.tail_bytes:
            continue
        del place["mode"]
        share = ""
        if fused.copy_gb_s and fused.tail_ms > 0:
            share = f"{fused.tail_bytes / (fused.tail_ms * 1e-3) / (fused.copy_gb_s * 1e9):.0%}"
        peers = [found[name].tail_ms for name in PEERS if name in found]
        table.append(
            {
                **place,
                "MB": number(fused.tail_bytes / 1e6),
                "floor, ms": number(fused.floor_ms),
                "tail, ms": number(fused.tail_ms),
                "best peer's": number(min((tail for tail in peers if tail is not None), default=None)),
                "tail / floor": _digits(fused.tail_over_floor, 2),
                "of the copy ceiling": share,
            }
        )
    return _markdown(table)


def _memory(rows: Sequence[Row]) -> str:
    table = []
    for place, found in _configurations([row for row in rows if row.mode == STEP]):
        peaks = {name: row.peak_bytes for name, row in found.items() if name in (FUSED, *PEERS)}
        if any(peak is not None for peak in peaks.values()):
            del place["mode"]
            table.append(place | {n: "" if peak is None else f"{peak / 2**20:.1f}" for n, peak in peaks.items()})
    return _markdown(table)


def _configurations(rows: Sequence[Row]) -> Iterable[tuple[dict[str, str], dict[str, Row]]]:
    for first, found in by_configuration(rows):
        mode = MODES.get(first.mode, first.mode)
        yield {"chain": first.spec, "size": first.shape, "dtype": first.dtype, "mode": mode}, found


def _summary(ratios: Sequence[float], what: str) -> str:
    if not ratios:
        return ""
    ahead = sum(ratio <= 1 for ratio in ratios)
    mean = statistics.geometric_mean(ratios)
    return (
        f"Fused is at least as fast as the fastest peer in {ahead} of {len(ratios)} configurations of {what}.\n"
        f"fused / best peer: {mean:.3f} in the geometric mean, {max(ratios):.3f} at most.\n\n"
    )


def _markdown(table: Sequence[dict[str, str]]) -> str:
    """Columns in the order of the subjects; those without any figure are left out."""
    names = list(dict.fromkeys(name for line in table for name in line))
    subjects = [name for name in SUBJECTS if name in names]
    if subjects:
        first = min(names.index(name) for name in subjects)
        rest = [name for name in names if name not in subjects]
        names = rest[:first] + subjects + rest[first:]
    names = [name for name in names if any(line.get(name) for line in table)]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    lines += [f"| {' | '.join(line.get(name, '') for name in names)} |" for line in table]
    return "\n".join(lines) + "\n" if table else ""


def _spread(quartiles: Iterable[tuple[float | None, float | None, float | None]]) -> str:
    found = [
        (high - low) / middle for low, middle, high in quartiles if low is not None and high is not None and middle
    ]
    return f"{max(found):.1%}" if found else ""


def _over(times: Sequence[float | None], fused: float | None) -> str:
    best = min((time for time in times if time is not None), default=None)
    return _digits(best / fused if best is not None and fused else None, 2)


def _digits(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _measured(results: Path) -> list[Row]:
    return [row for path in sorted(results.glob("bench_*.csv")) for row in read_rows(path)]


def _files(results: Path) -> str:
    """Every CSV with a link and its length."""
    table = [
        {"CSV": f"[{path.name}](../benchmarks/results/{path.name})", "rows": str(path.read_bytes().count(b"\n") - 1)}
        for path in sorted(results.glob("*.csv"))
        if not path.name.startswith("numerics_")
    ]
    return _markdown(table)


def readme_of(results: Path, readme: str) -> str:
    """README.md with the headline figures of the CSVs in `results`."""
    models = [line for path in sorted(results.glob("models_*.csv")) for line in read_lines(path)]
    return with_headline(readme, headline(latest(_measured(results)), models, _markdown))


def comparison_of(results: Path, text: str) -> str:
    """docs/comparison.md with the figures of the CSVs in `results`."""
    names = ("models", "model_starts", "chains", "images", "linear_losses", "row_peers", "cudnn_patterns")
    paths = {name: sorted(results.glob(f"{name}_*.csv")) for name in names}
    found = {name: [line for path in own for line in read_lines(path)] for name, own in paths.items()}
    return with_headline(text, comparison(found, _markdown))


def page_of(results: Path) -> str:
    """The page of all CSVs in `results`."""
    rows = _measured(results)
    scale = [row for path in sorted(results.glob("scale_*.csv")) for row in read_scale(path)]

    def lines(name: str) -> list[dict[str, str]]:
        return [line for path in sorted(results.glob(f"{name}_*.csv")) for line in read_lines(path)]

    kernels, host, builds = (lines(name) for name in ("kernel_times", "host_time", "build_times"))
    parts = [
        page(rows, kernels, _files(results)),
        models_section(lines("models"), _markdown),
        starts_section(lines("model_starts"), _markdown),
        *(chains_section(own, _markdown) for own in by_gpu(lines("chains"))),
        images_section(lines("images"), _markdown),
        losses_section(lines("linear_losses"), _markdown),
        invariance_section(lines("row_invariance"), _markdown),
        step_memory_section(lines("step_memory"), _markdown),
        rows_section(lines("row_peers"), _markdown),
        patterns_section(lines("cudnn_patterns"), _markdown),
        limits_section(lines("kernel_limits"), _markdown),
        scale_section(scale, _markdown),
        jumps_section(lines("jump_limits"), _markdown),
        host_section(host, _markdown),
        build_section(builds, _markdown),
        targets_section(latest(rows), kernels, scale, host, builds, _markdown),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts if part)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--comparison", type=Path, default=COMPARISON)
    options = parser.parse_args()
    options.page.write_text(page_of(options.results), encoding="utf-8")
    readme = options.readme.read_text(encoding="utf-8")
    options.readme.write_text(readme_of(options.results, readme), encoding="utf-8")
    compared = options.comparison.read_text(encoding="utf-8")
    options.comparison.write_text(comparison_of(options.results, compared), encoding="utf-8")


if __name__ == "__main__":
    main()

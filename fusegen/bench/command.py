"""`fusegen bench`: specs measured on the GPU at hand, or a CSV shown again, as tables and plots."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

from fusegen.bench.options import Options
from fusegen.bench.rows import Row, append_rows, latest, read_rows
from fusegen.bench.table import tables
from fusegen.errors import Diagnostic, SpecError
from fusegen.files import refuse_output

MIN_WIDTH = 150


def bench_specs(
    specs: Sequence[Path],
    output: Path,
    options: Options,
    csv: Path | None,
    plots: Path | None,
    *,
    overwrite: bool = False,
) -> bool:
    """Whether something was measured, and no fused module was wrong or raised. Tables go to stdout, progress to stderr.

    csv: rows are appended to it as they come. plots: a directory. overwrite: whether to replace plots that are there.
    Raises before anything is measured: BadParameter where no spec has any of the shapes; SpecError where there is no
    CUDA device, no matplotlib for the plots, some other file in the CSV's place, or a plot that is not to be replaced.
    """
    from fusegen.bench.shapes import sizes_of
    from fusegen.plan.load import planned_files

    plans = planned_files(specs)
    if plots is not None:
        require_matplotlib()
        # Which of them will be drawn is known in the end; measuring takes too long to find out then.
        for found in sorted(plots.glob("*_*.*")):
            if any(found.stem.startswith((f"times_{p.spec.name}_", f"bandwidth_{p.spec.name}")) for p in plans):
                refuse_output(found, overwrite=overwrite)
    if csv is not None and csv.exists() and csv.stat().st_size:
        read_rows(csv)
    work, impossible = [], []
    for plan in plans:
        for shape in options.shapes:
            try:
                work.append((plan, sizes_of(plan, shape)))
            except ValueError as problem:
                impossible.append(f"{plan.spec.name}: {problem}")
    if not work:
        raise typer.BadParameter("; ".join(impossible), param_hint="--shapes")
    require_cuda()

    from fusegen.bench.bench import Bench
    from fusegen.bench.ceilings import measure_ceilings
    from fusegen.bench.clock import CudaClock
    from fusegen.verify.subjects.packages import open_subject

    stderr = Console(stderr=True, highlight=False)

    def say(line: str) -> None:
        stderr.print(line, markup=False, soft_wrap=True)

    def write(rows: list[Row]) -> None:
        if csv is not None:
            append_rows(csv, rows)

    with tempfile.TemporaryDirectory() as cache:
        subjects = {p.spec.name: open_subject(p, output, device="cuda", cache=Path(cache)) for p in plans}
    clock = CudaClock()
    began = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    bench = Bench(
        clock,
        measure_ceilings(clock, "cuda", options.dtypes),
        options,
        options.command(specs),
        began,
        write,
        say,
        problems=impossible,
    )
    # Dtype by dtype, so that a limit of time leaves the first ones complete.
    for precision in options.dtypes:
        for plan, sizes in work:
            bench.measure(subjects[plan.spec.name], sizes, precision)
    show(bench.rows, plots, overwrite=overwrite)
    if bench.wrong or bench.problems:
        console = _console()
        console.print("Not measured:", style="bold")
        for line in (*bench.wrong, *bench.problems):
            console.print(f"  {line}", markup=False, soft_wrap=True)
    return bool(bench.rows) and not bench.wrong


def bench_csv(csv: Path, plots: Path | None, *, overwrite: bool = False) -> None:
    """Shows what an earlier run wrote; needs neither torch nor a GPU. Raises SpecError."""
    if plots is not None:
        require_matplotlib()
    show(read_rows(csv), plots, overwrite=overwrite)


def show(rows: Sequence[Row], plots: Path | None, *, overwrite: bool = False) -> None:
    """The tables on stdout, and the plots in their directory."""
    console = _console()
    for table in tables(rows):
        console.print(table)
    if plots is not None:
        from fusegen.bench.plots import write_plots

        for path in write_plots(latest(rows), plots, overwrite=overwrite):
            console.print(f"wrote {path.as_posix()}", markup=False, soft_wrap=True)


def require_cuda() -> None:
    """Raises SpecError where torch finds no CUDA device."""
    import torch

    if not torch.cuda.is_available():
        hint = "--from-csv FILE shows earlier results without one"
        raise SpecError([Diagnostic("FG503", "torch finds no CUDA device to measure on", hint=hint)])


def require_matplotlib() -> None:
    """Raises SpecError where matplotlib is not installed."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        problem = Diagnostic("FG503", "--plots needs matplotlib", hint="pip install 'fusegen[bench]'")
        raise SpecError([problem])


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = MIN_WIDTH
    return console

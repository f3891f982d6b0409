"""Commands that run built modules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fusegen.bench.names import DEFAULT_PRECISIONS, MODES, PEERS, TYPICAL
from fusegen.commands.app import Output, Specs, app
from fusegen.paths import DEFAULT_OUTPUT, DEFAULT_SPECS


@app.command()
def verify(
    specs: Annotated[
        list[Path] | None, typer.Argument(help="Spec files, or directories of them.", show_default=False)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every spec in the directory `specs`.")] = False,
    output: Output = DEFAULT_OUTPUT,
    emulate: Annotated[bool, typer.Option(help="Run the kernels on the CPU, at small sizes.")] = False,
    seed: Annotated[int, typer.Option(help="Of the random data.")] = 0,
    invariance: Annotated[
        bool, typer.Option("--invariance", help="Whether rows have the same bits in any batch, promised or not.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="As JSON, with every figure.")] = False,
) -> None:
    """Check built modules against double precision and beside eager PyTorch."""
    from fusegen.spec.find import spec_files
    from fusegen.verify.command import verify_specs

    chosen = [DEFAULT_SPECS] if all_ and DEFAULT_SPECS.is_dir() else specs or []
    if not chosen:
        raise typer.BadParameter("give spec files, or --all where there is a directory `specs`")
    files = spec_files(chosen)
    if not verify_specs(files, output, emulate=emulate, seed=seed, as_json=json_, invariance=invariance):
        raise typer.Exit(1)


@app.command()
def bench(
    specs: Annotated[
        list[Path] | None, typer.Argument(help="Spec files, or directories of them.", show_default=False)
    ] = None,
    against: Annotated[
        str, typer.Option(help="What to measure beside the fused module.", show_default=", ".join(PEERS))
    ] = ",".join(PEERS),
    dtypes: Annotated[str, typer.Option(help="Of fp32, fp32_split, tf32, bf16, fp16.")] = ",".join(DEFAULT_PRECISIONS),
    shapes: Annotated[
        str,
        typer.Option(
            help="Such as 64x256x256: rows, input features, channels; of several layers the dims of the spec."
        ),
    ] = TYPICAL,
    modes: Annotated[str, typer.Option(help="What is called.", show_default=", ".join(MODES))] = ",".join(MODES),
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Append the figures to it.")] = None,
    plots: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw plots there, as SVG and PNG.")] = None,
    limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Leave out compiled peers after that time.")
    ] = None,
    from_csv: Annotated[
        Path | None, typer.Option("--from-csv", metavar="FILE", help="Measure nothing, show this file.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace plots that are there.")] = False,
    output: Output = DEFAULT_OUTPUT,
    seed: Annotated[int, typer.Option(help="Of the random data.")] = 0,
) -> None:
    """Measure built modules beside eager PyTorch and torch.compile, after checking them. Lists are comma-separated."""
    from fusegen.bench.command import bench_csv, bench_specs
    from fusegen.bench.options import read
    from fusegen.spec.find import spec_files

    if from_csv is not None:
        if specs or csv is not None:
            raise typer.BadParameter("it measures nothing: give no specs and no --csv", param_hint="--from-csv")
        bench_csv(from_csv, plots, overwrite=overwrite)
        return
    options = read(against, dtypes, shapes, modes, seed, limit)
    if not specs:
        raise typer.BadParameter("give spec files, or --from-csv FILE")
    if not bench_specs(spec_files(specs), output, options, csv, plots, overwrite=overwrite):
        raise typer.Exit(1)


@app.command()
def tune(
    specs: Specs,
    dtypes: Annotated[
        str | None, typer.Option(help="Of fp32, bf16, fp16; without, those of the spec.", show_default=False)
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(help="Such as 64,1024; without, the typical, an eighth and 8 times it.", show_default=False),
    ] = None,
) -> None:
    """Measure launch shapes of SPECS on this GPU and write the fastest beside each spec. Lists are comma-separated."""
    from fusegen.spec.find import spec_files
    from fusegen.tune.command import tune_specs
    from fusegen.tune.options import read

    tune_specs(spec_files(specs), read(dtypes, rows))

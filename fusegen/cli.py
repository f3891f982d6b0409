"""The command line: arguments in, exit code out.

0 fine, 1 drift, a failed build, verification, benchmark or tuning, 2 bad spec or usage, 3 a bug of fusegen. As a shell
has it, 130 after an interrupt and 141 where nobody reads the output any more. FUSEGEN_DEBUG=1 shows the traceback of a
bug.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperGroup

from fusegen.bench.names import DEFAULT_PRECISIONS, MODES, PEERS, TYPICAL
from fusegen.errors import FusegenError, InternalError, SpecError
from fusegen.paths import DEFAULT_OUTPUT, DEFAULT_SPECS
from fusegen.version import __version__


class Commands(TyperGroup):
    """Ends as other programs do where it is interrupted or its output is closed, whatever typer would do."""

    def invoke(self, ctx: Any) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            # What is left in the buffer would be an error again when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(128 + 13)  # SIGPIPE, a name that Python on Windows lacks
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)


class Format(str, Enum):
    """What `fusegen check` prints."""

    text = "text"
    json = "json"
    github = "github"


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fusegen {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Generates CUDA modules for PyTorch from operator chains."""


Specs = Annotated[list[Path], typer.Argument(help="Spec files, or directories of them.", show_default=False)]
Output = Annotated[Path, typer.Option("--output", "-o", help="Directory of the generated packages.")]


@app.command()
def build(
    specs: Specs,
    output: Output = DEFAULT_OUTPUT,
    target: Annotated[
        list[str] | None, typer.Option("--target", help="Compile only for this target, such as sm_90; may be repeated.")
    ] = None,
    verification: Annotated[bool, typer.Option(help="Include float64 kernels, for tests.")] = False,
    force: Annotated[bool, typer.Option(help="Compile even if nothing changed.")] = False,
    compile_: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile, or only write the sources.")
    ] = True,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove what no spec of the given directories renders any more.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace generated files that were edited by hand.")
    ] = False,
) -> None:
    """Render SPECS into packages and compile them."""
    from fusegen.plan.devices import misfit
    from fusegen.plan.packages import plan_packages
    from fusegen.render.output import orphans, write_files
    from fusegen.render.package import render_all
    from fusegen.spec.find import spec_files

    if prune and not any(path.is_dir() for path in specs):
        raise typer.BadParameter(
            "it needs a directory of specs: a few files do not tell what is left over", param_hint="--prune"
        )
    console = Console(stderr=True, highlight=False)
    plans = plan_packages(spec_files(specs))
    for reason in (misfit(plan.device, each) for plan in plans for each in target or ()):
        if reason is not None:
            raise typer.BadParameter(reason, param_hint="--target")
    rendered = render_all(plans)
    left_over = orphans(rendered, output) if prune else []
    for path in write_files(rendered, output, remove=left_over, overwrite=overwrite):
        console.print(f"wrote {output / path}", markup=False, soft_wrap=True)
    for path in left_over:
        console.print(f"removed {output / path}", markup=False, soft_wrap=True)
    if not compile_:
        return
    from fusegen.build import Request, build_extensions

    requests = [Request(output / plan.spec.name, target or plan.spec.targets) for plan in plans]
    for result in build_extensions(requests, verification=verification, console=console, force=force):
        done = f"built in {result.seconds:.1f} s ({result.reason})" if result.built else "is up to date"
        console.print(f"{result.path} {done}", markup=False, soft_wrap=True)


@app.command()
def plan(
    specs: Specs,
    json_: Annotated[bool, typer.Option("--json", help="As JSON, the text of plan.json.")] = False,
    rows: Annotated[int | None, typer.Option(min=1, help="What runs with so many rows, and why. Needs g++.")] = None,
    channels: Annotated[int | None, typer.Option(min=1, help="The same with so many channels.")] = None,
    groups: Annotated[int | None, typer.Option(min=1, help="The same with so many groups of channels.")] = None,
    dtype: Annotated[str | None, typer.Option(help="The same in this dtype.")] = None,
) -> None:
    """Print schedules, kernels, bytes, the floor and the reason of each decision, or what runs at one size."""
    import json

    from fusegen.plan.load import plan_files
    from fusegen.plan.report import report
    from fusegen.plan.summary import summary
    from fusegen.spec.find import spec_files

    at_one_size = any(each is not None for each in (rows, channels, groups, dtype))
    for made in plan_files(spec_files(specs)):
        if at_one_size:
            from fusegen.explain.text import Question, answer

            print(answer(made, Question(rows, channels, groups, dtype)))
        else:
            print(json.dumps(summary(made), indent=2) if json_ else report(made))


@app.command()
def init(name: Annotated[str, typer.Argument(help="Of the spec, its package and its file.")] = "my_chain") -> None:
    """Write a commented spec to start from into the directory `specs`."""
    from fusegen.reference.init import write_spec

    for path in write_spec(name):
        print(f"wrote {path}")


@app.command()
def ops(op: Annotated[str | None, typer.Argument(help="One op, in full.", show_default=False)] = None) -> None:
    """List the ops that a chain may have, with their formulas, keys and defaults."""
    from fusegen.reference.ops import details, listing

    print(listing() if op is None else details(op), end="")


@app.command()
def schema() -> None:
    """Print the JSON Schema of specs, for editors."""
    from fusegen.reference.schema import text

    print(text(), end="")


@app.command()
def check(
    specs: Annotated[
        list[Path] | None,
        typer.Argument(help="Spec files, or directories of them; without, the directory `specs`.", show_default=False),
    ] = None,
    output: Output = DEFAULT_OUTPUT,
    patch: Annotated[Path | None, typer.Option("--patch", metavar="FILE", help="Write the differences there.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="Annotations are for GitHub Actions.")] = Format.text,
) -> None:
    """Compare what SPECS render with the generated packages, and tell how to repair what differs."""
    from fusegen.check.report import formatted, refused
    from fusegen.check.run import check as compare
    from fusegen.check.run import write_patch

    try:
        report = compare(specs or [DEFAULT_SPECS], output)
        if patch is not None:
            write_patch(report, patch)
    except SpecError as error:
        sys.stdout.write(refused(error, format_.value))
        raise
    console = Console()
    colour = console.color_system is not None and not console.no_color
    sys.stdout.write(formatted(report, format_.value, colour=colour))
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def verify(
    specs: Annotated[
        list[Path] | None, typer.Argument(help="Spec files, or directories of them.", show_default=False)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every spec in the directory `specs`.")] = False,
    output: Output = DEFAULT_OUTPUT,
    emulate: Annotated[bool, typer.Option(help="Run the kernels on the CPU, at small sizes.")] = False,
    seed: Annotated[int, typer.Option(help="Of the random data.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="As JSON, with every figure.")] = False,
) -> None:
    """Check built modules against double precision and beside eager PyTorch."""
    from fusegen.spec.find import spec_files
    from fusegen.verify.command import verify_specs

    chosen = [DEFAULT_SPECS] if all_ and DEFAULT_SPECS.is_dir() else specs or []
    if not chosen:
        raise typer.BadParameter("give spec files, or --all where there is a directory `specs`")
    if not verify_specs(spec_files(chosen), output, emulate=emulate, seed=seed, as_json=json_):
        raise typer.Exit(1)


@app.command()
def bench(
    specs: Annotated[
        list[Path] | None, typer.Argument(help="Spec files, or directories of them.", show_default=False)
    ] = None,
    against: Annotated[str, typer.Option(help="What to measure beside the fused module.")] = ",".join(PEERS),
    dtypes: Annotated[str, typer.Option(help="Of fp32, tf32, bf16, fp16.")] = ",".join(DEFAULT_PRECISIONS),
    shapes: Annotated[str, typer.Option(help="Such as 64x256x256 (rows, input features, channels).")] = TYPICAL,
    modes: Annotated[str, typer.Option(help="What is called.")] = ",".join(MODES),
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Append the figures to it.")] = None,
    plots: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw plots there, as SVG and PNG.")] = None,
    limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Leave out compiled peers after that time.")
    ] = None,
    from_csv: Annotated[
        Path | None, typer.Option("--from-csv", metavar="FILE", help="Measure nothing, show this file.")
    ] = None,
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
        bench_csv(from_csv, plots)
        return
    options = read(against, dtypes, shapes, modes, seed, limit)
    if not specs:
        raise typer.BadParameter("give spec files, or --from-csv FILE")
    if not bench_specs(spec_files(specs), output, options, csv, plots):
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


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A locale that lacks a character of a spec is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    stderr = Console(stderr=True, highlight=False)
    try:
        app(args=arguments, prog_name="fusegen")  # and not `python -m fusegen`, for which no shell completes
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except SpecError as error:
        stderr.print(str(error), markup=False, soft_wrap=True)
        sys.exit(2)
    except FusegenError as error:
        if isinstance(error, InternalError):
            _report_bug(error, str(error), stderr)
        stderr.print(str(error), markup=False, soft_wrap=True)
        sys.exit(1)
    except Exception as error:
        _report_bug(error, f"{type(error).__name__}: {error}", stderr)


def _report_bug(error: Exception, what: str, stderr: Console) -> NoReturn:
    message = f"fusegen has a bug, please report it with the spec: {what}"
    if os.environ.get("FUSEGEN_DEBUG") == "1":
        stderr.print("".join(traceback.format_exception(error)).rstrip(), markup=False, soft_wrap=True)
    else:
        message += "\nFUSEGEN_DEBUG=1 shows the traceback, which belongs into the report."
    stderr.print(message, markup=False, soft_wrap=True)
    sys.exit(3)

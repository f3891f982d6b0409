"""The command line: arguments in, exit code out. 0 fine, 1 a build failed, 2 bad spec or usage, 3 a bug of fusegen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fusegen.errors import FusegenError, InternalError, SpecError

app = typer.Typer(
    help="Generates CUDA modules for PyTorch from operator chains.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Specs = Annotated[list[Path], typer.Argument(help="Spec files.", show_default=False)]
Output = Annotated[Path, typer.Option("--output", "-o", help="Directory of the generated packages.")]

DEFAULT_OUTPUT = Path("generated")


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
) -> None:
    """Render SPECS into packages and compile them."""
    from fusegen.plan.load import plan_file
    from fusegen.render.output import write_files
    from fusegen.render.package import render_all

    console = Console(stderr=True, highlight=False)
    plans = [plan_file(path) for path in specs]
    for path in write_files(render_all(plans), output):
        console.print(f"wrote {output / path}", markup=False, soft_wrap=True)
    if not compile_:
        return
    from fusegen.build import build_extension

    for plan in plans:
        package = output / plan.spec.name
        targets = target or list(plan.spec.targets)
        result = build_extension(package, targets=targets, verification=verification, console=console, force=force)
        done = f"built in {result.seconds:.1f} s ({result.reason})" if result.built else "is up to date"
        console.print(f"{result.path} {done}", markup=False, soft_wrap=True)


@app.command()
def plan(
    specs: Specs,
    json_: Annotated[bool, typer.Option("--json", help="As JSON, the text of plan.json.")] = False,
) -> None:
    """Print stages, kernels, bytes, the floor and the reason of each decision."""
    import json

    from fusegen.plan.load import plan_file
    from fusegen.plan.report import report
    from fusegen.plan.summary import summary

    for path in specs:
        made = plan_file(path)
        print(json.dumps(summary(made), indent=2) if json_ else report(made))


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits."""
    stderr = Console(stderr=True, highlight=False)
    try:
        app(args=arguments)
    except SpecError as error:
        stderr.print(str(error), markup=False, soft_wrap=True)
        sys.exit(2)
    except InternalError as error:
        stderr.print(f"fusegen has a bug, please report it with the spec: {error}", markup=False, soft_wrap=True)
        sys.exit(3)
    except FusegenError as error:
        stderr.print(str(error), markup=False, soft_wrap=True)
        sys.exit(1)

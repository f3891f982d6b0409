"""The application that commands are added to, and the arguments that several take."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

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
            sys.exit(128 + 13)  # SIGPIPE, a name that Python on Windows lacks
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)


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
Targets = Annotated[
    list[str] | None, typer.Option("--target", help="Compile only for this target, such as sm_90; may be repeated.")
]


Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")]


def refuse_unknown(targets: list[str] | None) -> None:
    """Raises typer.BadParameter for a target that nothing can be built for."""
    from fusegen.plan.launches.devices import unknown_targets

    for reason in unknown_targets(targets):
        raise typer.BadParameter(reason, param_hint="--target")

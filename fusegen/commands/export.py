"""The command that writes a spec as one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fusegen.commands.app import Overwrite, app
from fusegen.files import refuse_output, write_output


@app.command()
def export(
    spec: Annotated[Path, typer.Argument(help="A spec file.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there, not to the terminal.", show_default=False),
    ] = None,
    dtypes: Annotated[
        str | None,
        typer.Option(help="Of float32, bfloat16, float16; without, those of the spec.", show_default=False),
    ] = None,
    inputs_from: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Copy get_inputs and get_init_inputs from there.", show_default=False),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="ieee or fp32_split, where the spec has another.", show_default=False)
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write SPEC as one Python file, ModelNew, that needs torch and nvcc alone."""
    from fusegen.standalone.export import export as exported

    if precision not in (None, "ieee", "fp32_split"):
        raise typer.BadParameter("it can be ieee or fp32_split", param_hint="--precision")
    chosen = None if dtypes is None else [each.strip() for each in dtypes.split(",")]
    inputs = [spec, *([] if inputs_from is None else [inputs_from])]
    if output is not None:
        refuse_output(output, inputs=inputs, overwrite=overwrite)
    text = exported(spec, dtypes=chosen, inputs_from=inputs_from, precision=precision)
    if output is None:
        sys.stdout.write(text)
    else:
        write_output(output, text, inputs=inputs, overwrite=overwrite)
        print(f"wrote {output}")

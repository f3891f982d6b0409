"""The command that writes a spec from a module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fusegen.commands.app import app


@app.command("import")
def import_(
    model: Annotated[str, typer.Argument(metavar="FILE.py:CLASS", help="The nn.Module.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="NAME.yaml", help="The spec to write.")],
    init: Annotated[
        str, typer.Option(metavar="FUNCTION", help="Of that file: returns the constructor's arguments.")
    ] = "get_init_inputs",
    inputs: Annotated[
        str, typer.Option(metavar="FUNCTION", help="Of that file: returns example inputs.")
    ] = "get_inputs",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a spec that is there.")] = False,
) -> None:
    """Write the spec of an nn.Module, which is traced by torch.export and compared with the spec's in double precision.

    This runs the file of the module: its class and the two functions. It runs nothing else, compiles nothing, and
    writes nothing if a chain cannot express the module.
    """
    from fusegen.importing.load import import_spec

    import_spec(model, init, inputs, output, overwrite=overwrite)
    print(f"wrote {output}")

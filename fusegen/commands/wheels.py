"""The command that packs generated modules for people without fusegen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fusegen.commands.app import Overwrite, Specs, Targets, app, refuse_unknown


@app.command()
def wheel(
    specs: Specs,
    name: Annotated[
        str | None, typer.Option(help="Of the wheel; without, that of the only spec.", show_default=False)
    ] = None,
    version: Annotated[str, typer.Option(help="Of the wheel.")] = "0.1.0",
    target: Targets = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the wheel.")] = Path("dist"),
    license_: Annotated[
        str | None, typer.Option("--license", help="SPDX expression, such as MIT.", show_default=False)
    ] = None,
    license_file: Annotated[
        list[Path] | None,
        typer.Option("--license-file", exists=True, dir_okay=False, help="Text of the license; may be repeated."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Pack SPECS, compiled, as a wheel for every torch from 2.10 on and every Python from 3.10 on."""
    from fusegen.build.progress import shown
    from fusegen.plan.load import planned_files
    from fusegen.spec.find import spec_files
    from fusegen.wheel.command import mislicensed, misnamed, misversioned, write_wheel
    from fusegen.wheel.project import OWN_NAMES, Wheel

    files = spec_files(specs)
    if name is None and len(files) > 1:
        raise typer.BadParameter("give one: there are several specs", param_hint="--name")
    name = files[0].stem.replace("_", "-") if name is None else name
    mistakes = {
        "--name": misnamed(name),
        "--version": misversioned(version),
        "--license": None if license_ is None else mislicensed(license_),
    }
    for hint, reason in mistakes.items():
        if reason is not None:
            raise typer.BadParameter(reason, param_hint=hint)
    texts = license_file or []
    names = [path.name for path in texts]
    if len(set(names) - OWN_NAMES) < len(names):
        raise typer.BadParameter(f"one name for two files: {', '.join(names)}", param_hint="--license-file")
    console = Console(stderr=True, highlight=False)
    with shown(console):
        plans = planned_files(files)
    refuse_unknown(target)
    chosen = Wheel(name, version, license_, tuple(texts), tuple(dict.fromkeys(target)) if target else None, overwrite)
    print(f"wrote {write_wheel(plans, chosen, output, console)}")

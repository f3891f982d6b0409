"""Commands that read specs and write or compare sources."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fusegen.commands.app import Output, Overwrite, Specs, Targets, app, refuse_unknown
from fusegen.errors import SpecError
from fusegen.paths import DEFAULT_OUTPUT, DEFAULT_SPECS

if TYPE_CHECKING:
    from fusegen.render.package import Files


class Format(str, Enum):
    """What `fusegen check` prints."""

    text = "text"
    json = "json"
    github = "github"


@app.command()
def build(
    specs: Specs,
    output: Output = DEFAULT_OUTPUT,
    target: Targets = None,
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
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Render SPECS into packages and compile them."""
    from fusegen.build.progress import shown
    from fusegen.commands.account import account, closing
    from fusegen.plan.load import planned_files
    from fusegen.plan.modules.module import compiled
    from fusegen.render.files.spec_digests import spec_digests
    from fusegen.render.output import write_files
    from fusegen.render.package import render_all
    from fusegen.spec.find import spec_files

    if prune and not any(path.is_dir() for path in specs):
        raise typer.BadParameter(
            "it needs a directory of specs: a few files do not tell what is left over", param_hint="--prune"
        )
    console = Console(stderr=True, highlight=False, quiet=quiet)

    def say(lines: Iterable[str]) -> None:
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)

    with shown(console):
        plans = planned_files(spec_files(specs))
        refuse_unknown(target)
        rendered = render_all(plans)
    left_over = _left_over(rendered, output, specs) if prune else []
    digests = spec_digests(plans)
    written = write_files(rendered, output, specs=digests, remove=left_over, overwrite=overwrite)
    say(account("wrote", written, output))
    say(account("removed", left_over, output))
    if compile_:
        from fusegen.build import Request, build_extensions

        requests = [Request(output / plan.spec.name, target or plan.spec.targets) for plan in compiled(plans)]
        results = build_extensions(requests, verification=verification, console=console, force=force)
        say(f"{result.path} is up to date" for result in results if not result.built)
    say(closing(plans, specs, output, target or [], compiled=compile_))


def _left_over(rendered: Files, output: Path, specs: list[Path]) -> list[str]:
    """What no spec of the directories renders any more, without what specs of other directories gave."""
    from fusegen.check.other_specs import of_other_specs
    from fusegen.render.files.manifest import read_manifest
    from fusegen.render.output import orphans

    packages = {path.partition("/")[0] for path in read_manifest(output) if path not in rendered}
    return orphans(rendered, output, of_other_specs(output, packages, specs))


class PlanFormat(str, Enum):
    """What `fusegen plan` prints."""

    text = "text"
    json = "json"
    html = "html"
    svg = "svg"


@app.command()
def plan(
    specs: Specs,
    format_: Annotated[PlanFormat, typer.Option("--format", help="svg: of one spec.")] = PlanFormat.text,
    json_: Annotated[bool, typer.Option("--json", help="The text of plan.json, which kernels follow.")] = False,
    rows: Annotated[int | None, typer.Option(min=1, help="What runs with so many rows, and why. Needs g++.")] = None,
    channels: Annotated[int | None, typer.Option(min=1, help="The same with so many channels.")] = None,
    groups: Annotated[int | None, typer.Option(min=1, help="The same with so many groups of channels.")] = None,
    dtype: Annotated[str | None, typer.Option(help="The same in this dtype.")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="What runs on the GPU of this one of the spec's targets, and times there.", show_default=False
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="All schedules, kernels, bytes and reasons.")] = False,
    region: Annotated[
        str | None, typer.Option(help="Of a chain of several regions, this one alone.", show_default=False)
    ] = None,
) -> None:
    """Show what SPECS become and whether it pays; in full with kernels, bytes and reasons; or what runs at one size."""
    from fusegen.build.progress import shown
    from fusegen.explain.choices import Question
    from fusegen.explain.module import region_of, reported, written
    from fusegen.explain.page import page
    from fusegen.plan.load import planned_files
    from fusegen.spec.find import spec_files

    question = None
    if any(each is not None for each in (rows, channels, groups, dtype, target)):
        question = Question(rows, channels, groups, dtype)
    if json_ and (question is not None or format_ is not PlanFormat.text):
        raise typer.BadParameter("plan.json has one format, and neither sizes nor times", param_hint="--json")
    if full and (json_ or question is not None or format_ is not PlanFormat.text):
        raise typer.BadParameter("other formats, and text of one size, have all there is", param_hint="--full")
    with shown():
        plans = planned_files(spec_files(specs))
    if len(plans) != 1 and format_ is PlanFormat.svg:
        raise typer.BadParameter(f"a picture is of one spec, not of {len(plans)}", param_hint="--format")
    if region is not None:
        plans = [region_of(plans, region)]
    if format_ is PlanFormat.html:
        typer.echo(page(*(reported(made, question, target) for made in plans)).encode("utf-8"), nl=False)
        return
    chosen = "plan.json" if json_ else format_.value
    texts = [written(made, question, target, chosen, full=full) for made in plans]
    if chosen == "text" and question is None and not full:
        texts.append("--full: all schedules, bytes and reasons; --rows N and such: what runs at a size, and why\n")
    # All at once: none of them may be refused any more. In UTF-8 as pages say that they are, whatever the locale is.
    typer.echo("".join(texts).encode("utf-8"), nl=False)


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Of the spec, its package and its file.")] = "my_chain",
    overwrite: Overwrite = False,
) -> None:
    """Write a commented spec to start from into the directory `specs`."""
    from fusegen.reference.init import write_spec

    for path in write_spec(name, overwrite=overwrite):
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
    overwrite: Overwrite = False,
    format_: Annotated[Format, typer.Option("--format", help="Annotations are for GitHub Actions.")] = Format.text,
) -> None:
    """Compare what SPECS render with the generated packages, and tell how to repair what differs."""
    from fusegen.build.progress import shown
    from fusegen.check.report import formatted, refused
    from fusegen.check.run import check as compare
    from fusegen.check.run import write_patch

    try:
        with shown():
            report = compare(specs or [DEFAULT_SPECS], output)
        if patch is not None:
            write_patch(report, patch, overwrite=overwrite)
    except SpecError as error:
        sys.stdout.write(refused(error, format_.value))
        raise
    console = Console()
    colour = console.color_system is not None and not console.no_color
    sys.stdout.write(formatted(report, format_.value, colour=colour))
    if not report.ok:
        raise typer.Exit(1)

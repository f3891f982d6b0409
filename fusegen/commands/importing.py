"""The commands that read a module: one writes its spec, one looks for chains inside it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import typer

from fusegen.commands.app import Overwrite, app
from fusegen.paths import DEFAULT_FUSED

Model = Annotated[str, typer.Argument(metavar="FILE.py:CLASS", help="The nn.Module.", show_default=False)]
Init = Annotated[str, typer.Option(metavar="FUNCTION", help="Of that file: returns the constructor's arguments.")]
Inputs = Annotated[str, typer.Option(metavar="FUNCTION", help="Of that file: returns example inputs.")]


class Autocast(str, Enum):
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Precision(str, Enum):
    IEEE = "ieee"
    FP32_SPLIT = "fp32_split"


@app.command("import")
def import_(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="NAME.yaml", help="The spec to write.")],
    init: Init = "get_init_inputs",
    inputs: Inputs = "get_inputs",
    overwrite: Overwrite = False,
) -> None:
    """Write the spec of an nn.Module, which is traced by torch.export and compared with the spec's in double precision.

    This runs the file of the module: its class and the two functions. It runs nothing else, compiles nothing, and
    writes nothing if a chain cannot express the module.
    """
    from fusegen.build.progress import shown
    from fusegen.explain.module import expected
    from fusegen.importing.load import import_spec
    from fusegen.plan.load import planned_file

    with shown():
        import_spec(model, init, inputs, output, overwrite=overwrite)
        answer = expected(planned_file(output))
    print(f"wrote {output}")
    print(answer)


@app.command()
def fuse(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:CLASS|PACKAGE:NAME",
            help="The nn.Module, or a model of timm, torchvision or transformers.",
            show_default=False,
        ),
    ],
    directory: Annotated[
        Path, typer.Option("--directory", "-d", help="Gets specs and generated packages.")
    ] = DEFAULT_FUSED,
    init: Init = "get_init_inputs",
    inputs: Inputs = "get_inputs",
    autocast: Annotated[Autocast | None, typer.Option(help="As the training step has it.", show_default=False)] = None,
    precision: Annotated[Precision, typer.Option(help="How linear layers multiply float32.")] = Precision.IEEE,
    loss_chunk: Annotated[
        str | None,
        typer.Option(
            "--loss-chunk", metavar="auto|ROWS", help="Rows of logits in memory at a time.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write and compile nothing, only report.")] = False,
    compile_: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile, or only write specs and sources.")
    ] = True,
    target: Annotated[
        list[str] | None, typer.Option("--target", help="Of new specs, such as sm_90; may be repeated.")
    ] = None,
) -> None:
    """Find the chains inside a model, and write and build what it runs under torch.compile(backend="fusegen").

    This runs the file of the model. The model itself is traced with tensors that have no values.
    """
    import torch

    from fusegen.build.progress import shown
    from fusegen.capture.named import is_named, named_model
    from fusegen.capture.survey import survey
    from fusegen.importing.load import load_model

    with shown():
        loaded = named_model(model) if is_named(model) else load_model(model, init, inputs)
        report = survey(
            loaded.module,
            loaded.examples,
            directory,
            targets=target or (),
            autocast=None if autocast is None else getattr(torch, autocast.value),
            precision=precision.value,
            loss_chunk=_chunk(loss_chunk),
            dry_run=dry_run,
            compile=compile_,
        )
    print(report)


def _chunk(given: str | None) -> int | Literal["auto"] | None:
    """What --loss-chunk says. Raises BadParameter for another text."""
    if given is None or given == "auto":
        return given  # type: ignore[return-value]
    if not given.isascii() or not given.isdigit() or int(given) == 0:
        raise typer.BadParameter("it is 'auto' or a number of rows", param_hint="--loss-chunk")
    return int(given)

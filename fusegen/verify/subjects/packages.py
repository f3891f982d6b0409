"""Generated packages as subjects of verification: loaded for the GPU, or emulated on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from fusegen.errors import Diagnostic, FusegenError, SpecError
from fusegen.plan.modules.module import ModulePlan
from fusegen.render.files.support import used_support
from fusegen.render.package import render_package
from fusegen.verify.subjects.subject import Subject


class VerificationError(FusegenError):
    """There is nothing to verify: the package is missing, not built, or not what the spec says."""


def choose_device(emulate: bool) -> str:
    """ "cuda", or "cpu" where kernels are emulated. Raises SpecError where there is no GPU and no emulation."""
    if emulate:
        return "cpu"
    if not torch.cuda.is_available():
        problem = Diagnostic("FG503", "torch finds no CUDA device", hint="--emulate runs the kernels on the CPU")
        raise SpecError([problem])
    return "cuda"


def open_subject(
    plan: ModulePlan,
    output: Path,
    *,
    device: str,
    cache: Path,
    original: Callable[..., nn.Module] | None = None,
    fresh: bool = True,
) -> Subject:
    """The package of `plan` in `output`, ready to run on `device`.

    original: what it is compared with, see Subject. cache: where emulated kernels are compiled to. fresh: refuse what
    is not what the spec says. Raises VerificationError.
    """
    name = plan.spec.name
    if fresh:
        _refuse_stale(plan, output)
    if device == "cpu":
        from fusegen.emulate.package import emulate_package

        return Subject(plan, emulate_package(output / name, cache=cache, verification=True), device, original)
    for each in plan.plans:
        if not (output / each.spec.name / "_C.so").exists():
            file = f"specs/{plan.spec.file_stem}.yaml"
            raise VerificationError(f"{output / each.spec.name} is not built: run `fusegen build {file}`")
    from fusegen.runtime.importing import import_package

    return Subject(plan, import_package(output.resolve(), name), device, original)


def _refuse_stale(plan: ModulePlan, output: Path) -> None:
    rendered = render_package(plan)
    for path, text in {**rendered, **used_support(rendered)}.items():
        file = output / path
        if not file.is_file():
            raise VerificationError(f"{file} is not there: run `fusegen build`, or give its directory as --output")
        if file.read_bytes() != text.encode():
            raise VerificationError(f"{file} is not what the spec says: run `fusegen check`")

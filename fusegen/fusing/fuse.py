"""fuse(): the one call that has the chains of a model run as kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.build.progress import shown
from fusegen.capture.packages import compile_plans, gpu_target, locked
from fusegen.errors import Diagnostic, SpecError
from fusegen.fusing.calls import record
from fusegen.fusing.chains import Chains
from fusegen.fusing.check import compare
from fusegen.fusing.region import region
from fusegen.fusing.report import Left, Replaced, Report
from fusegen.fusing.search import Found, Search
from fusegen.fusing.specs import Specs
from fusegen.fusing.swap import is_replaced, replace, restore
from fusegen.paths import BUILD_STORE, DEFAULT_FUSED
from fusegen.plan.composition import Planned
from fusegen.plan.devices import is_known
from fusegen.plan.load import planned_files
from fusegen.progress import tell
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.runtime import load

_SPECS, _GENERATED = "specs", "generated"


def fuse(
    model: nn.Module,
    example_inputs: Any,
    *,
    directory: str | Path = DEFAULT_FUSED,
    dry_run: bool = False,
    compile: bool = True,
    targets: Sequence[str] | None = None,
) -> Report:
    """Has the chains inside a model run as fused kernels, and reports what was replaced and what was not.

    The model is run once with `example_inputs` (a tensor, a sequence of arguments, or a mapping of names), in
    evaluation, and changed in place: its modules, parameters and buffers stay the same objects under the same names.
    What is replaced runs the original's operators on a CPU, and wherever the kernels cannot run.

    directory: gets `specs/<name>.yaml` and `generated/<name>/`, to be committed; a spec that is there is never changed.
    dry_run: only report. compile: compile what is not compiled yet. targets: GPU architectures of new specs, such as
    `sm_90`; by default that of the GPU at hand. Raises SpecError for a model that does not run, or specs and files that
    cannot be read or written, and BuildError for a build that fails.
    """
    with ExitStack() as usual:
        # What the caller's modes do to a trace is no part of a chain.
        usual.enter_context(torch.inference_mode(False))
        usual.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            usual.enter_context(torch.autocast(device, enabled=False))
        return _fuse(model, example_inputs, Path(directory), dry_run, compile, targets)


def _fuse(
    model: nn.Module,
    example_inputs: Any,
    directory: Path,
    dry_run: bool,
    compile: bool,
    targets: Sequence[str] | None,
) -> Report:
    args, kwargs = _arguments(example_inputs)
    output = directory / _GENERATED
    chains = Chains(_targets(targets), output / BUILD_STORE / "imports", keep=not dry_run)
    with shown():
        tell("running the model")
        search = Search(model, record(model, args, kwargs, is_replaced), chains)
        search.walk(model)
    writes = bool(search.found) and not dry_run
    with locked(output) if writes else nullcontext():
        # Another process may have written specs meanwhile, of other chains.
        specs = Specs(directory / _SPECS)
        names = [specs.place(each.chain.text, each.name) for each in search.found]
        if writes:
            specs.write()
            with shown():
                plans = {plan.spec.name: plan for plan in planned_files(sorted(specs.directory.glob("*.yaml")))}
                rendered = render_all(plans.values())
            write_files(rendered, output)
    report = Report(specs.directory, dry_run, left=search.left, written=sorted(specs.texts), unused=specs.unused)
    if writes:
        if compile:
            compile_plans(output, [plans[name] for name in sorted(set(names))])
        _replace_all(search.found, names, plans, output, report)
    else:
        report.replaced += [_entry(each, name) for each, name in zip(search.found, names, strict=True)]
    return report


def _arguments(given: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(given, Tensor):
        return (given,), {}
    return ((), given) if isinstance(given, Mapping) else (tuple(given), {})


def _targets(given: Sequence[str] | None) -> list[str] | None:
    """None: those that the importer writes."""
    if given is not None:
        unknown = [each for each in given if not is_known(each)]
        if unknown or isinstance(given, str):
            message = f"unsupported target {given if isinstance(given, str) else unknown[0]!r}"
            raise SpecError([Diagnostic("FG212", message, hint="a target is such as sm_90 or sm_90a")])
        return list(given)
    target = gpu_target()
    return [target] if target is not None and is_known(target) else None


def _replace_all(
    found: Sequence[Found], names: Sequence[str], plans: Mapping[str, Planned], output: Path, report: Report
) -> None:
    """Swaps owner by owner: an nn.Sequential may have several runs."""
    owners: dict[int, list[tuple[Found, str]]] = {}
    for each, name in zip(found, names, strict=True):
        owners.setdefault(id(each.owner), []).append((each, name))
    done: list[nn.Module] = []
    try:
        for group in owners.values():
            regions = []
            for each, name in group:
                rank = each.inputs[0].dim()
                made = region(
                    load(name, output),
                    plans[name],
                    each.chain.sizes,
                    each.owner,
                    each.paths,
                    rank,
                    each.span,
                    each.chain.of_images,
                )
                why = _no_kernels(made, each.inputs)
                if why is None:
                    regions.append(made)
                    report.replaced.append(_entry(each, name))
                else:
                    report.left.append(Left(each.path, each.kind, why))
            if regions:
                owner = group[0][0].owner
                replace(owner, regions)
                done.append(owner)
                compare(owner, {each.span: each for each, _ in group})
    except BaseException:
        for owner in done:
            restore(owner)
        raise


def _entry(found: Found, name: str) -> Replaced:
    return Replaced(found.path, found.kind, name, found.ops, found.chain.saving)


def _no_kernels(made: Any, inputs: Sequence[Tensor]) -> str | None:
    """Why the kernels would refuse the example, as they would on their device. Draws no random numbers."""
    devices = {x.device.index for x in inputs if x.is_cuda}
    with torch.random.fork_rng(devices=sorted(devices)), torch.no_grad():
        if not hasattr(made, "_fusegen_chain"):
            return _refusal(made, type(made), inputs)
        made.eval()  # the regions are run, and leave running statistics as they are
        try:
            made._fusegen_chain(lambda part, *values: _run(made, part, values), *inputs)
        except _NoKernels as why:
            return str(why)
        finally:
            made.train(made._fusegen_owner.training)
            made.fusegen_follow()
    return None


class _NoKernels(Exception):
    pass


def _run(made: Any, part: Any, values: Sequence[Tensor]) -> Any:
    """What a region makes, by PyTorch's operators."""
    why = _refusal(made, part, values)
    if why is not None:
        raise _NoKernels(why)
    return part.fusegen_reference(made, *values)


def _refusal(made: Any, part: Any, inputs: Sequence[Tensor]) -> str | None:
    operator, why = part._fusegen_call(made, *inputs, _device=part._fusegen_package.device, _count=False)
    return None if operator is not None else why.reason

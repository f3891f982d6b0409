"""A module of several regions in its __init__.py and plan.json. The regions have packages of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusegen.ops.convolution import Convolving
from fusegen.plan.modules.module import ModulePlan, PlannedRegion
from fusegen.plan.summary import step_data, summary
from fusegen.render.ops.functions import as_tuple
from fusegen.render.python.reference_module import dimensions_text
from fusegen.render.python.region_formats import follows_inputs, formats, shared, takes_contiguous, takes_last, writes


@dataclass(frozen=True)
class RegionText:
    """variable: of the module, for a region with kernels."""

    name: str
    about: str
    variable: str = ""
    package: str = ""


def module_summary(planned: ModulePlan) -> dict[str, Any]:
    """What plan.json has: the plan, or what several regions are and take, whose plans are in packages of their own."""
    return summary(planned.plans[0]) if planned.single else _regions_summary(planned)


def _regions_summary(planned: ModulePlan) -> dict[str, Any]:
    return {
        "name": planned.spec.name,
        "targets": list(planned.spec.targets),
        "inputs": {name: list(shape) for name, shape in planned.spec.inputs.items()},
        "chain": [step_data(step) for step in planned.spec.chain],
        "regions": [
            {
                "name": region.name,
                "package": region.plan.spec.name if region.plan else None,
                "by": _maker(region),
                "ops": [step.op for step in region.steps],
                "takes": {name: list(shape) for name, shape in region.inputs.items()},
                "makes": list(region.results),
            }
            for region in planned.regions
        ],
        "returns": list(planned.returned),
    }


def _maker(region: PlannedRegion) -> str:
    """What computes a region, and why."""
    if region.plan:
        return "kernels"
    where = f"what is behind it is in {region.tail_in}" if region.tail_in else "nothing is behind it"
    layer = region.steps[0]
    if region.is_called:
        return f"PyTorch calls it: {region.why_called}"
    function = "linear"
    if isinstance(layer, Convolving):
        function = f"conv{'_transpose' if layer.transposed else ''}{layer.spatial}d"
    return f"torch.nn.functional.{function}: {where}"


def base(planned: ModulePlan) -> str:
    """The class of `_support` that the module's is derived from."""
    if planned.single:
        return "FusedModule"
    return "FusedImageRegions" if planned.has_images else "FusedRegions"


def regions_context(planned: ModulePlan) -> dict[str, Any]:
    """What templates need to know to call several regions, of a package or in one file."""
    inputs = list(planned.spec.inputs)
    return {
        "dimensions": dimensions_text(planned.dimensions, inputs, planned.fixed_dimensions),
        "inputs_all": inputs,
        "calls": calls(planned),
        "formats": formats(planned),
        "images": _image_package(planned),
        "follows": follows_inputs(planned),
        "writes": writes(planned),
    }


def _image_package(planned: ModulePlan) -> int | None:
    """The place of the first package of images among those of all regions."""
    found = [plan.chain.spatial > 0 for plan in planned.plans]
    return found.index(True) if any(found) else None


def packages_context(planned: ModulePlan) -> dict[str, Any]:
    """What the template of a package needs to know besides."""
    regions = [_region(region) for region in planned.regions]
    kernels = [region for region in regions if region.package]
    return {
        "regions": regions,
        "kernels": kernels,
        "variables": as_tuple([region.variable for region in kernels]),
        "products": any(step.anchor and not step.spatial for step in planned.spec.chain),
    }


def _region(region: PlannedRegion) -> RegionText:
    ops = ", ".join(step.op for step in region.steps)
    if region.plan is None:
        return RegionText(region.name, f"{ops}, which PyTorch makes")
    package = region.plan.spec.name
    return RegionText(region.name, f"{ops}, in {package}", variable(region), package)


def variable(region: PlannedRegion) -> str:
    return f"_region_{region.name}"


def calls(planned: ModulePlan) -> list[str]:
    """The body of the method that runs the regions in turn. A value goes when no further region takes it."""
    copies = shared(planned)
    lines = [f"{variable} = self._fusegen_shared({name})" for name, variable in copies.items()]
    last_takers = {name: index for index, region in enumerate(planned.regions) for name in region.inputs}
    kept = {*planned.spec.inputs, *planned.returned}
    for index, region in enumerate(planned.regions):
        source, *_ = region.inputs
        given = ", ".join(copies.get(name, name) if takes_last(region, name) else name for name in region.inputs)
        given = source if region.plan is None and region.steps[0].further_values else given
        given = f"self._fusegen_contiguous({given})" if takes_contiguous(region) else given
        if region.plan is None:
            layer = region.steps[0]
            given = f"self._fusegen_last({given})" if layer.spatial and layer.anchor else given
            lines += layer.lines(given, region.results[0], region.spatial)[0]
        else:
            made = ", ".join(region.results)
            call = f"{made} = _run({variable(region)}, {given})"
            lines += (
                [call] if len(call) <= 88 else [f"{made} = _run(", f"    {variable(region)},", f"    {given},", ")"]
            )
        if takes_contiguous(region):
            alike = [name for name in region.results if planned.shapes[name] == planned.shapes[source]]
            lines += [f"{name} = self._fusegen_contiguous_gradient({name})" for name in alike]
        gone = [name for name in region.inputs if last_takers[name] == index]
        done = [copies.get(name, name) for name in gone if name in copies or name not in kept]
        lines += [f"del {', '.join(done)}"] if done and region is not planned.regions[-1] else []
    returned = planned.returned
    return [*lines, f"return {returned[0] if planned.spec.outputs is None else as_tuple(list(returned))}"]

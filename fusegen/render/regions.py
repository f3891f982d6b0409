"""A module of several regions in its __init__.py and plan.json. The regions have packages of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusegen.ir.axes import Dim
from fusegen.ops.convolution import Convolving
from fusegen.plan.composition import Planned, dimensions_of, fixed_dimensions_of
from fusegen.plan.plan import Part
from fusegen.plan.region import Shape
from fusegen.plan.summary import step_data, summary
from fusegen.render.functions import as_tuple
from fusegen.render.original import dimensions_text, dtypes_text
from fusegen.render.region_formats import formats, shared, takes_last, writes


@dataclass(frozen=True)
class RegionText:
    """variable: of the module, for a region with kernels. sources: the digest of its package's."""

    name: str
    about: str
    variable: str = ""
    package: str = ""
    sources: str = ""


def module_summary(planned: Planned) -> dict[str, Any]:
    """What plan.json has: the plan, or what several regions are and take, whose plans are in packages of their own."""
    return summary(planned.plans[0]) if planned.is_region else _regions_summary(planned)


def _regions_summary(composition: Planned) -> dict[str, Any]:
    return {
        "name": composition.spec.name,
        "targets": list(composition.spec.targets),
        "inputs": {name: list(shape) for name, shape in composition.spec.inputs.items()},
        "chain": [step_data(step) for step in composition.spec.chain],
        "regions": [
            {
                "name": part.region.name,
                "package": part.plan.spec.name if part.plan else None,
                "by": _maker(part),
                "ops": [step.op for step in part.region.steps],
                "takes": {name: list(shape) for name, shape in part.region.inputs.items()},
                "makes": list(part.region.results),
            }
            for part in composition.parts
        ],
        "returns": list(composition.returned),
    }


def _maker(part: Part) -> str:
    """What computes a region, and why."""
    if part.plan:
        return "kernels"
    where = f"what is behind it is in {part.region.tail_in}" if part.region.tail_in else "nothing is behind it"
    layer = part.region.steps[0]
    function = "linear"
    if isinstance(layer, Convolving):
        function = f"conv{'_transpose' if layer.transposed else ''}{layer.spatial}d"
    return f"torch.nn.functional.{function}: {where}"


def regions_context(composition: Planned, sources: Mapping[str, str]) -> dict[str, Any]:
    """What the template of a module of several regions needs to know. sources: the digest of each region's package."""
    regions = [_region(part, sources) for part in composition.parts]
    kernels = [region for region in regions if region.package]
    inputs = list(composition.spec.inputs)
    return {
        "file": composition.spec.name,
        "name": composition.spec.name,
        "class_name": composition.spec.class_name,
        "base": "ComposedImages" if composition.spatial else "ComposedModule",
        "regions": regions,
        "kernels": kernels,
        "variables": as_tuple([region.variable for region in kernels]),
        "products": any(step.anchor and not step.spatial for step in composition.spec.chain),
        "precisions": composition.has_precisions,
        "dimensions": dimensions_text(dimensions_of(composition), inputs, fixed_dimensions_of(composition)),
        "inputs_all": inputs,
        "calls": calls(composition),
        "formats": formats(composition),
        "writes": writes(composition),
        "shapes": _shapes(composition),
    }


def _region(part: Part, sources: Mapping[str, str]) -> RegionText:
    ops = ", ".join(step.op for step in part.region.steps)
    if part.plan is None:
        return RegionText(part.region.name, f"{ops}, which PyTorch makes")
    package = part.plan.spec.name
    return RegionText(part.region.name, f"{ops}, in {package}", variable(part), package, sources[package])


def variable(part: Part) -> str:
    return f"_region_{part.region.name}"


def calls(composition: Planned) -> list[str]:
    """The body of the method that runs the regions in turn."""
    copies = shared(composition)
    lines = [f"{variable} = self._fusegen_shared({name})" for name, variable in copies.items()]
    for part in composition.parts:
        given = ", ".join(copies.get(name, name) if takes_last(part, name) else name for name in part.region.inputs)
        if part.plan is None:
            layer = part.region.steps[0]
            given = f"self._fusegen_last({given})" if layer.spatial else given
            lines += layer.lines(given, part.region.results[0], composition.spatial)[0]
        else:
            made = ", ".join(part.region.results)
            call = f"{made} = _run({variable(part)}, {given})"
            lines += [call] if len(call) <= 88 else [f"{made} = _run(", f"    {variable(part)},", f"    {given},", ")"]
    returned = composition.returned
    return [*lines, f"return {returned[0] if composition.spec.outputs is None else as_tuple(list(returned))}"]


def _shape(composition: Planned, name: str) -> Shape:
    """Of a result."""
    shape = composition.shapes[name]
    part = next(part for part in composition.parts if name in part.region.results)
    plan, (*others, _) = part.plan, part.region.results
    if plan is None or name in others or (others and not plan.chain.result.drops_channels):
        return shape
    rows, channels = (shape[:1], shape[1]) if composition.spatial else (shape[:-1], shape[-1])
    return plan.chain.result.shape(rows, channels, shape[2:] if composition.spatial else ())  # which may be of rows


def _shapes(composition: Planned) -> list[str]:
    """The docstring's lines about inputs, results and dtypes."""

    def text(shape: tuple[Dim, ...]) -> str:
        return f"[{', '.join(map(str, shape))}]"

    spec = composition.spec
    lines = [f"{name}: {text(shape)}" for name, shape in spec.inputs.items()]
    made = [text(_shape(composition, name)) for name in composition.returned]
    if spec.outputs is None:
        lines.append(f"Returns {made[0]}.")
    else:
        lines.append(
            "Returns " + ", ".join(f"{name} {shape}" for name, shape in zip(spec.outputs, made, strict=True)) + "."
        )
    allowed = dimensions_of(composition)
    if allowed.most is None:
        any_number = "any number of dimensions" if allowed.least == 1 else "one dimension or more"
        first = next(iter(spec.inputs.values()))[0]
        lines.append(f"In place of {first} there may be {any_number}, alike for all of these.")
    return [*lines, *dtypes_text(spec)]

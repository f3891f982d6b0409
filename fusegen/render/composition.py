"""The package of a module of several regions: __init__.py and plan.json. The regions have packages of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fusegen.ir.axes import Dim
from fusegen.ops.convolution import Convolving
from fusegen.plan.composition import Composition, Part
from fusegen.plan.region import Shape
from fusegen.plan.summary import step_data
from fusegen.render.alignment import Alignment
from fusegen.render.composed_formats import formats, shared, takes_last, writes
from fusegen.render.environment import render
from fusegen.render.functions import as_tuple
from fusegen.render.module import returns
from fusegen.render.original import (
    batched_lines,
    constructor,
    dimensions_text,
    dtypes_text,
    extra_repr,
    reference_lines,
    reset,
    signature,
)


@dataclass(frozen=True)
class RegionText:
    """variable: of the module, for a region with kernels. sources: the digest of its package's."""

    name: str
    about: str
    variable: str = ""
    package: str = ""
    sources: str = ""


@dataclass(frozen=True)
class DropoutText:
    """stream: among those of its region."""

    name: str
    stream: int
    by_sample: bool


def render_composition(composition: Composition, sources: dict[str, str]) -> dict[str, str]:
    """The files of the package. sources: the digest of each region's, by the name of its package."""
    name = composition.spec.name
    return {
        f"{name}/__init__.py": _module(composition, sources),
        f"{name}/plan.json": json.dumps(composition_summary(composition), indent=2, ensure_ascii=True) + "\n",
        f"{name}/py.typed": "",
    }


def composition_summary(composition: Composition) -> dict[str, Any]:
    """What the regions are and take, as plain data; the plan of each is in its own package."""
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


def _module(composition: Composition, sources: dict[str, str]) -> str:
    spec, chains = composition.spec, [plan.chain for plan in composition.plans]
    aligned = Alignment(composition)
    batched = dict.fromkeys(line for chain in chains for line in batched_lines(chain, aligned.names))
    lines = [*batched, *reference_lines(spec, composition.spatial, aligned)]
    regions = [_region(part, sources) for part in composition.parts]
    kernels = [region for region in regions if region.package]
    inputs = list(spec.inputs)
    return render(
        "composed_module.py.j2",
        file=spec.name,
        name=spec.name,
        about=spec.about.rstrip("."),
        formula=[line.replace("self.", "") for line in lines],
        class_name=spec.class_name,
        uses_sequence=any(argument.type == "shape" for argument in spec.arguments.values()),
        uses_functional=any("F." in line for line in lines),
        regions=regions,
        kernels=kernels,
        variables=as_tuple([region.variable for region in kernels]),
        products=any(step.anchor and not step.spatial for step in spec.chain),
        precisions=composition.has_precisions,
        signature=signature(spec, composition.has_precisions),
        construct=constructor(spec, chains, constructed(composition), lines, composition.has_precisions),
        reset=reset(spec),
        extra_repr=extra_repr(*chains),
        shapes=_shapes(composition),
        dimensions=dimensions_text(composition.dimensions(), inputs, composition.fixed_dimensions()),
        returns=returns(spec),
        eager=lines,
        typed_inputs=[f"{name}: Tensor" for name in inputs],
        inputs_all=inputs,
        dropouts=[*_dropouts(composition)],
        paths=spec.state_dict,
        calls=calls(composition),
        base="ComposedImages" if composition.spatial else "ComposedModule",
        formats=formats(composition),
        writes=writes(composition),
    )


def _region(part: Part, sources: dict[str, str]) -> RegionText:
    ops = ", ".join(step.op for step in part.region.steps)
    if part.plan is None:
        return RegionText(part.region.name, f"{ops}, which PyTorch makes")
    package = part.plan.spec.name
    return RegionText(part.region.name, f"{ops}, in {package}", variable(part), package, sources[package])


def variable(part: Part) -> str:
    return f"_region_{part.region.name}"


def _dropouts(composition: Composition) -> Iterator[DropoutText]:
    for plan in composition.plans:
        for stream, dropout in enumerate(plan.chain.dropouts):
            yield DropoutText(dropout.name, stream, dropout.by_sample)


def constructed(composition: Composition) -> list[str]:
    """The lines that make what the steps own, in the order of the spec."""
    widths: dict[int, Dim] = {}
    for part in composition.parts:
        widths |= zip(part.region.places, part.region.widths, strict=True)
    steps, spatial = enumerate(composition.spec.chain), composition.spatial
    return [line for place, step in steps for line in step.construct_over(widths[place], spatial)]


def calls(composition: Composition) -> list[str]:
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


def _shape(composition: Composition, name: str) -> Shape:
    """Of a result."""
    shape = composition.shapes[name]
    part = next(part for part in composition.parts if name in part.region.results)
    plan, (*others, _) = part.plan, part.region.results
    if plan is None or name in others or (others and not plan.chain.drops_channels):
        return shape
    rows, channels = (shape[:1], shape[1]) if composition.spatial else (shape[:-1], shape[-1])
    return plan.chain.result_shape(rows, channels, shape[2:] if composition.spatial else ())  # which may be of rows


def _shapes(composition: Composition) -> list[str]:
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
    allowed = composition.dimensions()
    if allowed.most is None:
        any_number = "any number of dimensions" if allowed.least == 1 else "one dimension or more"
        first = next(iter(spec.inputs.values()))[0]
        lines.append(f"In place of {first} there may be {any_number}, alike for all of these.")
    return [*lines, *dtypes_text(spec)]

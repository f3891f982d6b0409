"""The lines about shapes and dtypes in the docstring of a module."""

from __future__ import annotations

import textwrap

from fusegen.chain.convolution import shape_form
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan
from fusegen.plan.regions.region import Shape
from fusegen.spec.model import SpecModel


def shape_lines(planned: ModulePlan) -> list[str]:
    """Of inputs, results, what else inputs may be, and dtypes."""
    spec, allowed, single = planned.spec, planned.dimensions, planned.single
    lines = [f"{name}: {_text(shape)}" for name, shape in spec.inputs.items()]
    made = [_of_only_region(single, name) if single else _of_region(planned, name) for name in planned.returned]
    named = [f"{name} {_text(shape)}" for name, shape in zip(spec.outputs or planned.returned, made, strict=True)]
    lines.append(f"Returns {_text(made[0]) if spec.outputs is None else ', '.join(named)}.")
    if single and planned.spatial:
        lines.append(f"The memory format is {_format(single)}. In channels_last nothing is copied.")
    if allowed.most is None:
        any_number = allowed.least == 1 or any(plan.chain.batched for plan in planned.plans)
        count = "any number of dimensions" if any_number else "one dimension or more"
        first = next(iter(spec.inputs.values()))[0]
        lines.append(f"In place of {first} there may be {count}, alike for all of these.")
    return [*lines, *_dtypes(spec)]


def _format(plan: Plan) -> str:
    """That of the result of a chain of images."""
    if plan.chain.convolution:
        return "that of PyTorch's convolution"
    return "channels_last" if plan.chain.anchor is not None else f"that of {plan.chain.inputs[0].name}"


def _of_only_region(plan: Plan, name: str) -> Shape:
    """The shape of a result of a module of one region."""
    chain, given = plan.chain, plan.chain.inputs[0].shape
    positions = shape_form(chain.spatial)[2:] if chain.spatial else ()
    rows, channels = given[:1] if positions else given[:-1], given[-1] if chain.trailing else chain.channels
    if name in chain.result.further:
        return (*rows, channels if chain.result.further[name].is_full else 1, *positions)
    return chain.result.shape(rows, channels, positions)


def _of_region(planned: ModulePlan, name: str) -> Shape:
    """The shape of a result of a module of several regions."""
    shape = planned.shapes[name]
    region = next(region for region in planned.regions if name in region.results)
    plan, (*others, _) = region.plan, region.results
    if plan is None or region.frame is not None or name in others or (others and not plan.chain.result.drops_channels):
        return shape
    spatial = region.spatial
    rows, channels = (shape[:1], shape[1]) if spatial else (shape[:-1], shape[-1])
    return plan.chain.result.shape(rows, channels, shape[2:] if spatial else ())  # which may be of rows


def _text(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _dtypes(spec: SpecModel) -> list[str]:
    """The docstring's lines about dtypes."""
    if spec.modes is not None:
        modes = (", ".join(f"{name} in {dtype}" for name, dtype in each.items()) for each in spec.modes)
        return textwrap.wrap(f"The kernels take {'; or '.join(modes)}.", 92)
    return textwrap.wrap(f"The kernels take {', '.join(spec.dtypes)}" + _autocast(spec) + ".", 92)


def _autocast(spec: SpecModel) -> str:
    narrow = [dtype for dtype in spec.dtypes if dtype != "float32"]
    if "float32" not in spec.dtypes or not narrow:
        return ""
    return f", and float32 parameters under autocast to {' or '.join(narrow)}"

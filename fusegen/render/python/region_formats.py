"""The memory formats of what a module of several regions of images returns, as its class declares them."""

from __future__ import annotations

from fusegen.ir.multiples import value_of
from fusegen.ops.convolution import Convolving
from fusegen.plan.modules.module import ModulePlan, PlannedRegion
from fusegen.plan.regions.region import Shape
from fusegen.plan.sizes.module_sizes import module_typical
from fusegen.render.ops.functions import as_tuple

# Of a value: whether it is in channels_last, or the place of an input, if one decides, and the convolutions behind it.
_Format = bool | tuple[int | None, tuple[str, ...]]


def formats(planned: ModulePlan) -> str:
    """The tuple of what decides of each result; empty where there are no images."""
    if not planned.has_images:
        return ""
    found: dict[str, _Format] = {name: (place, ()) for place, name in enumerate(planned.spec.inputs)}
    for region in planned.regions:
        found |= dict.fromkeys(region.results, _behind(region, found))
    return as_tuple([_text(found[name]) for name in planned.returned])


def _behind(region: PlannedRegion, found: dict[str, _Format]) -> _Format:
    """Behind the steps of a region, of which all but the first keep the format, or none does."""
    made, first = found[next(iter(region.inputs))], region.steps[0]
    if not all(step.keeps_format(region.spatial) for step in region.steps):
        made = False
    elif isinstance(first, Convolving) and made is not True:
        place, layers = made or (None, ())
        made = (place, (*layers, first.name))
    # Those over the channels work on [batch, *positions, channels].
    return any(step.is_over_channels for step in region.steps) or made


def _text(known: _Format) -> str:
    if isinstance(known, bool):
        return str(known)
    return f"({known[0]}, {as_tuple([repr(name).replace(chr(39), chr(34)) for name in known[1]])})"


def follows_inputs(planned: ModulePlan) -> bool:
    """Whether images stay in the format in which they come: no layer takes channels_last, and all kernels read and
    write contiguous images as they are."""
    if not planned.spatial:
        return False
    known = module_typical(planned).symbols
    images = {
        name
        for name, shape in planned.shapes.items()
        if len(shape) == planned.spatial + 2 and any(value_of(dim, known) > 1 for dim in shape[2:])
    }
    return all(
        region.frame is not None
        or region.is_called
        or (_is_tiled(region) and not any(takes_last(region, name) for name in region.inputs))
        for region in planned.regions
        if images.intersection((*region.inputs, *region.results))
    )


def takes_contiguous(region: PlannedRegion) -> bool:
    """Whether a region works on contiguous images, and makes such a result: a layer that PyTorch calls, or kernels that
    see rows of the last dimensions."""
    is_layer = region.is_called and region.spatial > 0 and not region.steps[0].keeps_format(region.spatial)
    return is_layer or region.frame is not None


def writes(planned: ModulePlan) -> dict[str, int | None]:
    """The packages of regions that write in the format of one of the module's results, with its place; or contiguous
    images for the only layer that takes them, with None.

    They are those that make it, where no other region takes it; and those whose only value such a region's tiles read
    beside its convolution's result, which they do in the format of what they write.
    """
    if not planned.has_images:
        return {}
    regions, returned = planned.regions, planned.returned
    takers = {name: [each for each in regions if name in each.inputs] for name in planned.shapes}
    found: dict[str, int | None] = {}
    for region in reversed(regions):
        (name, *others) = region.results
        if region.plan is None or others:
            continue
        if name in returned and not takers[name]:
            found[region.plan.spec.name] = returned.index(name)
        elif name not in returned and len(takers[name]) == 1:
            (taker,) = takers[name]
            if takes_contiguous(taker):
                found[region.plan.spec.name] = None
                continue
            source, *further = taker.inputs
            made = [each for each in further if each not in planned.spec.inputs]
            if source != name and made == [name] and taker.plan and _is_tiled(taker) and taker.plan.spec.name in found:
                found[region.plan.spec.name] = found[taker.plan.spec.name]
    return found


def shared(planned: ModulePlan) -> dict[str, str]:
    """Inputs that several regions take in channels_last, with the variable of the copy that these share."""
    if not planned.spatial:
        return {}
    images = [name for name in planned.spec.inputs if _is_image(planned.shapes[name], planned.spatial)]
    counts = {name: sum(takes_last(region, name) for region in planned.regions) for name in images}
    return {name: f"_{name}" for name, count in counts.items() if count > 1}


def takes_last(region: PlannedRegion, name: str) -> bool:
    """Whether a region takes an input in channels_last alone: in front of a convolution, and all around a product."""
    first = region.steps[0]
    if not first.anchor:
        return False
    return name in region.inputs if not first.spatial else name == next(iter(region.inputs))


def _is_image(shape: Shape, spatial: int) -> bool:
    return len(shape) == spatial + 2 and 1 not in shape


def _is_tiled(region: PlannedRegion) -> bool:
    return region.plan is not None and all(variant.has_contiguous_layout for variant in region.plan.variants)

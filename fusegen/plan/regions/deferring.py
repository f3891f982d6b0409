"""Moves what is behind a layer into the region that takes the result, where that spares a pass over memory.

silu(gate(x)) * up(x) has a region for each layer. The kernel behind `gate` would read the product and write its silu,
which the kernel behind `up` reads. So that one reads the product, and computes the silu itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fusegen.ops.step import Step
from fusegen.plan.regions.images import Images
from fusegen.plan.regions.region import Region, Shape, hides_source


def deferred(
    regions: Sequence[Region], returned: Sequence[str], images: Images, claim: Callable[[str], str]
) -> tuple[Region, ...]:
    """The regions, with the pointwise tails of layers moved to the regions that take their results. returned: the names
    of the values that the module returns. images: the dimensions of values. claim: makes a name unique."""
    found = list(regions)
    for index in range(len(found)):
        taker = _taker(found, index, returned)
        if taker is not None:
            found[index], found[taker] = _moved(found[index], found[taker], images, claim)
    return tuple(found)


def _taker(regions: Sequence[Region], index: int, returned: Sequence[str]) -> int | None:
    """The only region that takes what one makes, if the tail of this one can be moved there."""
    region = regions[index]
    (layer, *tail), (result, *others) = region.steps, region.results
    if layer.op != "linear" or not tail or others or result in returned or not all(step.is_pointwise for step in tail):
        return None
    takers = [other for other, each in enumerate(regions) if result in each.inputs]
    if len(takers) != 1:
        return None
    # What a layer multiplies, or another step divides, has to be in memory.
    taker = regions[takers[0]]
    if taker.is_called:
        return None
    if region.is_broadcast != taker.is_broadcast:  # for each row of that it would be computed anew
        return None
    fits = next(iter(taker.inputs)) != result or not hides_source(taker.steps)
    return takers[0] if fits else None


def _moved(region: Region, taker: Region, images: Images, claim: Callable[[str], str]) -> tuple[Region, Region]:
    """Both regions, with the first one's tail in front of the step of the second that takes its result."""
    (_, *tail), (result,) = region.steps, region.results
    product = claim(f"{region.name}_product")
    if next(iter(taker.inputs)) == result:
        return _moved_to_begin(region, taker, images, product)
    at = next(index for index, step in enumerate(taker.steps) if getattr(step, "input", None) == result)
    before, behind = list(taker.steps[:at]), [_with_value(step, result) for step in taker.steps[at:]]
    running = next(iter(taker.inputs))
    if before:
        named = before[-1].running_name
        running = named or claim(f"{taker.name}_running")
        if named is None:
            before[-1] = before[-1].model_copy(update={"save": running})
    if behind[0].from_ is None:
        behind[0] = behind[0].model_copy(update={"from_": running})
    tail[0] = tail[0].model_copy(update={"from_": product})
    tail[-1] = tail[-1].model_copy(update={"save": result})
    whole = replace(
        taker,
        steps=(*before, *tail, *behind),
        places=(*taker.places[:at], *region.places[1:], *taker.places[at:]),
        inputs=_with_product(region, taker, images, product),
    )
    return _alone(region, taker, product), whole


def _moved_to_begin(region: Region, taker: Region, images: Images, product: str) -> tuple[Region, Region]:
    """The same where the second region begins with that result."""
    (_, *tail), (result,) = region.steps, region.results
    behind = [_with_value(step, result) for step in taker.steps]
    again = any(result in (getattr(step, "value", None), step.from_) for step in behind)
    tail[-1] = tail[-1].model_copy(update={"save": result if again else None})
    whole = replace(
        taker,
        steps=(*tail, *behind),
        places=(*region.places[1:], *taker.places),
        inputs=_with_product(region, taker, images, product),
    )
    return _alone(region, taker, product), whole


def _with_product(region: Region, taker: Region, images: Images, product: str) -> dict[str, Shape]:
    """What the second region takes, with the product of the first one's layer in place of its result."""
    shape = images.behind(region.steps[:1], next(iter(region.inputs.values())), region.spatial)
    (result,) = region.results
    inputs = {product if name == result else name: each for name, each in taker.inputs.items()}
    source = next(iter(inputs.values()))
    return {
        name: images.broadcast(shape, source, taker.spatial) if name == product else each
        for name, each in inputs.items()
    }


def _alone(region: Region, taker: Region, product: str) -> Region:
    """The first region's layer."""
    layer = region.steps[0].model_copy(update={"save": None})
    return replace(region, steps=(layer,), places=region.places[:1], results=(product,), tail_in=taker.name)


def _with_value(step: Step, name: str) -> Step:
    """The step with a value of its own region in place of an input of that name."""
    return step.model_copy(update={"input": None, "value": name}) if getattr(step, "input", None) == name else step

"""What a region of a chain is, and whether a chain is one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fusegen.chain.images import spatial_in_front, spatial_of_values
from fusegen.chain.parts import why_not_divided
from fusegen.chain.trailing import wanted_dimensions
from fusegen.ir.axes import Dim
from fusegen.ir.multiples import times
from fusegen.ops.convolution import Convolving
from fusegen.ops.step import Step
from fusegen.plan.regions.boundaries import (
    Width,
    channels_behind_step,
    is_row_boundary,
    is_width_boundary,
    operand_of,
    operand_width,
    row_width,
    width_of,
    widths,
)
from fusegen.plan.regions.rows_of_images import RowFrame, RowSteps, row_steps

Shape = tuple[Dim, ...]
"""In a chain that is refused, a size that nobody can tell is None."""


@dataclass(frozen=True)
class Region:
    """Steps of a chain that become one chain of their own.

    name: of its anchor, or of another layer in it. places: the index of each of its steps in the spec. inputs: the
    values that it takes, by their names in the module's forward; the first one is its running value. results: the same
    of those that it makes. channels: of its running value at its begin, and at its end. tail_in: the region
    that computes what the spec has behind its layer, if another does. rows: those of the results that have one channel,
    behind a reduction. is_broadcast: whether it has other rows than the module's first input. spatial: how many
    dimensions of positions its running value has at its begin. in_channels_last: whether its images are in any case.
    frame: where kernels see these images as rows of their last dimensions, which.
    """

    name: str
    places: tuple[int, ...]
    steps: tuple[Step, ...]
    inputs: dict[str, Shape]
    results: tuple[str, ...]
    channels: tuple[Dim, Dim]
    tail_in: str = ""
    rows: frozenset[str] = frozenset()
    is_broadcast: bool = False
    spatial: int = 0
    in_channels_last: bool = False
    frame: RowFrame | None = None

    def width(self, result: str) -> Dim:
        """The channels of a result."""
        return 1 if result in self.rows else self.channels[1]

    @property
    def is_called(self) -> bool:
        """Whether PyTorch calls its step, which no kernel has."""
        first = self.steps[0]
        is_called = first.is_called(self.spatial) or (first.stores_windows(self.spatial) and not self.in_channels_last)
        return self.frame is None and is_called

    @property
    def why_called(self) -> str:
        """Why PyTorch calls its step."""
        step = self.steps[0]
        if step.stores_windows(self.spatial):
            return "kernels pool behind a convolution alone, where images are in channels_last"
        return f"kernels have no {step.op}{' over positions' if step.has_kernels else ''}"

    @property
    def is_layer(self) -> bool:
        """Whether it is a layer alone, with nothing for kernels to do behind it. They add a convolution's bias."""
        first = self.steps[0]
        is_layer = self.is_called or first.op == "linear" or (isinstance(first, Convolving) and not first.bias)
        return len(self.steps) == 1 and is_layer

    @property
    def widths(self) -> list[Dim]:
        """The channels of the running value in front of each step."""
        found = [self.channels[0]]
        for step in self.steps[:-1]:
            width = channels_behind_step(step, found[-1])
            if width is None:  # an anchor, in front of all that divides the channels
                width = times(math.prod(each.number_of_parts for each in self.steps), self.channels[1])
            found.append(width)
        return found


def is_single(spec: Any, cut: bool = True) -> bool:
    """Whether all steps are one chain over the first input, as far as they can be read.

    spec: may be a PartialSpec. cut: as of begins_region(). Values of images do not end it.
    """
    spatial, steps = spatial_of_values(spec), spec.chain
    in_front, rows = spatial_in_front(spec), row_steps(spec)
    if any(rows):  # whose kernels see another view than the module's
        return False
    cut = cut and not (steps and steps[0] is not None and steps[0].in_batches)
    (width, behind), source = widths(spec, spatial), next(iter(spec.inputs), "")
    shapes = {name: shape or () for name, shape in spec.inputs.items()}
    first = shapes.get(source, ())
    known = {name: width_of(each, spatial) if spatial else row_width(each, first) for name, each in shapes.items()}
    view: Width = width_of(first, spatial) if shapes else None
    for index, step in enumerate(steps):
        if step is None:
            continue
        now, operand = Running(source, steps[:index], view, in_front, rows), operand_width(step, known)
        operand = 1 if spatial and view != 1 else operand
        if begins_region(index, now, width[index], operand, spec, cut):
            return False
        view = channels_behind_step(step, view)
        known.update((name, behind[index]) for name in step.saved)
    return True


@dataclass(frozen=True)
class Running:
    """A region in front of a step: what it begins with, its steps and its channels there. spatial: how many dimensions
    of positions there are in front of each step of the spec. rows: of each step those that see the same rows of images.
    """

    source: str
    steps: Sequence[Step | None]
    view: Width
    spatial: Sequence[int]
    rows: Sequence[RowSteps | None]

    def positions(self, index: int) -> int:
        """How many dimensions of positions kernels see in front of a step."""
        return 0 if self.rows[index] else self.spatial[index]


def begins_region(index: int, now: Running, width: Width, operand: Width, spec: Any, cut: bool = True) -> bool:
    """Whether a step of the chain begins a region, and is not in the one in front of it.

    width: the channels of the value in front of the step. operand: those of what it takes besides. cut: whether values
    of one channel and parts can end a region.
    """
    step = spec.chain[index]
    inside = {name for each in now.steps if each is not None for name in each.saved}
    if not hides_source(now.steps):
        inside.add(now.source)
    before = now.steps[-1] if now.steps else None
    spatial = now.positions(index)
    behind_call = before is not None and before.is_called(now.positions(index - 1))
    behind_call |= before is not None and before.ends_region(now.positions(index - 1))
    alone = step.anchor or step.is_called(spatial) or behind_call or now.rows[index] is not now.rows[index - 1]
    if (alone and now.steps) or (step.from_ is not None and step.from_ not in inside):
        return True
    groups = {each.groups_of_samples(spatial) for each in (*now.steps, step) if each is not None}
    if len(groups - {None}) > 1:  # kernels know one number
        return True
    if not has_one_view((*now.steps, step), spec) or _is_alone(now.steps, index, spec):
        return True
    if step.stores_windows(spatial) and now.steps and not _ends_with_pool(now.steps, index, spec):
        return True
    divided = step.divides and why_not_divided([*now.steps, step], len(now.steps)) is not None
    of_one = not spatial and is_row_boundary(step, width, now.view)
    # The value is one of rows in a region that has reduced the channels to one.
    of_one |= step.ends_region(spatial) and width == 1 and any(each and each.reduces_channels for each in now.steps)
    return cut and (divided or of_one or is_width_boundary(step, width, now.view, operand))


def has_one_view(steps: Iterable[Step | None], spec: Any) -> bool:
    """Whether as many trailing dimensions can be the channels of all these steps."""
    wanted = {wanted_dimensions(step, spec) for step in steps if step is not None}
    return len(wanted - {None}) < 2


def _is_alone(steps: Sequence[Step | None], index: int, spec: Any) -> bool:
    """Whether what a step makes of each row has to be a region's only result, because it is not the module's last, and
    these steps of the region have made another one. Or they have made such a result, and the step is from what was in
    front of that."""
    if spec.outputs is None:  # which has one result
        return False
    step = spec.chain[index]
    saved: set[str] = set()
    dropped: set[str] | None = None
    for each in steps:
        if each is not None:
            dropped = set() if each.drops_channels and dropped is None else dropped
            (saved if dropped is None else dropped).update(each.saved)
    if dropped is not None:
        return step.from_ is not None and step.from_ not in dropped
    later = [each for each in spec.chain[index + 1 :] if each is not None]
    behind = {name for each in (step, *later) for name in each.saved}
    if all(each.from_ is None or each.from_ in behind for each in later):  # the last value is a result beside others
        return False
    return step.drops_channels and not saved.isdisjoint(_taken(later, spec))


def _ends_with_pool(steps: Sequence[Step | None], index: int, spec: Any) -> bool:
    """Whether a region of these steps can store its value by windows alone. A convolution has to be in front, for the
    sake of channels_last, nothing else may be returned or taken elsewhere, and ops over ranks know no windows."""
    if not is_behind_convolution(index, spec) or any(getattr(each, "sync", False) for each in steps):
        return False
    taken = _taken([each for each in spec.chain[index:] if each is not None], spec)
    return taken.isdisjoint(name for each in steps if each is not None for name in each.saved)


def _taken(later: Sequence[Step], spec: Any) -> set[str | None]:
    """The names of values that the module returns, or that some of its steps take."""
    taken = {*(spec.outputs or ()), *(each.from_ for each in later), *map(operand_of, later)}
    return taken | {name for each in later for name in each.further_values}


def is_behind_convolution(index: int, spec: Any) -> bool:
    """Whether values in front of a step have been through a convolution."""
    return any(each is not None and each.anchor and each.spatial for each in spec.chain[:index])


def hides_source(steps: Sequence[Step | None]) -> bool:
    """Whether nothing behind some steps of a region can take what the region begins with: it is the operand of a
    product, or has other channels."""
    return any(step is not None and (step.divides or (step.anchor and not index)) for index, step in enumerate(steps))


def channels_behind(steps: Iterable[Step], channels: Dim | None) -> Dim | None:
    """The channels of the running value behind some steps; None where the spec does not say them."""
    for step in steps:
        channels = channels_behind_step(step, channels)
    return channels

"""What a region of a chain is, and whether a chain is one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fusegen.chain.images import spatial_of
from fusegen.ir.axes import Dim
from fusegen.ir.multiples import part_of
from fusegen.ops.step import Step

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Region:
    """Steps of a chain that become one chain of their own.

    name: of its anchor, or of another layer in it. places: the index of each of its steps in the spec. inputs: the
    values that it takes, by their names in the module's forward; the first one is its running value. results: the same
    of those that it makes. channels: of its running value at its begin, and at its end. tail_in: the region
    that computes what the spec has behind its layer, if another does.
    """

    name: str
    places: tuple[int, ...]
    steps: tuple[Step, ...]
    inputs: dict[str, Shape]
    results: tuple[str, ...]
    channels: tuple[Dim, Dim]
    tail_in: str = ""

    @property
    def is_layer(self) -> bool:
        """Whether it is a layer alone, with nothing for kernels to do behind it."""
        return len(self.steps) == 1 and self.steps[0].op == "linear"

    @property
    def widths(self) -> list[Dim | None]:
        """The channels of the running value in front of each step."""
        found: list[Dim | None] = [self.channels[0]]
        for step in self.steps[:-1]:
            found.append(_channels_behind(step, found[-1]))
        return found


def is_single(spec: Any) -> bool:
    """Whether all steps are one chain over the first input, as far as they can be read. spec: may be a PartialSpec."""
    if spatial_of(spec):
        return True  # one region is all that there can be, and its steps say why
    saved = {next(iter(spec.inputs), "")}
    for index, step in enumerate(spec.chain):
        if step is None:
            continue
        if (step.anchor and index) or (step.from_ is not None and step.from_ not in saved):
            return False
        if index == 0 and hides_source(step):
            saved = set()
        saved |= set(step.saved)
    return True


def hides_source(first: Step) -> bool:
    """Whether nothing behind the first step of a region can take what the region begins with: it is the operand of a
    product, or has other channels."""
    return first.anchor or first.divides


def channels_behind(steps: Iterable[Step], channels: Dim | None) -> Dim | None:
    """Of the running value; None where nobody can tell."""
    for step in steps:
        channels = _channels_behind(step, channels)
    return channels


def _channels_behind(step: Step, channels: Dim | None) -> Dim | None:
    if step.anchor:
        return getattr(step, "out_features", None)
    return part_of(channels, step.number_of_parts) if step.divides and channels is not None else channels

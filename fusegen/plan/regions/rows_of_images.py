"""Where kernels see contiguous images [batch, channels, *positions] as rows of their last dimensions.

They do so in regions of steps over these dimensions, such as a layer norm over the width, and of what is element-wise
beside these steps. To kernels such a region is a chain of rows as any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fusegen.chain.images import spatial_in_front
from fusegen.chain.symbols import shape_of
from fusegen.chain.trailing import shape_of_norm, wanted_dimensions
from fusegen.ir.axes import Dim


@dataclass(frozen=True)
class RowFrame:
    """How the kernels of a region see images: as [rows, *features]. rows: the symbol of their number. features: the
    sizes of the last dimensions."""

    rows: str
    features: tuple[Dim, ...]

    @property
    def shape(self) -> tuple[Dim, ...]:
        return (self.rows, *self.features)


@dataclass(eq=False)
class RowSteps:
    """Neighbours in a chain whose kernels see rows of the last dimensions of images.

    count: how many dimensions these are. features: their sizes, as a norm or a parameter says them; None where none
    does. saved: the names of values. is_reduced: whether a step has left one element of each row. is_ended: whether it
    has dropped that dimension, so that what is behind has fewer.
    """

    count: int
    features: tuple[Dim, ...] | None = None
    saved: set[str] = field(default_factory=set)
    is_reduced: bool = False
    is_ended: bool = False

    def add(self, step: Any, spatial: int, spec: Any) -> bool:
        """Adds a step of images with so many dimensions of positions. Returns whether it fits here."""
        over_last = step.is_over_last(spatial)
        sizes = (shape_of_norm(step, spec) or ()) if over_last else _of_parameter(step, spec)
        taken = {step.from_, step.taken_value} - {None}
        if over_last:
            fits = wanted_dimensions(step, spec) == self.count
        else:
            fits = step.is_elementwise and not any(getattr(step, key, None) for key in ("input", "mask"))
        if self.is_reduced:  # to what another operand would be larger than
            fits &= not over_last and not taken and {*(sizes or ())} <= {1}
        if self.is_ended or not fits or sizes is None or not taken <= self.saved:
            return False
        if not self._agrees(sizes, broadcast=not over_last):
            return False
        if len(sizes) == self.count and (over_last or 1 not in sizes):
            self.features = sizes
        self.saved.update(step.saved)
        self.is_reduced |= over_last and hasattr(step, "keepdim")
        self.is_ended = not getattr(step, "keepdim", True)
        return True

    def _agrees(self, sizes: tuple[Dim, ...], *, broadcast: bool) -> bool:
        """Whether a weight of these sizes lies along the features."""
        if not sizes or self.features is None or not broadcast:
            return len(sizes) in (0, self.count) and (not sizes or self.features in (None, sizes))
        pairs = zip(reversed(sizes), reversed(self.features), strict=False)
        return len(sizes) <= self.count and all(size in (1, own) for size, own in pairs)


def _of_parameter(step: Any, spec: Any) -> tuple[Dim, ...] | None:
    """The sizes of a step's parameter; None where it is along the channels, or an earlier step says its shape."""
    if getattr(step, "parameter", None) is None:
        return ()
    return None if getattr(step, "is_by_channel", False) else shape_of(spec, step.shape)


def row_steps(spec: Any) -> list[RowSteps | None]:
    """Of each step those with which kernels see it in rows of images; None where they do not. spec: a SpecModel or
    PartialSpec."""
    chain, spatial = spec.chain, spatial_in_front(spec)
    found: list[RowSteps | None] = []
    for index, (step, count) in enumerate(zip(chain, spatial, strict=True)):
        now = found[-1] if found else None
        if step is None or not count:
            now = None
        elif now is None or not now.add(step, count, spec):
            now = _begun(step, count, spec)
            if now is not None:
                first = _in_front(chain, spatial, found)
                found[first:] = [now] * (index - first)
        found.append(now)
    return found


def _begun(step: Any, spatial: int, spec: Any) -> RowSteps | None:
    dimensions = wanted_dimensions(step, spec) if step.is_over_last(spatial) else None
    if dimensions is None or dimensions > spatial + 1:
        return None
    made = RowSteps(dimensions)
    made.add(step.model_copy(update={"from_": None}), spatial, spec)
    return made


def _in_front(chain: Any, spatial: Any, found: list[RowSteps | None]) -> int:
    """The first step of a region that has only pointwise steps in front of the next one, whose index is that of the end
    of `found`; that index, where there are none."""
    end = first = len(found)
    if chain[end].from_ is not None:
        return end
    while first and found[first - 1] is None and _is_free(chain[first - 1]) and spatial[first - 1] == spatial[end]:
        first -= 1
    before, count = (chain[first - 1], spatial[first - 1]) if first else (None, 0)
    alone = not first or (before is not None and (before.is_called(count) or before.ends_region(count)))
    return first if alone else end


def _is_free(step: Any) -> bool:
    return step is not None and step.is_pointwise and not step.saved

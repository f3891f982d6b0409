"""The dimensions of values that regions take from each other.

They are [*rows, channels], or [batch, channels, *positions] where the running value has positions. Convolutions and
layers that PyTorch calls make other sizes. These have symbols, too: two that planning assumes to be of one size have
one symbol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import ne

from fusegen.chain import shape as chain_shape
from fusegen.chain.images import spatial_in_front, spatial_of_values
from fusegen.chain.shape import Role, certain
from fusegen.ir.axes import Dim
from fusegen.ir.multiples import factors
from fusegen.ops.step import Step
from fusegen.plan.regions.region import Shape, channels_behind
from fusegen.plan.regions.rows_of_images import RowFrame, RowSteps, row_steps
from fusegen.spec.model import SpecModel


class Images:
    """spatial: how many dimensions of positions the first input has. in_front: how many the running value has in front
    of each step. dims: the symbols of sizes with those that planning assumes, the spec's own and further ones. made_by:
    the step that makes the size of each further one. shapes: of the inputs and of the values that are known so far."""

    def __init__(self, spec: SpecModel, claim: Callable[[str], str], shapes: Mapping[str, Shape]) -> None:
        self.spec, self._claim, self._shapes = spec, claim, shapes
        self.spatial = spatial_of_values(spec)
        self.in_front = spatial_in_front(spec)
        self.rows = row_steps(spec)
        self.dims = dict(spec.dims)
        self.made_by: dict[str, Step] = {}
        self._symbols: dict[tuple[Role, int, int], str] = {}
        for shape in spec.inputs.values() if self.spatial else ():
            positions = shape[-self.spatial :] if len(shape) > self.spatial else ()  # behind the batch, of a target
            for index, dim in enumerate(positions):
                if isinstance(dim, str) and dim in spec.dims and dim not in self._symbols.values():
                    self._symbols.setdefault((Role.POSITION, index, spec.dims[dim]), dim)
        for width in (step.result_width for step in spec.chain):
            if isinstance(width, str) and width in spec.dims:
                self._symbols.setdefault((Role.CHANNEL, 0, spec.dims[width]), width)

    def channels(self, shape: Shape, spatial: int) -> Dim | None:
        """None of a shape without them, which no region can begin with."""
        at = 1 if spatial else -1
        return shape[at] if len(shape) > bool(self.spatial) else None

    def of_one_channel(self, shape: Shape, spatial: int) -> Shape:
        return (*shape[:1], 1, *shape[2:]) if spatial else (*shape[:-1], 1)

    def behind(self, steps: Iterable[Step], shape: Shape, spatial: int) -> Shape:
        """The shape of a value, which steps have made of one of this shape and so many dimensions of positions; the
        same where nobody can tell, which its own chain refuses."""
        steps = list(steps)
        if len(shape) < (spatial + 2 if spatial else 1):
            return shape
        channels = channels_behind(steps, self.channels(shape, spatial))
        found = chain_shape.Shape.of(shape, spatial).with_channels(channels)
        for step in steps:
            before = {*self.dims}
            found = step.shape_behind(found, self) or found
            if step.result_width is not None:
                found = found.with_channels(step.result_width)
            self.made_by |= dict.fromkeys(self.dims.keys() - before, step)
        return tuple(map(certain, found.sizes()))

    def frame(self, steps: RowSteps | None, shape: Shape) -> RowFrame | None:
        """As which rows kernels see images of a shape; None where they do not, or the steps are over other sizes."""
        if steps is None or len(shape) <= steps.count:
            return None
        rows, last = shape[: -steps.count], shape[-steps.count :]
        features = steps.features or last
        if any(map(ne, map(self.number, features), map(self.number, last))):
            return None
        symbol = self._claim("rows")
        self.dims[symbol] = math.prod(self.number(dim) or 1 for dim in rows)
        return RowFrame(symbol, features)

    def has_one_position(self, shape: Shape, spatial: int) -> bool:
        """Whether a value is [batch, channels, 1, 1], as behind a pooling over all positions."""
        return len(shape) == spatial + 2 and all(map(self._is_one, shape[2:]))

    def broadcast(self, shape: Shape, source: Shape, spatial: int) -> Shape:
        """The shape of what a region takes besides its source: positions that are one, and that the source has more of,
        are no symbols."""
        if not spatial or len(shape) != len(source):
            return shape
        pairs = zip(shape[2:], source[2:], strict=True)
        return (*shape[:2], *(1 if self._is_one(dim) and dim != own else dim for dim, own in pairs))

    def _is_one(self, dim: Dim) -> bool:
        return dim == 1 or (dim not in self.spec.dims and self.dims.get(str(dim)) == 1)

    # What shapes behind steps ask for

    def number(self, size: Dim) -> int | None:
        """What planning assumes for a size, or for an argument of type int."""
        factor, name = factors(size)
        if name is None:
            return factor
        known = self.dims.get(name)
        return getattr(self.spec.arguments.get(name), "typical", None) if known is None else factor * known

    def shape(self, name: str) -> Sequence[Dim | None]:
        return self._shapes.get(name, ())

    def named(self, size: int, role: Role, index: int, like: Dim | None) -> Dim:
        """A symbol of the size of a dimension of a result."""
        key = role, index, size
        if role is Role.CHANNEL and like is not None and self.number(like) == size:
            return like
        if key not in self._symbols:
            of_role = (dim for (kind, at, _), dim in self._symbols.items() if (kind, at) == (role, index))
            name = self._claim(str(next(of_role, factors(like)[1] if like is not None else None) or "size"))
            self._symbols[key] = name
            self.dims[name] = size
        return self._symbols[key]

"""The dimensions of values that regions take from each other.

They are [*rows, channels]; of a chain with convolutions [batch, channels, *positions], and each convolution makes
other positions. Those that it makes have symbols, too: two that planning assumes to be of one size have one symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fusegen.chain.images import spatial_of_values
from fusegen.chain.shape import certain
from fusegen.ir.axes import Dim
from fusegen.ops.step import Step
from fusegen.plan.regions.region import Shape, channels_behind
from fusegen.spec.model import SpecModel


class Images:
    """spatial: how many dimensions of positions values have; 0 where there is no convolution. dims: the symbols of
    sizes with those that planning assumes, the spec's own and those of further positions."""

    def __init__(self, spec: SpecModel, claim: Callable[[str], str]) -> None:
        self.spec, self._claim = spec, claim
        self.spatial = spatial_of_values(spec)
        self.dims = dict(spec.dims)
        self._symbols: dict[tuple[int, int], str] = {}
        for shape in spec.inputs.values() if self.spatial else ():
            positions = shape[-self.spatial :] if len(shape) > self.spatial else ()  # behind the batch, of a target
            for index, dim in enumerate(positions):
                if isinstance(dim, str) and dim in spec.dims and dim not in self._symbols.values():
                    self._symbols.setdefault((index, spec.dims[dim]), dim)

    def rows(self, shape: Shape) -> Shape:
        """The dimensions of a shape that are rows: of images the batch, else all but the last."""
        return shape[:1] if self.spatial else shape[:-1]

    def channels(self, shape: Shape) -> Dim | None:
        """None of a shape without them, which no region can begin with."""
        at = 1 if self.spatial else -1
        return shape[at] if len(shape) > max(at, 0) else None

    def of_one_channel(self, shape: Shape) -> Shape:
        return (*shape[:1], 1, *shape[2:]) if self.spatial else (*shape[:-1], 1)

    def behind(self, steps: Iterable[Step], shape: Shape) -> Shape:
        """The shape of a value, which steps have made of one of this shape."""
        steps = list(steps)
        channels = certain(channels_behind(steps, self.channels(shape)))
        if not self.spatial:
            return (*shape[:-1], channels)
        positions = shape[2:]
        for step in steps:
            positions = self._positions(step, positions) if step.spatial else positions
        return (*shape[:1], channels, *positions)

    def has_one_position(self, shape: Shape) -> bool:
        """Whether a value is [batch, channels, 1, 1], as behind a pooling over all positions."""
        return len(shape) == self.spatial + 2 and all(map(self._is_one, shape[2:]))

    def broadcast(self, shape: Shape, source: Shape) -> Shape:
        """The shape of what a region takes besides its source: positions that are one, and that the source has more of,
        are no symbols."""
        if not self.spatial or len(shape) != len(source):
            return shape
        pairs = zip(shape[2:], source[2:], strict=True)
        return (*shape[:2], *(1 if self._is_one(dim) and dim != own else dim for dim, own in pairs))

    def _is_one(self, dim: Dim) -> bool:
        return dim == 1 or (dim not in self.spec.dims and self.dims.get(str(dim)) == 1)

    def _positions(self, step: Step, positions: Sequence[Dim]) -> tuple[Dim, ...]:
        """Behind a convolution; as in front of it where nobody can tell, which its own chain refuses."""
        given = [dim if isinstance(dim, int) else self.dims.get(dim) for dim in positions]
        known = [size for size in given if size is not None]
        sizes = step.positions_behind(known, self._number) if len(known) == len(given) else None
        if sizes is None or min(sizes) < 1:
            return tuple(positions)
        return tuple(self._symbol(index, size, positions[index]) for index, size in enumerate(sizes))

    def _symbol(self, index: int, size: int, like: Dim) -> str:
        if (index, size) not in self._symbols:
            name = self._claim(str(next((dim for (at, _), dim in self._symbols.items() if at == index), like)))
            self._symbols[index, size] = name
            self.dims[name] = size
        return self._symbols[index, size]

    def _number(self, entry: int | str) -> int | None:
        """An entry of an option of a convolution."""
        return entry if isinstance(entry, int) else getattr(self.spec.arguments.get(entry), "typical", None)

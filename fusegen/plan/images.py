"""The dimensions of values that regions take from each other.

They are [*rows, channels]; of a chain with convolutions [batch, channels, *positions], and each convolution makes
other positions. Those that it makes have symbols, too: two that planning assumes to be of one size have one symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fusegen.chain.convolution import positions_behind
from fusegen.chain.images import spatial_of_values
from fusegen.chain.shape import certain
from fusegen.ir.axes import Dim
from fusegen.ops.step import Step
from fusegen.plan.region import Shape, channels_behind
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

    def _positions(self, step: Step, positions: Sequence[Dim]) -> tuple[Dim, ...]:
        """Behind a convolution; as in front of it where nobody can tell, which its own chain refuses."""
        given = [dim if isinstance(dim, int) else self.dims.get(dim) for dim in positions]
        known = [size for size in given if size is not None]
        sizes = positions_behind(step, known, self._number) if len(known) == len(given) else None
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

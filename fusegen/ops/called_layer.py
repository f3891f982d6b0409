"""Layers over positions that have no parameters: PyTorch calls them, each between two regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.shape import Role
from fusegen.ir.axes import Dim
from fusegen.ops import window
from fusegen.spec.base import meaning
from fusegen.spec.names import AttributeName


class CalledLayer(window.OfWindows):
    """What all of them have in common.

    layer: the class in torch.nn, but for the number of dimensions. options: the keys that its constructor takes, in
    order, with PyTorch's defaults; None where it has none. words: those of them whose values are words, not names of
    arguments. numbers: those that may be an argument of type float.
    """

    op: str
    name: Annotated[AttributeName, meaning("the attribute of the module that holds the layer", "pool")]
    has_kernels = False
    matrix_only = "never"
    module = "nn.MaxPool2d"
    layer: ClassVar[str] = ""
    options: ClassVar[dict[str, window.Option | None]] = {}
    words: ClassVar[tuple[str, ...]] = ()
    numbers: ClassVar[tuple[str, ...]] = ()

    def dimensions(self, chain: ChainBuilder) -> int:
        """How many dimensions of positions its options are for."""
        return self.spatial

    def check_call(self, chain: ChainBuilder) -> None:
        chain.own(self.name)
        known, dimensions = True, self.dimensions(chain)
        for key in self.options:
            value = getattr(self, key)
            if key in self.words:
                continue
            if isinstance(value, tuple) and len(value) != dimensions:
                message = f"{key} has {len(value)} entries, but there are {dimensions} dimensions of positions"
                chain.refuse("FG303", message, key)
                known = False
            types = ("int", "float") if key in self.numbers else ("int",)
            for entry in value if isinstance(value, tuple) else (value,):
                if isinstance(entry, str) and chain.symbols.argument(entry, key, types) is None:
                    known = False
        given = [chain.symbols.typical(size) for size in chain.shape.sizes(Role.POSITION) or (chain.channels,)]
        sizes = [size for size in given if size is not None]
        if known and len(sizes) == len(given):
            self.check_positions(chain, sizes)

    def check_positions(self, chain: ChainBuilder, given: Sequence[int]) -> None:
        """Refuses positions, or channels of rows, of these sizes where the layer has no result."""
        raise NotImplementedError

    def eager(self, x: str) -> str:
        return f"self.{self.name}({x})"

    def construct_over(self, channels: Dim, spatial: int) -> list[str]:
        given = []
        for key, default in self.options.items():
            value = getattr(self, key)
            written = f'"{value}"' if key in self.words else window.text(value)
            if default is None:
                given.append(written)
            elif value != default and value is not None:
                given.append(f"{key}={written}")
        return window.construction(self.name, self.submodule(spatial), ", ".join(given))

    def reset(self) -> list[str]:
        return []

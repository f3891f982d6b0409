"""Lines of a generated module that make a parameter of its own, and draw it anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fusegen.ir.axes import Dim
from fusegen.ops.scalars import Number
from fusegen.spec.names import Identifier

Init = Literal["randn", "rand", "ones", "zeros"] | Number | Identifier
_DRAWN = {"randn": "normal_", "rand": "uniform_", "ones": "ones_", "zeros": "zeros_"}


def made(name: str, shape: str | Sequence[Dim], init: str | float, learnt: bool = True) -> str:
    """The constructor's line. shape: a list, or the name of a shape argument. learnt: False for a buffer."""
    text = shape if isinstance(shape, str) else f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
    if init in _DRAWN:
        values = f"torch.{init}({text}, **_factory)"
    else:
        fill = init if isinstance(init, str) else repr(float(init))
        values = f"torch.full({text}, float({fill}), **_factory)"
    return f"self.{name} = nn.Parameter({values})" if learnt else f'self.register_buffer("{name}", {values})'


def drawn(name: str, init: str | float) -> str:
    """The line of reset_parameters()."""
    if init in _DRAWN:
        return f"nn.init.{_DRAWN[init]}(self.{name})"
    fill = f"self._fusegen_initial_{init}" if isinstance(init, str) else repr(float(init))
    return f"nn.init.constant_(self.{name}, {fill})"

"""A scalar field of a step: a number, or the name of a constructor argument."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fusegen.spec.base import Plain
from fusegen.spec.names import Identifier

Number = Annotated[float, Field(allow_inf_nan=False)]
Scalar = Number | Identifier
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), Plain("a number")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), Plain("a number")]


def scalar_text(value: float | str, owner: str = "self.") -> str:
    """The scalar as Python source: a literal, or the argument as an attribute of the module (or, owner "", a
    variable)."""
    return f"{owner}{value}" if isinstance(value, str) else repr(float(value))

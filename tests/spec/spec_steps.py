"""Step models for the tests of this room, so that they do not depend on the catalogue."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from fusegen.spec.arguments import Dimension, FiniteFloat, Shape
from fusegen.spec.base import SpecPart
from fusegen.spec.model import spec_model
from fusegen.spec.names import AttributeName, Identifier


class Linear(SpecPart):
    op: Literal["linear"]
    name: AttributeName
    out_features: Dimension
    bias: bool = True


class BatchNorm(SpecPart):
    op: Literal["batch_norm"]
    name: AttributeName
    eps: Annotated[FiniteFloat, Field(gt=0)] | Identifier = 1e-5
    momentum: FiniteFloat | Identifier | None = 0.1


class Silu(SpecPart):
    op: Literal["silu", "swish"]


class Gelu(SpecPart):
    op: Literal["gelu"]
    approximate: Literal["none", "tanh"] = "none"


class Add(SpecPart):
    op: Literal["add"]
    parameter: AttributeName
    shape: Identifier | Shape
    init: Literal["randn", "ones"] | FiniteFloat | Identifier = "randn"

    @field_validator("parameter")
    @classmethod
    def _no_weight(cls, value: str) -> str:
        if value == "weight":
            raise ValueError("a parameter may not be called 'weight' in these tests")
        return value


Spec = spec_model((Linear, BatchNorm, Silu, Gelu, Add))

"""Shapes of a spec, and the arguments of the module's constructor."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fusegen.spec.base import Given, Listing, PositiveInt, SpecPart, meaning
from fusegen.spec.names import Identifier, WidthName

MAX_RANK = 8

# A size that the generated code may rely on, or a symbol that stays dynamic.
Dimension = Identifier | PositiveInt
# The same, or a multiple of a symbol: of channels.
Width = WidthName | PositiveInt
InputShape = Annotated[Listing[Width], Field(max_length=MAX_RANK)]
Shape = Annotated[Listing[Dimension], Field(max_length=MAX_RANK)]
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
Keyword = Annotated[bool, meaning("whether the constructor takes it by its name alone", True)]


class DimArgument(SpecPart):
    """The size of the symbol of the same name."""

    type: Literal["dim"]
    keyword: Keyword = False


class IntArgument(SpecPart):
    """A whole number, such as a number of groups."""

    type: Literal["int"]
    typical: Annotated[int, meaning("what planning and benchmarks assume", 8)]
    default: Annotated[Given[int], meaning("the constructor's default; without it there is none", 8)] = None
    keyword: Keyword = False


class FloatArgument(SpecPart):
    """A number that the module keeps as an attribute, or that a parameter begins with."""

    type: Literal["float"]
    default: Annotated[Given[FiniteFloat], meaning("the constructor's default; without it there is none", 0.5)] = None
    keyword: Keyword = False


class ShapeArgument(SpecPart):
    """A shape that the original module takes as an argument."""

    type: Literal["shape"]
    is_: Shape = Field(alias="is", description="what it has to be, else ValueError", examples=[["hidden"]])
    default: Annotated[
        Given[Annotated[Listing[PositiveInt], Field(max_length=MAX_RANK)]],
        meaning("the constructor's default; without it there is none", [1]),
    ] = None
    keyword: Keyword = False


ARGUMENTS = (DimArgument, IntArgument, FloatArgument, ShapeArgument)
Argument = Annotated[DimArgument | IntArgument | FloatArgument | ShapeArgument, Field(discriminator="type")]

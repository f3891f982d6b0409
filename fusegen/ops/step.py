"""What every entry of the catalogue has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict

from fusegen.ir.extent import Dim
from fusegen.ir.graph import Node
from fusegen.spec.base import Given
from fusegen.spec.names import Identifier

if TYPE_CHECKING:
    from fusegen.ir.builder import ChainBuilder

WIDTH = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Dtypes:
    """What decides an eager op's result dtype, besides its running operand.

    parameter: the dtype of the module's own parameters. autocast: whether CUDA autocast is on. named: the dtypes of the
    inputs and of the values saved so far.
    """

    parameter: str
    autocast: bool
    named: Mapping[str, str]


class StepError(Exception):
    """A step that does not fit its chain. field: the key of the step it is about."""

    def __init__(self, code: str, message: str, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.field, self.hint = code, message, field, hint


class Step(BaseModel):
    """One entry of a spec's chain; each subclass is one op of the catalogue.

    owns: what the ops are given of the submodule `name`: they call `bn.weight` bn_weight, or so.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    owns: ClassVar[tuple[str, ...]] = ()

    save: Given[Identifier] = None

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        """Adds the op to the chain's graph and returns its result. Raises StepError."""
        raise NotImplementedError

    def eager(self, x: str) -> str:
        """The op in PyTorch, applied to the expression `x`, inside a method of the module."""
        raise NotImplementedError

    def construct(self, channels: Dim) -> list[str]:
        """Lines of the constructor that make what the op owns; `channels` is the width of the running value.

        `_factory` holds the constructor's device and dtype.
        """
        return []

    def reset(self) -> list[str]:
        """Lines of reset_parameters() that draw anew what the op owns, as `construct` drew it."""
        return []

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        """The dtype of PyTorch's result for an operand of dtype `running`."""
        return running


def promote(left: str, right: str) -> str:
    """torch.promote_types for two floating dtypes."""
    if left == right:
        return left
    if WIDTH[left] == WIDTH[right]:
        return "float32"
    return max(left, right, key=WIDTH.__getitem__)

"""The dtype of a value that others take."""

from __future__ import annotations

from typing import Annotated, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.ir.graph import Node
from fusegen.ops.step import Dtypes, Step
from fusegen.spec.base import meaning


class Cast(Step):
    """What comes behind it in the chain is computed in float32 all the same: a result is stored in the dtype. float64
    stays, in which the kernels are verified."""

    op: Literal["cast"]
    dtype: Annotated[Literal["float32", "bfloat16", "float16"], meaning("of the result", "bfloat16")]
    formula = "x in another dtype"
    matrix_only = "never"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        # A node of its own: a chain may have both x and this as results.
        return chain.graph.add("cast", x, name=f"{x.name}_cast")

    def eager(self, x: str) -> str:
        return f"{x}.to(torch.{self.dtype}) if {x}.dtype != torch.float64 else {x}"

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        return running if running == "float64" else self.dtype


STEPS = (Cast,)

"""How many bytes PyTorch moves for a step that it calls between regions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fusegen.ir.multiples import value_of
from fusegen.ops.dimensions import Flatten, Unsqueeze
from fusegen.ops.joining import Cat, Narrow
from fusegen.ops.norms import Norm
from fusegen.ops.pooling import AveragePooling, Pooling
from fusegen.ops.reductions import LogSoftmax, Max, Mean, Min, Softmax, Softmin, Sum
from fusegen.ops.step import WIDTH
from fusegen.ops.upsampling import STEPS as UPSAMPLING
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.regions.region import Region, Shape

_INDEX = 8


def called_bytes(planned: ModulePlan, region: Region, symbols: Mapping[str, int], dtype: str) -> tuple[int, int]:
    """The fewest bytes of a region's step, forward and backward: what it reads, once, and what it writes.

    symbols: all of the module, those of values between regions too. Statistics of norms, which are few, are left out.
    """
    step: Any = region.steps[0]
    if isinstance(step, Flatten | Unsqueeze):  # views
        return 0, 0

    def size(shape: Shape) -> int:
        return math.prod(value_of(dim, symbols) for dim in shape) * WIDTH[dtype]

    given = planned.shapes[next(iter(region.inputs))]
    operand, result = size(given), size(planned.shapes[region.results[0]])
    if isinstance(step, Cat):  # whose gradients are slices of that of the result, which kernels copy
        return 2 * result, 2 * result
    if isinstance(step, Narrow):  # a view, whose gradient is one of the whole with zeros in it
        return 0, operand + result
    if isinstance(step, Norm):
        weight = size(given[1:2]) if step.affine else 0
        return operand + result + 2 * weight, 2 * operand + result + 3 * weight
    if isinstance(step, Sum):  # whose gradient is a view of that of the result
        return operand + result, 0
    if isinstance(step, Max | Min) or (isinstance(step, Pooling) and "max" in step.op):
        indices = result // WIDTH[dtype] * _INDEX
        return operand + result + indices, operand + result + indices
    if isinstance(step, Softmax | Softmin | LogSoftmax):
        return operand + result, operand + 2 * result
    is_linear = isinstance(step, (Mean, AveragePooling, *UPSAMPLING)) or "avg" in step.op
    return operand + result, operand * (1 if is_linear else 2) + result

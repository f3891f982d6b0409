"""What the generated packages in this directory share: their ops, and the base of their modules.

It needs torch and nothing else.
"""

from .constants import beyond, far_from_one, not_numbers, refused, uncounted
from .convolution import UNBATCHED, Convolved, has_no_variance, misfit_convolution, result_shape
from .dimensions import Dimensions
from .fused_module import FusedModule, KernelUse, check_shape
from .losses import Loss
from .operators import Operator, Package
from .precisions import check_precision, choose_precision
from .stand_in import (
    HALF_TRACKED,
    NEGATIVE_MOMENTUM,
    NO_ROWS,
    OTHER_GROUPS,
    REFUSED,
    SOME_FROZEN,
    Eager,
    elsewhere,
    is_autocast,
    misfit,
    misfit_operand,
    misfit_statistics,
    misfit_weight,
    no_mode,
    obstacle,
    other_shape,
    tensor,
    unexpected,
)

__all__ = [
    "HALF_TRACKED",
    "NEGATIVE_MOMENTUM",
    "NO_ROWS",
    "OTHER_GROUPS",
    "REFUSED",
    "SOME_FROZEN",
    "UNBATCHED",
    "Convolved",
    "Dimensions",
    "Eager",
    "FusedModule",
    "KernelUse",
    "Loss",
    "Operator",
    "Package",
    "beyond",
    "check_precision",
    "check_shape",
    "choose_precision",
    "elsewhere",
    "far_from_one",
    "has_no_variance",
    "is_autocast",
    "misfit",
    "misfit_convolution",
    "misfit_operand",
    "misfit_statistics",
    "misfit_weight",
    "no_mode",
    "not_numbers",
    "obstacle",
    "other_shape",
    "refused",
    "result_shape",
    "tensor",
    "uncounted",
    "unexpected",
]

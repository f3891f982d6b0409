"""What the generated packages in this directory share: their ops, and the base of their modules.

It needs torch and nothing else.
"""

from .batches import EMPTY, OTHER_BATCH, Multiplied
from .composed_images import ComposedImages
from .composed_module import ComposedModule, Composition, region
from .constants import beyond, far_from_one, not_numbers, refused, uncounted
from .convolution import UNBATCHED, Convolved, misfit_convolution, result_shape
from .dimensions import Dimensions, spread
from .drawn_seed import draw_seed
from .dropout import DropPath, is_no_share, sample_rows, share
from .fused_module import FusedModule, KernelUse, check_shape
from .images import OTHER_POSITIONS, Multiplicand, Pictured, has_no_variance
from .losses import Loss
from .operators import Operator
from .package import Package
from .precisions import check_precision, choose_precision
from .ranks import RANKS_COMPILED, RANKS_PRECISION, RankOperator, Ranks, group_of
from .stand_in import (
    DROPS_FROZEN,
    HALF_TRACKED,
    NEGATIVE_MOMENTUM,
    NO_ROWS,
    OTHER_GROUPS,
    OTHER_SHAPE,
    REFUSED,
    SOME_FROZEN,
    UNEQUAL_PARTS,
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
from .trailing import Flattened, flat_parameter, widened

__all__ = [
    "DROPS_FROZEN",
    "EMPTY",
    "HALF_TRACKED",
    "NEGATIVE_MOMENTUM",
    "NO_ROWS",
    "OTHER_BATCH",
    "OTHER_GROUPS",
    "OTHER_POSITIONS",
    "OTHER_SHAPE",
    "RANKS_COMPILED",
    "RANKS_PRECISION",
    "REFUSED",
    "SOME_FROZEN",
    "UNBATCHED",
    "ComposedImages",
    "ComposedModule",
    "Composition",
    "UNEQUAL_PARTS",
    "Convolved",
    "Dimensions",
    "DropPath",
    "Eager",
    "Flattened",
    "FusedModule",
    "KernelUse",
    "Loss",
    "Multiplicand",
    "Multiplied",
    "Operator",
    "Package",
    "Pictured",
    "RankOperator",
    "Ranks",
    "beyond",
    "check_precision",
    "check_shape",
    "choose_precision",
    "draw_seed",
    "elsewhere",
    "far_from_one",
    "flat_parameter",
    "group_of",
    "has_no_variance",
    "is_autocast",
    "is_no_share",
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
    "region",
    "result_shape",
    "sample_rows",
    "share",
    "spread",
    "tensor",
    "uncounted",
    "unexpected",
    "widened",
]

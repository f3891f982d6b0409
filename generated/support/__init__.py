"""What the generated packages in this directory share: their ops, and the base of their modules.

It needs torch and nothing else. Of the modules here a directory has those that its packages use.
"""

from importlib import import_module

from .dimensions import Dimensions, other_shape_of, spread
from .drawn_seed import draw_seed
from .dropout import DropPath, is_no_share, sample_rows, share
from .dtype_modes import choose_mode
from .fused_module import FusedModule, KernelUse, check_shape
from .operators import Operator
from .package import Package
from .precisions import check_precision, choose_precision
from .stand_in import (
    DROPS_FROZEN,
    NO_ROWS,
    ONE_ROW,
    OTHER_GROUPS,
    OTHER_SHAPE,
    REFUSED,
    UNEQUAL_PARTS,
    WANTS_GRADIENT,
    Eager,
    elsewhere,
    is_autocast,
    misfit,
    misfit_operand,
    misfit_weight,
    obstacle,
    other_output,
    other_shape,
    tensor,
    unexpected,
)
from .trailing import Flattened, flat_parameter, widened

__all__ = [
    "DROPS_FROZEN",
    "NO_ROWS",
    "ONE_ROW",
    "OTHER_GROUPS",
    "OTHER_SHAPE",
    "REFUSED",
    "UNEQUAL_PARTS",
    "WANTS_GRADIENT",
    "Dimensions",
    "DropPath",
    "Eager",
    "Flattened",
    "FusedModule",
    "KernelUse",
    "Operator",
    "Package",
    "check_precision",
    "check_shape",
    "choose_mode",
    "choose_precision",
    "draw_seed",
    "elsewhere",
    "flat_parameter",
    "is_autocast",
    "is_no_share",
    "misfit",
    "misfit_operand",
    "misfit_weight",
    "obstacle",
    "other_output",
    "other_shape",
    "other_shape_of",
    "sample_rows",
    "share",
    "spread",
    "tensor",
    "unexpected",
    "widened",
]

# Modules that not all packages use, and what packages take of them: imported when one asks for it.
_OPTIONAL = {
    "batch_norms": ("counted", "is_one_row", "running_statistics"),
    "batches": ("EMPTY", "OTHER_BATCH", "Multiplied"),
    "constants": ("beyond", "far_from_one", "not_numbers", "refused", "uncounted"),
    "convolution": ("UNBATCHED", "Convolved", "misfit_convolution", "result_shape"),
    "image_regions": ("FusedImageRegions",),
    "images": (
        "OTHER_POSITIONS",
        "Multiplicand",
        "Pictured",
        "has_no_variance",
        "has_one_position",
        "row_count",
    ),
    "losses": ("Loss",),
    "losses_in_chunks": ("ChunkedLoss",),
    "ranks": ("RANKS_COMPILED", "RANKS_PRECISION", "RankOperator", "Ranks", "group_of"),
    "regions": ("FusedRegions", "RegionPackages", "region"),
    "windows": ("OTHER_WINDOWS", "windows_of"),
}


def __getattr__(name):
    for module, names in _OPTIONAL.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

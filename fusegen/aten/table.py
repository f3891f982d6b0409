"""What the operators of a trace are: one line of a table for each, by its name in aten.

A name stands for its overloads unless the table has one. An operator that changes its operand in place (`relu_`) is the
one without the underscore.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Function:
    """An op of one value. keys: its further arguments in aten's order, which are the op's keys, with their defaults.
    fixed: what arguments behind these may be, beside their defaults."""

    op: str
    keys: Mapping[str, float | str | None] = field(default_factory=dict)
    fixed: tuple[float, ...] = ()


FUNCTIONS = {
    **{op: Function(op) for op in ("relu", "relu6", "selu", "silu", "mish", "hardswish", "sigmoid", "hardsigmoid")},
    **{op: Function(op) for op in ("tanh", "abs", "neg", "exp", "log", "sqrt", "rsqrt", "reciprocal")},
    **{op: Function(op) for op in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh")},
    **{op: Function(op) for op in ("atanh", "log2", "log10", "ceil", "floor", "trunc", "sign")},
    "round": Function("round", fixed=(0,)),  # decimals
    **{op: Function(op) for op in ("erf", "erfc", "exp2", "expm1", "log1p")},
    "gelu": Function("gelu", {"approximate": "none"}),
    "log_sigmoid": Function("logsigmoid"),
    "leaky_relu": Function("leaky_relu", {"negative_slope": 0.01}),
    "elu": Function("elu", {"alpha": 1.0}),
    "celu": Function("celu", {"alpha": 1.0}),
    "softplus": Function("softplus", {"beta": 1.0, "threshold": 20.0}),
    "hardtanh": Function("hardtanh", {"min_val": -1.0, "max_val": 1.0}),
    "clamp": Function("clamp", {"min": None, "max": None}),
    "clamp_min": Function("clamp", {"min": None}),
    "clamp_max": Function("clamp", {"max": None}),
    "pow": Function("pow", {"exponent": None}),
    "threshold": Function("threshold", {"threshold": None, "value": None}),
    "hardshrink": Function("hardshrink", {"lambd": 0.5}),
    "softshrink": Function("softshrink", {"lambd": 0.5}),
}

# Of two operands. True: aten has them the other way round.
ARITHMETIC = {
    "add.Tensor": ("add", False),
    "add.Scalar": ("add", False),
    "sub.Tensor": ("sub", False),
    "sub.Scalar": ("sub", False),
    "rsub.Tensor": ("sub", True),
    "rsub.Scalar": ("sub", True),
    "mul.Tensor": ("mul", False),
    "mul.Scalar": ("mul", False),
    "div.Tensor": ("div", False),
    "div.Scalar": ("div", False),
    "minimum": ("minimum", False),
    "maximum": ("maximum", False),
    "logaddexp": ("logaddexp", False),
    "hypot": ("hypot", False),
    "atan2": ("atan2", False),
}

# Over one dimension, which is the first argument behind the value, or the second of `norm`: op, and whether the shape
# stays.
OVER_CHANNELS = {
    "_softmax": ("softmax", True),
    "_log_softmax": ("log_softmax", True),
    "sum.dim_IntList": ("sum", False),
    "mean.dim": ("mean", False),
    "logsumexp": ("logsumexp", False),
    "amax": ("amax", False),
    "amin": ("amin", False),
    "max.dim": ("max", False),
    "min.dim": ("min", False),
    "var.correction": ("var", False),
    "std.correction": ("std", False),
    "linalg_vector_norm": ("norm", False),
    "norm.ScalarOpt_dim": ("norm", False),
}

# The channels in equal parts: what the argument behind the value is, their number, the size of one or of each.
PARTS = {"chunk": "count", "tensor_split.sections": "count", "split.Tensor": "size", "split_with_sizes": "sizes"}

# The same elements in another shape, or not even that.
SAME_ELEMENTS = frozenset(
    """
    view reshape flatten unflatten unsqueeze squeeze view_as reshape_as _unsafe_view expand expand_as broadcast_to
    contiguous clone alias slice select
    """.split()
)
# Those of them that repeat a dimension of one element: such a value broadcasts wherever it is used.
EXPANSIONS = frozenset({"expand", "expand_as", "broadcast_to"})
# Those of them that are new tensors: what is changed in place then changes nothing else.
COPIES = frozenset({"clone"})
DROPOUTS = frozenset({"dropout", "feature_dropout", "alpha_dropout"})
# Tensors of one number: the position of that number, or the number.
FILLED: dict[str, int | float] = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0}
FILLED |= dict.fromkeys(("zeros", "zeros_like", "new_zeros"), 0.0)
FILLED |= dict.fromkeys(("ones", "ones_like", "new_ones"), 1.0)
# Tensors that are made to be filled, and what fills them with random numbers.
EMPTY = frozenset({"empty", "new_empty"})
RANDOM = frozenset({"bernoulli", "rand"})

# The same values in another dtype, or not even that.
CASTS = frozenset({"to", "type_as", "_to_copy"})
# Those that have a reader of their own.
OTHERS = frozenset("narrow detach masked_fill where gt ge lt le cross_entropy_loss glu pad".split())

# Sizes and checks, which are nothing of the result unless an operator that is takes them.
OF_SIZES = frozenset("sym_size sym_numel sym_constrain_range_for_size _assert_tensor_metadata _assert_scalar".split())

# Dimensions in another order: of a parameter with two, of an input that is multiplied by, and of images.
EXCHANGES = frozenset("t numpy_T transpose permute adjoint mT movedim moveaxis swapaxes swapdims".split())
PRODUCTS = frozenset({"matmul", "mm", "bmm"})

# What is refused in words of its own: what it is, and what to do.
_NUMBER = "write a number, or make it an nn.Parameter"
_PART = "import the part of the module that has a gradient, and call the other one yourself"
REFUSED = {
    "lift_fresh_copy": ("a tensor made in forward", _NUMBER),
    "to": ("a cast to another dtype", "a chain has casts to float32, in which kernels compute, and back"),
    "feature_dropout": ("dropout of whole channels", "a chain drops elements, or samples"),
    "alpha_dropout": ("alpha dropout", "a chain has dropout, and drop path"),
    "bernoulli": ("random numbers that are no drop path", "write it as torchvision.ops.stochastic_depth does"),
    "rand": ("random numbers that are no drop path", "write it as torchvision.ops.stochastic_depth does"),
    "item": ("a number read from a tensor", "numbers of a chain are constants"),
    "wrap_with_set_grad_enabled": ("a part of forward that has no gradient", _PART),
    "wrap_with_autocast": ("a part of forward under autocast", "use autocast around the whole module"),
}

# Layers and norms by the class of their module, and the positions of its tensors behind the value.
MODULES = {
    "linear": ("Linear", {1: "weight", 2: "bias"}),
    "prelu": ("PReLU", {1: "weight"}),
    "batch_norm": ("BatchNorm1d", {1: "weight", 2: "bias", 3: "running_mean", 4: "running_var"}),
    "group_norm": ("GroupNorm", {2: "weight", 3: "bias"}),
    "layer_norm": ("LayerNorm", {2: "weight", 3: "bias"}),
    "rms_norm": ("RMSNorm", {2: "weight"}),
    "instance_norm": ("InstanceNorm1d", {1: "weight", 2: "bias", 3: "running_mean", 4: "running_var"}),
}
# The same of convolutions.
CONVOLUTIONS = {
    f"conv{prefix}{n}d": (f"Conv{kind}{n}d", {1: "weight", 2: "bias"})
    for prefix, kind in (("", ""), ("_transpose", "Transpose"))
    for n in (1, 2, 3)
}


# Pooling over positions: the options that an operator takes behind its input.
_OF_WINDOWS = ("kernel_size", "stride", "padding")
POOLING = {
    f"{kind}_pool{n}d": options
    for kind, options in {
        "max": (*_OF_WINDOWS, "dilation", "ceil_mode"),
        "avg": (*_OF_WINDOWS, "ceil_mode", "count_include_pad", "divisor_override"),
        "adaptive_avg": ("output_size",),
        "adaptive_max": ("output_size",),
    }.items()
    for n in (1, 2, 3)
}

# Values as one, whose channels come behind each other.
JOINED = frozenset({"cat", "concat", "concatenate"})
# Images of other sizes: the op, and its mode.
UPSAMPLING = {
    f"{name}{n}d": ("upsample", mode)
    for mode, name, counts in (
        ("nearest", "upsample_nearest", (1, 2, 3)),
        ("nearest-exact", "_upsample_nearest_exact", (1, 2, 3)),
        ("linear", "upsample_linear", (1,)),
        ("bilinear", "upsample_bilinear", (2,)),
        ("bicubic", "upsample_bicubic", (2,)),
        ("trilinear", "upsample_trilinear", (3,)),
    )
    for n in counts
} | {name: (name, "") for name in ("pixel_shuffle", "pixel_unshuffle")}


# Operators that imports read as what PyTorch computes for them; a backend leaves them to PyTorch's compiler. Losses are
# such if they reduce nothing.
WRITTEN_OUT = frozenset("addmm addcmul addcdiv mse_loss l1_loss margin_ranking_loss kl_div".split())
# Losses by element that have a reader of their own.
ELEMENT_LOSSES = frozenset("huber_loss smooth_l1_loss binary_cross_entropy_with_logits".split())

# An operator that none of these has is read as those that PyTorch makes it of (`composite.py`).
TABLES: tuple[Container[str], ...] = (
    *(FUNCTIONS, ARITHMETIC, OVER_CHANNELS, PARTS, SAME_ELEMENTS, CASTS, EXCHANGES, PRODUCTS, MODULES, CONVOLUTIONS),
    *(POOLING, UPSAMPLING, JOINED, DROPOUTS, FILLED, EMPTY, RANDOM, OTHERS, ELEMENT_LOSSES),
    *(OF_SIZES, REFUSED),
)


def is_known(target: object) -> bool:
    """Whether a table has the operator."""
    full, name = names(target)
    return any(full in table or name in table for table in TABLES)


def find(entries: Mapping[str, Entry], target: object) -> Entry | None:
    """What a table has for an operator: for its overload, or for all of them."""
    full, name = names(target)
    return entries.get(full, entries.get(name))


def dimensions(target: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """The dimensions that an operator over some takes; [None] for all, and None for another operator."""
    is_glu = names(target)[1] == "glu"
    op, _ = find(OVER_CHANNELS, target) or (None, False)
    at = 2 if op == "norm" or find(PARTS, target) is not None else 1
    if op is None and at == 1 and not is_glu:
        return None
    found = args[at] if at < len(args) else kwargs.get("dim", -1 if is_glu else 0 if op is None else None)
    return list(found) if isinstance(found, list | tuple) else [found]


def names(target: object) -> tuple[str, str]:
    """An operator's name with its overload, and without: `add.Tensor`, `add`; without what says `in place`."""
    _, name, overload = [*str(target).split("."), "", ""][:3] if "aten." in str(target) else ("", str(target), "")
    name = name[:-1] if is_in_place(target) else name
    return f"{name}.{overload}", name


def is_in_place(target: object) -> bool:
    """Whether the operator changes its operand."""
    parts = str(target).split(".")
    return len(parts) == 3 and parts[1].endswith("_") and not parts[1].startswith("__")

"""The public names of torch that call the ATen operators of a chain's ops, found by calling them all.

A name is an alias of a call of ours where it calls the same operators with the same arguments: a name that PyTorch adds
is found by itself.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Call = Callable[..., Any]
PLACES = {"torch": torch, "torch.special": torch.special, "F": F, "Tensor": Tensor}
ROWS, CHANNELS = 6, 8
# The arguments of the module's forward, as what is called has them: of one shape, a parameter, a mask and a target.
Y, Z, W, M, MASK, TARGET = "y", "z", "w", "m", "mask", "target"

# How each op may be called: a function, and what it is called with.
CALLS: dict[str, list[tuple[Call, tuple]]] = {
    **{
        op: [(getattr(torch, op), (Y,))]
        for op in """relu selu sigmoid tanh abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin
        cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc floor ceil trunc sign""".split()
    },
    **{
        op: [(getattr(F, op), (Y,))]
        for op in "gelu silu mish hardswish hardsigmoid logsigmoid softsign tanhshrink relu6 celu".split()
    },
    "round": [(torch.round, (Y,)), (torch.special.round, (Y,))],
    "softmin": [(F.softmin, (Y, -1))],
    "leaky_relu": [(F.leaky_relu, (Y,)), (F.leaky_relu, (Y, 0.2))],
    "elu": [(F.elu, (Y,)), (F.elu, (Y, 0.5))],
    "celu": [(F.celu, (Y,)), (F.celu, (Y, 0.5))],
    "softplus": [(F.softplus, (Y,)), (F.softplus, (Y, 2.0, 10.0))],
    "threshold": [(F.threshold, (Y, 0.5, 0.1))],
    "hardshrink": [(F.hardshrink, (Y,)), (F.hardshrink, (Y, 0.2))],
    "softshrink": [(F.softshrink, (Y,)), (F.softshrink, (Y, 0.2))],
    "clamp": [
        (torch.clamp, (Y, 0.3, 0.6)),
        (torch.clamp, (Y, 0.3)),
        (torch.clamp, (Y, None, 0.6)),
        (torch.clamp_min, (Y, 0.3)),
        (torch.clamp_max, (Y, 0.6)),
    ],
    "hardtanh": [(F.hardtanh, (Y,)), (F.hardtanh, (Y, -0.5, 0.5))],
    "pow": [(torch.pow, (Y, 3)), (torch.pow, (Y, 0.5))],
    **{
        op: [(getattr(torch, op), (Y, Z)), (getattr(torch, op), (Y, 0.5)), (getattr(torch, op), (Y, W))]
        for op in ("add", "sub", "mul", "div")
    },
    "sub of another": [(torch.rsub, (Y, 0.5)), (torch.rsub, (Y, Z))],
    "div of another": [(Tensor.__rtruediv__, (Y, 0.5))],
    **{op: [(getattr(torch, op), (Y, Z))] for op in ("minimum", "maximum", "logaddexp", "hypot", "atan2")},
    **{op: [(getattr(torch, op), (Y, -1))] for op in ("softmax", "log_softmax")},
    **{
        op: [(getattr(torch, op), (Y, -1, True)), (getattr(torch, op), (Y, -1))]
        for op in ("sum", "mean", "max", "min", "amax", "amin", "logsumexp")
    },
    **{op: [(getattr(torch, op), (Y, -1, False, True))] for op in ("var", "std")},
    "norm": [(torch.norm, (Y, 2, -1, True)), (torch.norm, (Y, 1, -1))],
    "masked_fill": [(torch.masked_fill, (Y, MASK, 0.5)), (torch.where, (MASK, 0.5, Y))],
    "layer_norm": [(F.layer_norm, (Y, (CHANNELS,)))],
    "rms_norm": [(F.rms_norm, (Y, (CHANNELS,)))],
    "group_norm": [(F.group_norm, (Y, 2))],
    "normalize": [(F.normalize, (Y,))],
    "cross_entropy": [(F.cross_entropy, (Y, TARGET))],
    "chunk": [(torch.chunk, (Y, 2, -1)), (torch.split, (Y, CHANNELS // 2, -1)), (torch.split, (Y, (4, 4), -1))],
    "glu": [(F.glu, (Y, -1))],
    "matmul": [(torch.matmul, (Y, M))],
    "dropout": [(F.dropout, (Y, 0.5, True))],
}
PARAMETERS = (W, M)
_LAYERS = "its tensors have to be those of a layer, as the state_dict has them: a function of others is refused"
# Ops that no function has, or none of all values, and why.
NO_CALLS = {
    **{f"conv{kind}{n}d": _LAYERS for kind in ("", "_transpose") for n in (1, 2, 3)},
    **dict.fromkeys(("linear", "batch_norm", "prelu"), _LAYERS),
    "bmm": "it is of two inputs, and the first step",
    "instance_norm": "it is of three dimensions or more",
    "swish": "it is another name of silu",
    "cast": "a cast that a module makes is to float32, in which kernels compute, or back: a spec need not say so",
    "drop_path": "it is torchvision's and timm's, which is spelled out",
    **dict.fromkeys(("swiglu", "reglu", "geglu"), "it is two calls"),
}


def names() -> Iterator[tuple[str, Call]]:
    """Every public function of tensors. Other names of `torch` change its state, or make tensors of nothing."""
    known = torch.overrides.get_testing_overrides()
    for place, owner in PLACES.items():
        for name in dir(owner):
            found = getattr(owner, name)
            is_public = not name.startswith("_") or (owner is Tensor and name.startswith("__"))
            is_function = callable(found) and not isinstance(found, type)
            if is_public and is_function and (owner in (F, Tensor) or name.endswith("_") or found in known):
                yield f"{place}.{name}", found


class _Recorder(TorchDispatchMode):
    """The operators that are called, with their arguments; those that change a tensor as those that do not."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        given = [tuple(each.shape) if isinstance(each, Tensor) else each for each in tree_leaves((args, kwargs or {}))]
        self.calls.append((func._schema.name.rstrip("_"), *given))
        return func(*args, **(kwargs or {}))


@functools.cache
def tensors() -> dict[str, Any]:
    """Values that every function takes."""
    generator = torch.Generator().manual_seed(0)
    y, z = (torch.rand(ROWS, CHANNELS, generator=generator) * 0.5 + 0.25 for _ in range(2))
    w, m = (torch.rand(*shape, generator=generator) for shape in ((CHANNELS,), (CHANNELS, 5)))
    return {Y: y, Z: z, W: w, M: m, MASK: z > 0.5, TARGET: torch.arange(ROWS) % CHANNELS}


@functools.cache
def called(function: Call, args: tuple) -> tuple | None:
    """What a function does with these arguments, of which the first may be changed; None if it does not take them."""
    known = tensors()
    given = [known.get(each, each) if isinstance(each, str) else each for each in args]
    given[0] = given[0].clone()
    with _Recorder() as recorder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            result = function(*given)
        except Exception:  # of many kinds, also of a function that takes other arguments
            return None
    kinds = tuple(tuple(each.shape) if isinstance(each, Tensor) else each for each in tree_leaves(result))
    return (*recorder.calls, kinds) if recorder.calls else None

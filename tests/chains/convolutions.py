"""Chains behind a convolution: those that can be written, beside their originals, and those that are refused.

Restated from public KernelBench level 2 problems: same constructor arguments, attribute names, initialisation order and
arithmetic. The parameter that problem 26 has and never uses is left out. The last two are of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_POSITIONS = ("depth", "height", "width")


class Original(nn.Module):
    """tail: what follows the convolution, a function of this module, its result and further inputs."""

    def __init__(self, name: str, layer: nn.Module, tail: Callable[..., Tensor], **attributes: Any) -> None:
        super().__init__()
        self.layer_name, self.tail = name, tail
        setattr(self, name, layer)
        for key, value in attributes.items():
            setattr(self, key, nn.Parameter(value) if isinstance(value, Tensor) else value)

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        return self.tail(self, getattr(self, self.layer_name)(x), *others)


@dataclass(frozen=True)
class ConvolutionChain:
    """A chain and its original.

    steps: inside their braces; the first is the convolution. arguments: of the spec, behind the channels, each with its
    type. original: by the channels of input and result, and `given`. given: the constructor's further arguments for so
    many channels of the result. typical: sizes of the input's positions, and of the result's. channels: of the input
    and the result; the result of one alone has as many as the input.
    """

    steps: tuple[str, ...]
    original: Callable[..., nn.Module]
    given: Callable[[int], tuple[Any, ...]] = lambda channels: ()
    arguments: str = ""
    further: bool = False
    typical: tuple[tuple[int, ...], tuple[int, ...]] = ((9, 9), (7, 7))
    channels: tuple[int, ...] = (3, 8)
    dtypes: str = "float32"

    @property
    def spatial(self) -> int:
        return len(self.typical[0])

    @property
    def constructed(self) -> tuple[Any, ...]:
        """The constructor's arguments."""
        return *self.channels, *self.given(self.channels[-1])

    def spec(self, name: str) -> str:
        names = _POSITIONS[-self.spatial :]
        channels = dict(zip(("in_channels", "out_channels"), self.channels, strict=False))
        sizes = {"batch": 4, **channels, **dict(zip(names, self.typical[0], strict=True))}
        inputs = {"x": ["batch", "in_channels", *names]}
        if self.further:
            sizes |= {f"out_{each}": size for each, size in zip(names, self.typical[1], strict=True)}
            inputs["add_input"] = ["batch", "out_channels", *(f"out_{each}" for each in names)]
        shapes = ", ".join(f"{key}: [{', '.join(dims)}]" for key, dims in inputs.items())
        arguments = ", ".join(f"{key}: {{type: dim}}" for key in channels) + self.arguments
        chain = "".join(f"  - {{op: {step}}}\n" for step in self.steps)
        return (
            f"fusegen: 1\nname: {name}\ndims: {{{', '.join(f'{key}: {size}' for key, size in sizes.items())}}}\n"
            f"arguments: {{{arguments}}}\ninputs: {{{shapes}}}\ndtypes: [{self.dtypes}]\nchain:\n{chain}"
        )


_KERNEL = ", kernel_size: {type: int, typical: 3}"
_STRIDES = ", ".join(
    ["", *(f"{key}: {{type: int, typical: {n}}}" for key, n in (("stride", 2), ("padding", 1), ("output_padding", 1)))]
)
_BIAS = ", bias_shape: {type: shape, is: [out_channels, %s]}"
_CONV2D = "conv2d, name: conv, out_channels: out_channels, kernel_size: kernel_size"
_TRANSPOSED = "name: conv_transpose, out_channels: out_channels, kernel_size: kernel_size, stride: stride"
_TRANSPOSED += ", padding: padding, output_padding: output_padding"
_DOUBLED = ((5, 4), (10, 8))


def _clamped(module: nn.Module, y: Tensor) -> Tensor:
    y = torch.clamp(y + module.bias, 0.0, 1.0)
    y = torch.clamp(y * module.scaling_factor, 0.0, 1.0)
    return y / module.scaling_factor


class AddBatchNorm(nn.Module):
    """Of our own: the statistics are those of a sum with a further input."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(i, o, 3)
        self.bn = nn.BatchNorm1d(o)

    def forward(self, x: Tensor, add_input: Tensor) -> Tensor:
        return F.gelu(self.bn(self.conv(x) + add_input))


class OneDimension(nn.Module):
    """Of our own: the module's input is the residual, too."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding="same", groups=2)
        self.bn = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.log_softmax(self.bn(self.conv(x)), dim=1)
        return y * y.mean(dim=1, keepdim=True) + x


EXPRESSIBLE: dict[str, ConvolutionChain] = {
    "conv_relu_bias": ConvolutionChain(  # 1
        (_CONV2D, "relu", "add, parameter: bias, shape: bias_shape, init: randn"),
        lambda i, o, k, s: Original("conv", nn.Conv2d(i, o, k), lambda m, y: F.relu(y) + m.bias, bias=torch.randn(s)),
        lambda channels: (3, (channels, 1, 1)),
        _KERNEL + _BIAS % "1, 1",
    ),
    "transposed_clamps": ConvolutionChain(  # 2
        (
            f"conv_transpose2d, {_TRANSPOSED}",
            "add, parameter: bias, shape: bias_shape, init: randn",
            *("clamp, min: 0.0, max: 1.0", "mul, constant: scaling_factor"),
            *("clamp, min: 0.0, max: 1.0", "div, constant: scaling_factor"),
        ),
        lambda i, o, k, d, p, q, s, f: Original(
            *("conv_transpose", nn.ConvTranspose2d(i, o, k, stride=d, padding=p, output_padding=q), _clamped),
            **{"bias": torch.randn(s), "scaling_factor": f},
        ),
        lambda channels: (3, 2, 1, 1, (channels, 1, 1), 2.0),
        _KERNEL + _STRIDES + _BIAS % "1, 1" + ", scaling_factor: {type: float}",
        typical=_DOUBLED,
    ),
    "transposed_tanh": ConvolutionChain(  # 5
        (f"conv_transpose2d, {_TRANSPOSED}", "sub, parameter: bias, shape: bias_shape, init: randn", "tanh"),
        lambda i, o, k, d, p, q, s: Original(
            *("conv_transpose", nn.ConvTranspose2d(i, o, k, stride=d, padding=p, output_padding=q)),
            lambda m, y: torch.tanh(y - m.bias),
            bias=torch.randn(s),
        ),
        lambda channels: (4, 2, 1, 1, (channels, 1, 1)),
        _KERNEL + _STRIDES + _BIAS % "1, 1",
        typical=((5, 4), (11, 9)),
    ),
    "four_activations": ConvolutionChain(  # 7
        (
            "conv3d, name: conv, out_channels: out_channels, kernel_size: kernel_size",
            *("relu", "leaky_relu", "gelu", "sigmoid", "add, parameter: bias, shape: bias_shape, init: randn"),
        ),
        lambda i, o, k, s: Original(
            *("conv", nn.Conv3d(i, o, k)),
            lambda m, y: torch.sigmoid(F.gelu(F.leaky_relu(F.relu(y), 0.01))) + m.bias,
            bias=torch.randn(s),
        ),
        lambda channels: (3, (channels, 1, 1, 1)),
        _KERNEL + _BIAS % "1, 1, 1",
        typical=((5, 4, 6), (3, 2, 4)),
    ),
    "smallest_tanh": ConvolutionChain(  # 25
        (_CONV2D, "min, dim: 1, keepdim: true", "tanh", "tanh"),
        lambda i, o, k: Original(
            "conv", nn.Conv2d(i, o, k), lambda m, y: torch.tanh(torch.tanh(torch.min(y, dim=1, keepdim=True)[0]))
        ),
        lambda channels: (3,),
        _KERNEL,
    ),
    "residual_hardswish": ConvolutionChain(  # 26
        (f"conv_transpose3d, {_TRANSPOSED}", "add, input: add_input, save: v", "hardswish", "mul, value: v"),
        lambda i, o, k, d, p, q: Original(
            *("conv_transpose", nn.ConvTranspose3d(i, o, k, stride=d, padding=p, output_padding=q)),
            lambda m, y, r: (y + r) * F.hardswish(y + r),
        ),
        lambda channels: (3, 2, 1, 1),
        _KERNEL + _STRIDES,
        further=True,
        typical=((2, 3, 2), (4, 6, 4)),
        dtypes="float32, bfloat16",
    ),
    "relu_hardswish": ConvolutionChain(  # 57
        (_CONV2D, "relu", "hardswish"),
        lambda i, o, k: Original("conv", nn.Conv2d(i, o, k), lambda m, y: F.hardswish(F.relu(y))),
        lambda channels: (3,),
        _KERNEL,
    ),
    "batch_norm_scaling": ConvolutionChain(  # 73
        (_CONV2D, "batch_norm, name: bn", "mul, constant: scaling_factor"),
        lambda i, o, k, f: Original(
            *("conv", nn.Conv2d(i, o, k), lambda m, y: m.bn(y) * m.scaling_factor),
            **{"bn": nn.BatchNorm2d(o), "scaling_factor": f},
        ),
        lambda channels: (3, 2.0),
        _KERNEL + ", scaling_factor: {type: float}",
        dtypes="float32, bfloat16",
    ),
    "add_batch_norm": ConvolutionChain(
        (
            "conv1d, name: conv, out_channels: out_channels, kernel_size: 3",
            *("add, input: add_input", "batch_norm, name: bn", "gelu"),
        ),
        AddBatchNorm,
        further=True,
        typical=((11,), (9,)),
    ),
    "one_dimension": ConvolutionChain(
        (
            "conv1d, name: conv, out_channels: in_channels, kernel_size: 3, padding: same, groups: 2",
            *("batch_norm, name: bn", "log_softmax, dim: 1, save: v", "mean, dim: 1, keepdim: true"),
            *("mul, value: v", "add, input: x"),
        ),
        OneDimension,
        typical=((7,), (7,)),
        channels=(6,),
    ),
}

_PLAIN = {1: "conv1d", 2: "conv2d", 3: "conv3d"}
# What follows a convolution in problems that are refused, each with the dimensions of positions and why.
REFUSED: dict[str, tuple[int, str, str]] = {
    "a mean over the last dimension": (3, "mean, keepdim: true, dim: -1", "FG308.*one of positions"),
    "a layer norm without its sizes": (3, "layer_norm, name: n", "FG301.*the norm is over positions"),
    "a layer norm of other sizes": (2, "layer_norm, name: n, normalized_shape: [5]", "FG303.*the norm is over"),
    "a mean over more dimensions": (2, "mean, keepdim: true, dim: 4", "FG303.*values have 4"),
    "a mean over a dimension twice": (2, "mean, keepdim: true, dim: [2, 2]", "FG208.*twice"),
    "groups of no channels": (2, "group_norm, name: n, num_groups: 7", "FG304.*do not divide"),
    "unpooling": (2, "max_unpool2d", "FG203.*max_unpool2d"),
}


def refused_spec(spatial: int, step: str) -> str:
    chain = ConvolutionChain(
        (f"{_PLAIN[spatial]}, name: conv, out_channels: out_channels, kernel_size: 3", step),
        nn.Identity,
        typical=((9,) * spatial, (7,) * spatial),
    )
    return chain.spec("refused")

"""Modules that begin with a convolution, by the arguments of their constructor and the lines of it and of forward.

Those of public KernelBench level 2 problems are restated with the names of tests/chains/convolutions.py.
"""

from __future__ import annotations

import linecache
import textwrap
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from fusegen.importing.module import from_module

_CLASS = """\
class Model(nn.Module):
    def __init__(self, {arguments}):
        super().__init__()
{made}

    def forward(self, {inputs}):
{lines}
"""
_NAMES = "in_channels, out_channels, kernel_size"
_OPTIONS = ", ".join(f"{key}={key}" for key in ("stride", "padding", "output_padding"))


@dataclass(frozen=True)
class Convolved:
    """arguments: of the constructor. made: its lines. lines: of forward. inputs: those of forward."""

    arguments: str
    made: str
    lines: str
    inputs: str = "x"

    @property
    def text(self) -> str:
        return _CLASS.format(
            arguments=self.arguments,
            made=textwrap.indent(textwrap.dedent(self.made).strip(), " " * 8),
            inputs=self.inputs,
            lines=textwrap.indent(textwrap.dedent(self.lines).strip(), " " * 8),
        )

    def module(self, *arguments: Any) -> nn.Module:
        text = self.text
        linecache.cache["model.py"] = (len(text), None, text.splitlines(keepends=True), "model.py")
        names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "__name__": "model"}
        exec(compile(text, "model.py", "exec"), names)
        torch.manual_seed(0)
        return names["Model"](*arguments)

    def imported(self, arguments: tuple[Any, ...], *shapes: tuple[int, ...], name: str | None = None) -> str:
        module = self.module(*arguments)
        return from_module(module, [torch.randn(shape) for shape in shapes], arguments=list(arguments), name=name)

    def line(self, words: str) -> int:
        (found,) = (number for number, line in enumerate(self.text.splitlines(), 1) if words in line)
        return found


def _transposed(spatial: int) -> str:
    return f"self.conv_transpose = nn.ConvTranspose{spatial}d({_NAMES}, {_OPTIONS})"


_BIAS = "self.bias = nn.Parameter(torch.randn(bias_shape))"
_STRIDES = f"{_NAMES}, stride, padding, output_padding"
ORIGINALS = {
    "conv_relu_bias": Convolved(
        f"{_NAMES}, bias_shape",
        f"self.conv = nn.Conv2d({_NAMES})\n{_BIAS}",
        "x = self.conv(x)\nx = torch.relu(x)\nreturn x + self.bias",
    ),
    "transposed_clamps": Convolved(
        f"{_STRIDES}, bias_shape, scaling_factor",
        f"{_transposed(2)}\n{_BIAS}\nself.scaling_factor = scaling_factor",
        """
        x = self.conv_transpose(x) + self.bias
        x = torch.clamp(x, min=0.0, max=1.0) * self.scaling_factor
        return torch.clamp(x, min=0.0, max=1.0) / self.scaling_factor
        """,
    ),
    "transposed_tanh": Convolved(
        f"{_STRIDES}, bias_shape", f"{_transposed(2)}\n{_BIAS}", "return torch.tanh(self.conv_transpose(x) - self.bias)"
    ),
    "four_activations": Convolved(
        f"{_NAMES}, bias_shape",
        f"self.conv = nn.Conv3d({_NAMES})\n{_BIAS}",
        """
        x = F.leaky_relu(torch.relu(self.conv(x)), negative_slope=0.01)
        return torch.sigmoid(F.gelu(x)) + self.bias
        """,
    ),
    "smallest_tanh": Convolved(
        _NAMES,
        f"self.conv = nn.Conv2d({_NAMES})",
        "x = torch.min(self.conv(x), dim=1, keepdim=True)[0]\nreturn torch.tanh(torch.tanh(x))",
    ),
    "residual_hardswish": Convolved(
        _STRIDES, _transposed(3), "x = self.conv_transpose(x) + add_input\nreturn x * F.hardswish(x)", "x, add_input"
    ),
    "relu_hardswish": Convolved(
        _NAMES,
        f"self.conv = nn.Conv2d({_NAMES})",
        "x = torch.relu(self.conv(x))\nreturn x * torch.clamp((x + 3) / 6, 0, 1)",
    ),
    "batch_norm_scaling": Convolved(
        f"{_NAMES}, scaling_factor",
        f"""
        self.conv = nn.Conv2d({_NAMES})
        self.bn = nn.BatchNorm2d(out_channels)
        self.scaling_factor = scaling_factor
        """,
        "return self.bn(self.conv(x)) * self.scaling_factor",
    ),
    "add_batch_norm": Convolved(
        "in_channels, out_channels",
        "self.conv = nn.Conv1d(in_channels, out_channels, 3)\nself.bn = nn.BatchNorm1d(out_channels)",
        "return F.gelu(self.bn(self.conv(x) + add_input))",
        "x, add_input",
    ),
    "one_dimension": Convolved(
        "in_channels",
        """
        self.conv = nn.Conv1d(in_channels, in_channels, 3, padding="same", groups=2)
        self.bn = nn.BatchNorm1d(in_channels)
        """,
        "v = F.log_softmax(self.bn(self.conv(x)), dim=1)\nreturn v * v.mean(dim=1, keepdim=True) + x",
    ),
}

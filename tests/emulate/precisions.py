"""A linear layer and nothing but a factor behind it, emulated: every error of its product shows in the result."""

from __future__ import annotations

import sys

import torch

from fusegen.emulate.package import emulate_package
from tests.emulate.building import write

SPEC = """\
fusegen: 1
name: {name}
about: A linear layer that multiplies by pieces
dims: {{batch: 64, in_features: 32, features: 48}}
arguments:
  in_features: {{type: dim}}
  features: {{type: dim}}
  factor: {{type: float, default: 0.5}}
inputs: {{x: [batch, in_features]}}
dtypes: [float32, bfloat16]
chain:
  - {{op: linear, name: fc, out_features: features, precision: fp32_split}}
  - {{op: mul, constant: factor}}
"""


def emulated(tmp_path_factory, cache, *, by_library: bool = False):
    """The module's class. It is emulated once in a process, wherever it is asked for. by_library: whether the library
    multiplies the pieces, in float32 alone."""
    name = "precise_by_library" if by_library else "precise"
    root = tmp_path_factory.mktemp(name)
    plan = write(name, SPEC.format(name=name), root)
    defines = ["FUSEGEN_LIBRARY_PRODUCT"] if by_library else []
    package = emulate_package(root / name, cache=cache, defines=defines, checked=False)
    return getattr(package, plan.spec.class_name)


def operator_of(cls):
    (operator,) = [each for each in vars(sys.modules[cls.__module__]).values() if type(each).__name__ == "Operator"]
    return operator


def _scaled(values, exponents):
    return torch.ldexp(values.detach(), exponents)


def _zeros(values):
    values = values.detach().clone()
    values[::3], values[:, ::5] = 0, 0
    return values


def _spread(values):
    """Elements of one row that differ by far more than its pieces hold."""
    steps = torch.arange(values.numel()).view(values.shape) * 7 % 61 - 30
    return _scaled(values, steps)


# What operands may be made of normal values.
SOURCE = {
    "normal": lambda values: values.detach(),
    "positive": lambda values: values.detach().abs(),
    "rows of far scales": lambda values: _scaled(values, torch.arange(len(values))[:, None] * 5 % 61 - 30),
    "columns of far scales": lambda values: _scaled(values, torch.arange(values.shape[1]) * 5 % 61 - 30),
    "elements of far scales": _spread,
    "zeros": _zeros,
    "subnormal": lambda values: _scaled(values, torch.tensor(-62)),
}


def product_error(found, left, right, *, truncated=0.0):
    """The largest error of an element, in units of the bound.

    The pieces of each operand hold an element to 2^-22 of itself, and the product of two low pieces is left out. The
    rest is the rounding of a sum in float32, as large as it may be by chance. truncated: what a GPU's sums of equal
    signs may lose besides, of themselves.
    """
    left, right = left.double(), right.double()
    exact, size = left @ right, left.abs() @ right.abs()
    least = torch.finfo(torch.float32).smallest_normal
    allowed = (truncated + 3 * 2**-22 + 2**-24 * left.shape[1] ** 0.5) * size + least * torch.finfo(torch.float32).eps
    return float(((found.detach().double() - exact).abs() / allowed).max())

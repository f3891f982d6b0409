"""A chain with every kind of thing that a module holds, and what it is compared with."""

from __future__ import annotations

import warnings

import torch

SPEC = """
fusegen: 1
name: stands_in
about: every kind of thing that a module holds
dims: {batch: 64, in_features: 32, out_features: 32}
arguments:
  in_features: {type: dim}
  out_features: {type: dim}
  divisor: {type: float, default: 2.0}
  initial: {type: float, default: 0.5}
inputs: {x: [batch, in_features], residual: [batch, out_features]}
dtypes: [float32]
chain:
  - {op: linear, name: fc, out_features: out_features}
  - {op: batch_norm, name: bn}
  - {op: add, input: residual}
  - {op: mul, parameter: scale, shape: [out_features], init: randn}
  - {op: add, parameter: shift, shape: [1], init: initial}
  - {op: div, constant: divisor}
  - {op: silu}
"""
ROWS, WIDTH, CHANNELS = 9, 6, 8


def same_as_eager(module, inputs) -> None:
    """Output, every gradient and the statistics are those of the submodules as they are now."""
    buffers = [buffer.clone() for buffer in module.buffers()]
    grad, found = torch.randn(ROWS, CHANNELS), []
    for call in (module, module.fusegen_reference):
        for buffer, before in zip(module.buffers(), buffers, strict=True):
            buffer.copy_(before)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = call(*inputs)
        wanted = [each for each in (*inputs, *module.parameters()) if each.requires_grad]
        gradients = torch.autograd.grad(y, wanted, grad, allow_unused=True)
        found.append([y, *gradients, *(buffer.clone() for buffer in module.buffers())])
    for mine, theirs in zip(*found, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5 * max(1, float(theirs.detach().abs().max())))

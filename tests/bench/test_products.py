"""The products alone, of chains whose result has another shape than the product."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fusegen.bench.bench import gradients
from fusegen.bench.names import STEP
from fusegen.bench.regions import mode_of, products_work
from fusegen.bench.shapes import sizes_of
from tests.bench.test_regions import made

HEAD = """\
fusegen: 1
name: {name}
dtypes: [float32]
"""
LINEAR = """\
dims: {batch: 6, positions: 5, features: 8, hidden: 3}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, positions, features], scale: [batch, hidden]}
chain:
  - {op: linear, name: fc, out_features: hidden}
  - {op: mul, input: scale}
"""
BATCHES = """\
dims: {batch: 4, queries: 5, keys: 3, width: 8}
inputs: {q: [batch, queries, width], k: [batch, 2 * keys, width]}
chain:
  - {op: bmm, input: k, transposed: true}
  - {op: glu}
"""
IMAGES = """\
dims: {batch: 2, channels: 3, height: 5, width: 4, hidden: 7}
arguments: {channels: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: conv2d, name: conv, out_channels: 2 * hidden, kernel_size: 3, padding: 1}
  - {op: glu}
"""
OWN = """\
dims: {batch: 6, features: 8, hidden: 3}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, features]}
chain:
  - {op: matmul, parameter: up, shape: [features, hidden], init: randn}
  - {op: gelu}
  - {op: matmul, parameter: down, shape: [features, hidden], init: randn, transposed: true, bias: b, bias_init: zeros}
  - {op: relu}
"""
# Of a step: the product and its two gradients; of a convolution the gradients; of several layers each.
CASES = {
    "leading_dimensions": (LINEAR, [(30, 3), (30, 8), (3, 8)]),
    "parts_of_batches": (BATCHES, [(4, 5, 6), (4, 5, 8), (4, 8, 6)]),
    "parts_of_images": (IMAGES, [(2, 3, 5, 4), (14, 3, 3, 3)]),
    "own_weights": (OWN, [[(6, 3), (6, 8), (3, 8)], [(6, 8), (6, 3), (8, 3)]]),
}


@pytest.mark.parametrize("name", CASES)
def test_each_product_is_made_with_its_own_sizes(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    subject = made(tmp_path, name, HEAD.format(name=name) + text)
    size, mode = sizes_of(subject.plan, "typical"), mode_of(subject.plan.modes, "float32")
    _, original, inputs = subject.pair(size, mode, seed=1)
    work = products_work(subject.plan, mode, size, original, inputs, gradients(original, inputs)[0], STEP)
    shapes = [
        tuple(one.shape) if isinstance(one, torch.Tensor) else [tuple(t.shape) for t in one] for one in work.call()
    ]
    assert shapes == expected

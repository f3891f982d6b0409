"""Which backward programs may write the product's gradient over the product, and why others may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusegen.plan.load import plan_document
from fusegen.plan.programs import product_gradient
from fusegen.plan.programs.product_gradient import IN_PLACE, why_apart
from fusegen.render.ops.binding import render_bindings
from fusegen.spec.yaml import parse_yaml

SPEC = """
fusegen: 1
name: product
about: a linear layer and what follows
dims: {{batch: 64, width: 16, features: 32}}
arguments: {{width: {{type: dim}}, features: {{type: dim}}}}
inputs: {{x: [batch, width]}}
chain:
  - {{op: linear, name: fc, out_features: features}}
  - {{op: {op}}}
"""


def plan(op: str = "gelu"):
    return plan_document(parse_yaml(SPEC.format(op=op), "product.yaml"))


def variant(op: str = "gelu"):
    return plan(op).variants[0]


@pytest.mark.parametrize("op", ["gelu", "layer_norm, name: ln", "batch_norm, name: bn", "softmax"])
def test_in_place(op: str) -> None:
    made = plan(op)
    for each in made.variants:
        assert each.overwrites_product == (each.backward.reasons[-1:] == (IN_PLACE,))
    assert made.variants[0].overwrites_product
    (name,) = (name for name in made.op_names if name.endswith("backward_in_place") and "eval" not in name)
    assert f'"fusegen::{name}"' in render_bindings(made)


def test_a_program_that_does_not_read_the_product() -> None:
    found = variant("relu")
    assert not found.overwrites_product and not any("product's gradient" in each for each in found.backward.reasons)
    assert "in_place" not in render_bindings(plan("relu"))


def changed(program, **passes):
    """The program with other passes of the kernel that stores the product's gradient."""
    (kernel, *others) = program.schedules[0].kernels
    kernel = replace(kernel, **passes)
    return replace(program, schedules=(replace(program.schedules[0], kernels=(kernel, *others)),))


def test_the_product_is_not_read_behind_the_pass_that_stores_its_gradient() -> None:
    found = variant()
    kernel = found.backward.schedules[0].kernels[0]
    assert why_apart(found.chain, found.backward) is None
    twice = changed(found.backward, passes=(*kernel.passes, replace(kernel.passes[-1], stores=())))
    assert "reads the product behind the pass" in (why_apart(found.chain, twice) or "")
    first = changed(found.backward, passes=(replace(kernel.passes[-1], stores=()), *kernel.passes))
    assert why_apart(found.chain, first) is None


def test_kernels_that_read_elements_of_others() -> None:
    found = variant()
    for kind in ("tile", "plane", "plane_shared"):
        other = changed(found.backward, kind=kind)
        assert why_apart(found.chain, other) == f"a {kind} kernel stores it"
    images = replace(found.backward, contiguous_layout=("fc_product",))
    assert "contiguous images" in (why_apart(found.chain, images) or "")


def test_a_gradient_of_another_dtype() -> None:
    found = variant()
    outputs = [replace(each, role="accumulator") if each.gradient_of else each for each in found.backward.outputs]
    other = replace(found.backward, outputs=tuple(outputs))
    assert why_apart(found.chain, other) == "it has another dtype or shape"
    assert not product_gradient.with_place(found.chain, other)[1]

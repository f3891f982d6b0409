"""Gradients that have the values of others are one tensor with them, where both have one dtype: on the emulator."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402

# Of the first region both inputs have one gradient. The second passes on what comes: to the residual, and to the
# product, behind which there is no bias whose gradient would have to be summed.
SPEC = """\
fusegen: 1
name: same_gradients
dims: {batch: 64, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, features], shift: [batch, features], residual: [batch, hidden]}
dtypes: [float32, bfloat16]
chain:
  - {op: add, input: shift}
  - {op: silu, save: opened}
  - {op: linear, name: fc, out_features: hidden, bias: false}
  - {op: add, input: residual}
outputs: [result, opened]
"""
ROWS, FEATURES, HIDDEN = 5, 6, 7


@pytest.fixture(scope="module")
def block(tmp_path_factory, emulation_cache):
    """The plan and the emulated package."""
    root = tmp_path_factory.mktemp("same")
    (root / "same_gradients.yaml").write_text(SPEC)
    plan = planned_file(root / "same_gradients.yaml")
    write_files(render_all([plan]), root / "generated")
    return plan, emulate_package(root / "generated" / "same_gradients", cache=emulation_cache, checked=False)


@pytest.fixture(params=["in C++", "in Python"])
def module(request, block, monkeypatch):
    torch.manual_seed(1)
    made = block[1].SameGradients(FEATURES, HIDDEN)
    made.fusegen_strict = True
    for region in (block[1]._region_region_1, block[1]._region_fc):
        for each in vars(sys.modules[region.__module__]).values():
            if hasattr(each, "in_cpp"):
                assert each.in_cpp, "the library for this torch is missing"
                monkeypatch.setattr(each, "in_cpp", request.param == "in C++")
    return made


def given(dtype=torch.float32):
    shapes = ((ROWS, FEATURES), (ROWS, FEATURES), (ROWS, HIDDEN))
    inputs = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    return inputs, torch.randn(ROWS, HIDDEN, dtype=dtype)


def test_the_whole_beside_the_original(block) -> None:
    report = Suite(Subject(*block, "cpu"), full=False).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and {"opcheck", "torch.compile", "training"} <= {finding.check for finding in report.findings}


def test_one_tensor_is_both(module) -> None:
    inputs, grad = given()
    of_x, of_shift, of_residual = torch.autograd.grad(module(*inputs)[0], inputs, grad)
    assert of_residual.data_ptr() == grad.data_ptr()
    assert of_x.data_ptr() == of_shift.data_ptr()
    expected = torch.autograd.grad(module.fusegen_reference(*inputs)[0], inputs, grad)
    torch.testing.assert_close((of_x, of_shift, of_residual), expected)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (1, 2), (0, 2)])
def test_where_some_are_wanted(wanted, module) -> None:
    inputs, grad = given()
    inputs = [x if i in wanted else x.detach() for i, x in enumerate(inputs)]
    leaves = [*(inputs[i] for i in wanted), module.fc.weight]
    found = torch.autograd.grad(module(*inputs)[0], leaves, grad)
    torch.testing.assert_close(found, torch.autograd.grad(module.fusegen_reference(*inputs)[0], leaves, grad))


def test_gradients_that_accumulate_stay_apart(module) -> None:
    """Autograd adds to what a leaf has in place: it may not be memory of another leaf's."""
    inputs, grad = given()
    for _ in range(3):
        module(*inputs)[0].backward(grad)
    before = grad.clone()
    once = torch.autograd.grad(module.fusegen_reference(*inputs)[0], inputs, grad)
    torch.testing.assert_close([x.grad for x in inputs], [3 * each for each in once])
    assert torch.equal(grad, before)
    inputs[0].grad.zero_()
    torch.testing.assert_close(inputs[1].grad, 3 * once[1])


def test_other_dtypes_are_written(module) -> None:
    """Under autocast the product's gradient is in 16 bits. What comes for the residual is not."""
    inputs, grad = given()
    with torch.autocast("cpu", torch.bfloat16):
        result, reference = module(*inputs)[0], module.fusegen_reference(*inputs)[0]
    found = torch.autograd.grad(result, inputs, grad.to(result.dtype))
    assert [each.dtype for each in found] == [torch.float32] * 3
    expected = torch.autograd.grad(reference, inputs, grad.to(reference.dtype))
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("residual", [False, True])
def test_the_op_makes_no_tensor_for_the_product(residual, block) -> None:
    """For the gradients of both operands nothing of the result's size. Asked for the residual's, it makes that."""
    operator = sys.modules[block[1]._region_fc.__module__]._fused
    x, weight, grad = torch.randn(ROWS, FEATURES), torch.randn(HIDDEN, FEATURES), torch.randn(ROWS, HIDDEN)
    with torch.profiler.profile(profile_memory=True) as profile:
        found = operator.backward(grad, x, weight, 0, 0, None, None, [True, True, residual])
    torch.testing.assert_close(found, [grad @ weight, grad.t() @ x, grad][: 2 + residual], rtol=1e-5, atol=1e-5)
    allocated = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert ROWS * FEATURES * 4 in allocated and allocated.count(ROWS * HIDDEN * 4) == residual

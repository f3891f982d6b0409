"""Modules of several regions that take masks, and inputs that broadcast or have three dimensions, on the emulator."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402

# Three dimensions: AdaLN, positions and a number in one region, a mask in two, samples dropped in a later one.
BLOCK = """\
fusegen: 1
name: conditioned_block
dims: {batch: 4, seq: 16, width: 32, hidden: 48}
arguments: {width: {type: dim}, hidden: {type: dim}}
inputs:
  x: [batch, seq, width]
  cond: [batch, hidden]
  place: [seq, hidden]
  keep: [batch, seq, 1]
  factor: []
dtypes: [float32]
chain:
  - {op: layer_norm, name: norm}
  - {op: mul, input: factor}
  - {op: linear, name: up, out_features: 2 * hidden}
  - {op: geglu}
  - {op: mul, input: cond, plus: 1}
  - {op: add, input: place}
  - {op: mul, mask: keep}
  - {op: dropout, name: drop, p: 0.25}
  - {op: linear, name: down, out_features: width}
  - {op: mul, mask: keep}
  - {op: drop_path, name: path, p: 0.5}
  - {op: add, input: x}
"""
# Two dimensions, or any number: a value of one channel that another region takes, values of channels and of rows.
GATE = """\
fusegen: 1
name: gated_rows
dims: {batch: 64, width: 32, hidden: 48}
arguments: {width: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, width], shift: [hidden], row: [batch, 1], closed: [batch, hidden]}
dtypes: [float32]
chain:
  - {op: linear, name: gate, out_features: 1}
  - {op: sigmoid, save: opened}
  - {op: linear, from: x, name: up, out_features: hidden}
  - {op: add, input: shift}
  - {op: mul, value: opened}
  - {op: masked_fill, mask: closed, constant: 0.5, save: filled}
  - {op: linear, name: down, out_features: width}
  - {op: sub, input: row}
outputs: [filled, result]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory, emulation_cache):
    """The plan and the emulated package, by a name."""
    root, found = tmp_path_factory.mktemp("regions_with_inputs"), {}
    for name, text in (("conditioned_block", BLOCK), ("gated_rows", GATE)):
        (root / f"{name}.yaml").write_text(text)
        plan = planned_file(root / f"{name}.yaml")
        write_files(render_all([plan]), root / name)
        found[name] = plan, emulate_package(root / name / name, cache=emulation_cache, checked=False)
    return found


@pytest.mark.parametrize(("name", "count"), [("conditioned_block", 60), ("gated_rows", 60)])
def test_the_whole_beside_the_original(built, name: str, count: int) -> None:
    plan, package = built[name]
    report = Suite(Subject(plan, package, "cpu"), full=False).report()
    # The judge does not know the sum over channels in the gradient of a gate of one channel: see below.
    failed = [each for each in report.failed if each.item.name != "grad gate.weight"]
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in failed]
    assert not wrong and len(report.findings) > count


@pytest.mark.parametrize("rows", [1, 33])
def test_the_gradient_of_a_gate_of_one_channel(built, rows: int) -> None:
    """Within the rounding of what is summed: over the channels, then over the rows."""
    torch.manual_seed(2)
    module = built["gated_rows"][1].GatedRows(24, 36)
    module.fusegen_strict = True
    x, shift, row = torch.randn(rows, 24), torch.randn(36), torch.randn(rows, 1)
    closed, grads = torch.rand(rows, 36) < 0.5, (torch.randn(rows, 36), torch.randn(rows, 24))
    torch.autograd.backward(module(x, shift, row, closed), grads)
    found = module.gate.weight.grad.double()
    module = module.double()
    module.zero_grad()
    x, shift, row, (of_filled, of_result) = x.double(), shift.double(), row.double(), (each.double() for each in grads)
    torch.autograd.backward(module.fusegen_reference(x, shift, row, closed), (of_filled, of_result))
    opened = torch.sigmoid(module.gate(x))
    of_product = (of_filled.abs() + of_result.abs() @ module.down.weight.abs()) * ~closed
    value = x.abs() @ module.up.weight.abs().T + module.up.bias.abs() + shift.abs()
    of_gate = (of_product * value).sum(1, keepdim=True) * opened * (1 - opened)
    terms = of_gate.T @ x.abs()
    assert ((found - module.gate.weight.grad).abs() <= 4 * torch.finfo(torch.float32).eps * terms).all()


def made(package):
    torch.manual_seed(1)
    module = package.ConditionedBlock(6, 9).eval()
    module.fusegen_strict = True
    keep = torch.rand(3, 5, 1) < 0.5
    return module, [torch.randn(3, 5, 6), torch.randn(3, 9), torch.randn(5, 9), keep, torch.tensor(1.5)]


def test_inputs_reach_the_regions_as_they_are_given(built) -> None:
    """The kernels of all regions run, and give what the chain is by hand."""
    module, inputs = made(built["conditioned_block"][1])
    assert module.fusegen_kernels(*inputs)
    x, cond, place, keep, factor = inputs
    value, gate = module.up(module.norm(x) * factor).chunk(2, dim=-1)
    value = (value * torch.nn.functional.gelu(gate) * (cond[:, None] + 1) + place) * keep
    torch.testing.assert_close(module(*inputs), module.down(value) * keep + x)


@pytest.mark.parametrize(
    ("index", "shape", "reason"),
    [
        (0, (15, 6), "inputs must be"),
        (1, (3, 1, 9), "input 2 must have 2 dimensions"),
        (2, (1, 5, 9), "input 3 must have 2 dimensions"),
        (3, (5, 1), "as many dimensions each|inputs must be"),
        (4, (1,), "input 5 must have 0 dimensions"),
    ],
)
def test_other_dimensions_are_refused_by_the_place_in_the_call(built, index: int, shape, reason: str) -> None:
    """Before any region runs: the number is that of the module's input, not of the region's."""
    module, inputs = made(built["conditioned_block"][1])
    inputs[index] = torch.zeros(shape, dtype=inputs[index].dtype)
    for call in (module, module.fusegen_kernels):
        with pytest.raises(ValueError, match=f"conditioned_block: .*({reason})"):
            call(*inputs)


def test_a_mask_of_numbers_is_left_to_pytorch(built) -> None:
    module, inputs = made(built["conditioned_block"][1])
    inputs[3] = inputs[3].float()
    use = module.fusegen_kernels(*inputs)
    assert not use and "keep" in use.reason

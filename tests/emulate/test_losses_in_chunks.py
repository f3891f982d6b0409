"""Losses of a linear layer some rows at a time, beside the module without chunks and beside PyTorch."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")


from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import SMALL  # noqa: E402
from fusegen.plan.sizes.module_sizes import several  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.building import write  # noqa: E402
from tests.emulate.convolutions import part_of_support  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """
fusegen: 1
name: chunked_{name}
about: a loss some rows at a time
dims: {{batch: 64, width: 16, classes: 32}}
arguments: {{width: {{type: dim}}, classes: {{type: dim}}, cap: {{type: float, default: 3.0}}}}
inputs: {{x: [batch, width], weight: [batch, 1], target: [batch]}}
dtypes: [float32, bfloat16, float16]
chain:
  - {{op: linear, name: fc, out_features: classes}}
  - {{op: mul, input: weight}}
  - {{op: add, parameter: shift, shape: [classes], init: randn}}
  - {{op: div, constant: cap}}
  - {{op: tanh}}
  - {{op: mul, constant: cap}}
  - {{op: cross_entropy, target: target, chunk: 3, reduction: {name}, label_smoothing: 0.1}}
"""
REDUCTIONS = ("mean", "sum", "none")


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("chunks")
    plans = {name: write(f"chunked_{name}", SPEC.format(name=name), root) for name in REDUCTIONS}
    return {
        name: (
            module_of(plan),
            emulate_package(root / f"chunked_{name}", cache=emulation_cache, checked=name == "mean"),
        )
        for name, plan in plans.items()
    }


def called(packages, name: str, dtype=torch.float32, rows: int = 11):
    torch.manual_seed(0)
    module = getattr(packages[name][1], f"Chunked{name.capitalize()}")(width=6, classes=9).to(dtype)
    module.fusegen_strict = True
    target = torch.randint(0, 9, (rows,))
    target[4] = -100
    inputs = [torch.randn(rows, 6, dtype=dtype), torch.rand(rows, 1, dtype=dtype) + 0.5]
    return module, [each.requires_grad_() for each in inputs], target


def gradients(module, inputs, target, reference=False, by=None):
    """The loss, and the gradients of inputs and parameters."""
    loss = (module.fusegen_reference if reference else module)(*inputs, target)
    found = torch.autograd.grad(loss, [*inputs, *module.parameters()], torch.ones_like(loss) if by is None else by)
    return [loss.detach(), *found]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("rows", [5, 6, 7, 11])
def test_every_gradient(packages, name: str, rows: int) -> None:
    module, inputs, target = called(packages, name, rows=rows)
    by = torch.randn(rows) if name == "none" else torch.tensor(-1.75)
    found, expected = (
        gradients(module, inputs, target, by=by),
        gradients(module.double().float(), inputs, target, True, by),
    )
    assert len(found) == 6 and not found[1][4].any()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_chunks_change_no_bit_of_a_row(packages, name: str) -> None:
    """Losses of rows and gradients of inputs are those of one row, whatever is in its chunk."""
    found = []
    for chunk in (3, 4, 100):
        module, inputs, target = called(packages, name)
        module.fusegen_chunk = chunk
        found.append(gradients(module, inputs, target)[:3])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("chunk", [1, 3, 6])
def test_16_bits(packages, dtype, chunk: int) -> None:
    """At most twice eager's error: the weight's gradient is a sum of float32 where there are many chunks."""
    module, inputs, target = called(packages, "mean", dtype, rows=61)
    module.fusegen_chunk = chunk
    wide = [each.detach().double().requires_grad_() for each in inputs]
    exact = gradients(copy.deepcopy(module).double(), wide, target, True)
    eager = gradients(module, inputs, target, True)
    for own, other, true in zip(gradients(module, inputs, target), eager, exact, strict=True):
        scale = true.abs().max()
        error = (own.double() - true).abs().max() / scale
        assert (
            own.dtype == dtype and error <= 2 * (other.double() - true).abs().max() / scale + 2 * torch.finfo(dtype).eps
        )


def test_the_module_is_verified(packages) -> None:
    plan, package = packages["mean"]
    suite = Suite(Subject(plan, package, "cpu"), full=False)
    (size, *_) = several(plan, SMALL[:1])
    found = [*(each for mode in suite.modes() for each in suite.numerics(mode)), *suite.training(size)]
    assert {"numerics", "training"} == {each.check for each in found}
    assert not [each for each in found if not each.item.ok]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_compiled(packages, name: str) -> None:
    module, inputs, target = called(packages, name)
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager")
    expected = gradients(module, inputs, target)
    loss = compiled(*inputs, target)
    found = torch.autograd.grad(loss, [*inputs, *compiled.parameters()], torch.ones_like(loss))
    for one, other in zip([loss.detach(), *found], expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_without_gradients_the_same_losses(packages) -> None:
    module, inputs, target = called(packages, "none")
    with torch.no_grad():
        found = module(*inputs, target)
    assert torch.equal(found, module(*inputs, target)) and not found.requires_grad


def test_some_gradients_alone(packages) -> None:
    module, inputs, target = called(packages, "mean")
    expected = gradients(module, inputs, target)
    module.fc.weight.requires_grad_(False)
    loss = module(*inputs, target)
    found = torch.autograd.grad(loss, [inputs[0], module.shift])
    torch.testing.assert_close(found[0], expected[1])
    torch.testing.assert_close(found[1], expected[3])


@pytest.mark.parametrize("name", REDUCTIONS)
def test_another_backward_pass(packages, name: str) -> None:
    """Its gradients are made again: those of the first one have been given away, and may be written to."""
    module, inputs, target = called(packages, name)
    loss = module(*inputs, target)
    by = torch.ones_like(loss)
    first = torch.autograd.grad(loss, [*inputs, *module.parameters()], by, retain_graph=True)
    kept = [each.clone() for each in first]
    for each in first:
        each.zero_()
    again = torch.autograd.grad(loss, [*inputs, *module.parameters()], by)
    assert all(torch.equal(*pair) for pair in zip(kept, again, strict=True))


def test_auto_is_by_memory(packages) -> None:
    losses = part_of_support(packages["mean"][1].ChunkedMean, "losses_in_chunks")
    auto = losses.ChunkedLoss("mean", 1, -100)
    module, _, _ = called(packages, "mean")

    def rows(count: int, channels: int) -> int:
        x, weight = (torch.empty(size, 2, dtype=torch.bfloat16, device="meta") for size in (count, channels))
        return auto.rows(module, (x, weight))

    assert rows(8192, 128256) == 1024  # 250 MiB
    assert rows(65536, 128256) == 8192  # no more than eight chunks
    assert rows(8192, 1000) * 1000 * 2 <= 2**28 and rows(8192, 1000) >= 8192
    module.fusegen_chunk = 5
    assert rows(8192, 128256) == 5


def test_the_op(packages) -> None:
    module, inputs, target = called(packages, "mean")
    operator, arguments = module._fusegen_choose((*inputs, target), count=False)
    names = [each.name for each in operator.forward._schema.arguments]
    at = names.index("_dtype_mode")
    ones = torch.ones(11, 1)
    given = [each.detach() if isinstance(each, torch.Tensor) else each for each in arguments]
    given = [*given[:at], ones, *given[at:], 3, [True] * len(operator.gradients)]
    torch.library.opcheck(operator.chunk, tuple(given), test_utils=("test_schema", "test_faketensor"))
    for place, wrong in ((names.index("target"), target[:4]), (0, given[0].double()), (len(given) - 2, 0)):
        with pytest.raises(RuntimeError, match="expected"):
            operator.chunk(*given[:place], wrong, *given[place + 1 :])


@pytest.mark.parametrize("name", REDUCTIONS)
def test_no_row_that_counts(packages, name: str) -> None:
    module, inputs, target = called(packages, name)
    target[:] = -100
    found = gradients(module, inputs, target)
    assert found[0].isnan() if name == "mean" else not found[0].any()
    assert not any(each.any() for each in found[1:])


def test_float16_neither_overflows_nor_vanishes(packages) -> None:
    """The weight's gradient is a sum of 600 rows at 200, before it is divided by their number; an element of the
    product's is 1e-8, before it is multiplied by the scale of a GradScaler."""
    module, _, _ = called(packages, "mean", torch.float16)
    target = torch.zeros(600).long()
    inputs = [(torch.randn(600, 6) + 200).half().requires_grad_(), torch.ones(600, 1).half()]
    with torch.no_grad():
        for each in module.parameters():
            each.zero_()
        module.shift[0] = 8
    for by in (torch.tensor(1.0), torch.tensor(1024.0)):
        found = torch.autograd.grad(module(*inputs, target), [inputs[0], module.fc.weight], by.half())
        wide = [each.detach().double().requires_grad_(each.requires_grad) for each in inputs]
        exact = copy.deepcopy(module).double()
        wanted = torch.autograd.grad(exact.fusegen_reference(*wide, target), [wide[0], exact.fc.weight], by.double())
        for one, other in zip(found, wanted, strict=True):
            assert one.isfinite().all()
            torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("wrong", [0, -1, True, False, 2.5, "3"])
def test_other_numbers_of_rows_are_refused(packages, wrong) -> None:
    module, inputs, target = called(packages, "mean")
    module.fusegen_chunk = wrong
    with pytest.raises(ValueError, match="fusegen_chunk must be"):
        module(*inputs, target)


def test_an_exported_program_has_gradients(packages) -> None:
    """With a free number of rows. Without gradients it has chunks."""
    module, inputs, target = called(packages, "mean")
    given = (*(each.detach() for each in inputs), target)
    rows = torch.export.Dim("rows")
    program = torch.export.export(module, given, dynamic_shapes=({0: rows},) * 3, strict=True)
    loss = program.module()(*given)
    assert loss.requires_grad
    torch.testing.assert_close(loss, module(*given))
    with torch.no_grad():
        program = torch.export.export(module, given, dynamic_shapes=({0: rows},) * 3, strict=True)
    assert "chunk" in str(program.graph)


def test_an_incoming_gradient_that_is_no_number(packages) -> None:
    """Rows that are ignored keep zeros, as PyTorch has it."""
    module, inputs, target = called(packages, "mean")
    for by in (torch.nan, torch.inf):
        found = gradients(module, inputs, target, by=torch.tensor(by))
        assert not found[1][4].any() and not found[1][[0, 3, 5]].isfinite().any()
        assert not any(each.isfinite().any() for each in found[4:])

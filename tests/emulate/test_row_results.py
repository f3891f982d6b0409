"""Chains whose result has one value for each row: [rows, 1], or [rows] where a reduction drops the dimension."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.emulate import compile_kernels  # noqa: E402
from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.errors import SpecError  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import SMALL  # noqa: E402
from fusegen.plan.sizes.module_sizes import several  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.building import write  # noqa: E402
from tests.emulate.other_chains import BN, Other, parameter  # noqa: E402
from tests.emulate.test_chains import agreement, count_batch, schedules_of  # noqa: E402
from tests.emulate.test_other_chains import build  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

# Two passes over a row; one behind the columns' statistics; reductions of what follows from others.
CHAINS = {
    "logsumexp_last": Other(
        ("{op: gelu}", parameter("mul", "scale", "[features]"), "{op: logsumexp, keepdim: false}", "{op: square}"),
        square=False,
    ),
    # Of what lies in memory: nothing is computed of an element, and the gradient reads none.
    "sum_of_x": Other(("{op: sum, keepdim: false}",), linear=False),
    "behind_columns": Other(
        (BN, "{op: silu}", "{op: mean, keepdim: true}", parameter("mul", "w", "[1, 1]")), square=False
    ),
    "largest_and_spread": Other(
        (
            *("{op: gelu, save: v}", "{op: amax, keepdim: true, save: a}", "{op: sub, value: v, save: u}"),
            *("{op: max, keepdim: true, dim: 1}", "{op: add, value: u}", "{op: std, keepdim: true}"),
            "{op: hypot, value: a}",
        ),
        linear=False,
    ),
}
# One row, one channel; rows of part of a warp, of a block, of a large block, and those that registers do not hold.
SIZES = ((1, 7), (3, 2), (33, 12), (5, 33), (3, 1025), (2, 20001))


# With one module for each dtype; test_cross_entropy.py has autocast.
TEXT = CHAINS["logsumexp_last"].spec("logsumexp_last").replace("[float32]", "[float32, bfloat16]")
PLAIN = (0, 1)


@pytest.mark.parametrize("name", CHAINS)
def test_every_schedule_against_double_precision(name: str, emulation_cache: Path, tmp_path: Path) -> None:
    text, modes = (TEXT, PLAIN) if name == "logsumexp_last" else (CHAINS[name].spec(name), [0])  # as in `package`
    plan = write(name, text, tmp_path)
    mode, variant = plan.modes[0], plan.variants[0]
    library = compile_kernels(tmp_path / name / "kernels.cu", cache=emulation_cache, modes=modes)
    for seed, (rows, channels) in enumerate(SIZES):
        if rows == 1 and plan.chain.batch_norms:
            continue
        torch.manual_seed(seed)
        module = build(fusegen.load(name, tmp_path), plan, channels).float()
        tensors = {plan.chain.source.name: torch.randn(rows, channels), variant.result_gradient: torch.randn(rows, 1)}
        expected = tail_reference(plan, module, tensors, mode, True)
        assert expected[variant.result].shape == (rows, 1)
        tail = EmulatedTail(plan, variant, library, module)
        count_batch(plan, module, training=True)
        assert sum(agreement(tail, tensors, mode, each, seed, expected) for each in schedules_of(variant)) >= 4


def test_no_kernel_goes_over_the_elements_for_nothing(tmp_path: Path) -> None:
    other = Other(("{op: norm, keepdim: false}", "{op: log1p}"), linear=False)
    forward = write("norm_alone", other.spec("norm_alone"), tmp_path).variants[0].forward
    assert [[kernel.kind for kernel in each.kernels] for each in forward.schedules] == [["row"], ["row_reduction"]]


@pytest.fixture(scope="module")
def package(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("rows")
    plan = write("logsumexp_last", TEXT, root)
    assert [plan.modes[index].name for index in PLAIN] == ["float32", "bfloat16"]
    return module_of(plan), emulate_package(root / "logsumexp_last", cache=emulation_cache, checked=False)


def test_the_module_is_verified(package) -> None:
    suite = Suite(Subject(*package, "cpu"), full=False)
    (size, *_) = several(package[0], SMALL[:1])
    found = [*(each for i in PLAIN for each in suite.numerics(package[0].modes[i])), *suite.leading()]
    found += [*suite.training(size)]
    assert {"numerics", "leading dimensions", "training"} == {each.check for each in found}
    assert not [each for each in found if not each.item.ok]


@pytest.mark.parametrize("in_cpp", [True, False], ids=["C++", "Python"])
@pytest.mark.parametrize("leading", [(5,), (2, 3), ()], ids=str)
def test_shapes_are_those_of_eager(package, leading, in_cpp, monkeypatch) -> None:
    module = package[1].LogsumexpLast(in_features=6, features=8)
    monkeypatch.setattr(package[1]._fused, "in_cpp", in_cpp)
    module.fusegen_strict = True
    x = torch.randn(*leading, 6, requires_grad=True)
    result, expected = module(x), module.fusegen_reference(x)
    assert result.shape == expected.shape == leading
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager")
    mine, theirs = (torch.autograd.grad(y.square().sum(), x)[0] for y in (compiled(x), expected))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


CONVOLUTION = """
fusegen: 1
name: of_positions
about: the largest of each position
dims: {batch: 4, channels: 3, height: 6, width: 5, out: 8}
arguments: {channels: {type: dim}, out: {type: dim}}
inputs: {x: [batch, channels, height, width]}
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3}
  - {op: softplus}
  - {op: sum, dim: 1, keepdim: false}
  - {op: mul, constant: 0.25}
"""


def test_positions_without_channels(tmp_path: Path, emulation_cache: Path) -> None:
    write("of_positions", CONVOLUTION, tmp_path)
    package = emulate_package(tmp_path / "of_positions", cache=emulation_cache, checked=False)
    module, format_ = package.OfPositions(3, 8), torch.channels_last
    module.fusegen_strict = True
    for x in (torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 5).to(memory_format=format_)):
        assert module(x).shape == (2, 4, 3) and module(x).stride() == module.fusegen_reference(x).stride()
        original = type("Eager", (package.OfPositions,), {"forward": package.OfPositions.fusegen_reference})(3, 8)
        original.load_state_dict(module.state_dict())
        assert all(each.ok for each in compare_module(module, original, [x.requires_grad_()]))


SUM = "{op: sum, keepdim: false}"
REFUSED = {
    "a value of elements": (("{op: tanh, save: v}", SUM, "{op: add, value: v}"), (), "'v' is of two dimensions"),
    "an input": ((SUM, "{op: add, input: r}"), ("r",), "the input 'r' is not"),
    "values of the channels": ((SUM, parameter("add", "p", "[features]")), (), "no dimension pairs"),
    "a parameter of two dimensions": ((SUM, parameter("add", "p", "[1, 1]")), (), r"parameter 'p' is \[1, 1\]"),
    "a value with its dimension": (
        ("{op: tanh, save: v}", "{op: sum, keepdim: true, save: s}", "{op: add, value: v}", SUM, "{op: add, value: s}"),
        *((), "'s' is of two dimensions"),
    ),
    "a norm": ((SUM, "{op: softmax}"), (), "softmax needs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_no_rows_are_paired_with_channels(case: str, tmp_path: Path) -> None:
    """As PyTorch would where both are as many."""
    steps, inputs, message = REFUSED[case]
    with pytest.raises(SpecError, match=f"FG309.*{message}"):
        write("refused", Other(steps, inputs=inputs).spec("refused"), tmp_path)


def test_values_without_channels_combine(tmp_path: Path) -> None:
    steps = (SUM.replace("}", ", save: s}"), "{op: tanh}", "{op: mul, value: s}", parameter("add", "p", "[1]"))
    assert write("combined", Other(steps).spec("combined"), tmp_path).chain.result.drops_channels

"""Cross entropy with the numbers of channels, as the last step of a chain, beside F.cross_entropy."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fusegen.emulate import EmulationError, compile_kernels  # noqa: E402
from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.errors import SpecError  # noqa: E402
from fusegen.plan.load import planned_document  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import SMALL  # noqa: E402
from fusegen.plan.sizes.module_sizes import several  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402
from fusegen.verify.checks import execution  # noqa: E402
from fusegen.verify.runs.targets import make_targets  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.building import forced_shapes, module_class, write  # noqa: E402
from tests.emulate.convolutions import part_of_support  # noqa: E402
from tests.emulate.suites import emulated_suite  # noqa: E402
from tests.emulate.test_chains import schedules_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """
fusegen: 1
name: {name}
about: a loss
dims: {{batch: 64, classes: 32{dims}}}
arguments: {{classes: {{type: dim}}{arguments}}}
inputs: {{x: [batch, {width}], target: [batch]}}
dtypes: [{dtypes}]
chain:
{chain}  - {{op: cross_entropy, target: target{options}}}
"""


def spec(name: str, options: str = "", linear: bool = False, dtypes: str = "float32") -> str:
    return SPEC.format(
        name=name,
        dims=", width: 16" * linear,
        arguments=", width: {type: dim}" * linear,
        width="width" if linear else "classes",
        dtypes=dtypes,
        chain="  - {op: linear, name: fc, out_features: classes}\n" * linear,
        options=options,
    )


OPTIONS = {"plain": ", reduction: none", "smooth": ", reduction: none, ignore_index: 2, label_smoothing: 0.25"}
# Infinities and NaN, at the target and elsewhere; rows of equal values.
SPECIAL = (
    (0.0,),
    (-math.inf,),
    (-math.inf, 1.0, 2.0),
    (2.0, -math.inf, 0.0),
    (math.inf, 0.0),
    (math.nan, 0.0),
    (1e4, -1e4, 0.5),
)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_schedule(name: str, emulation_cache: Path, tmp_path: Path) -> None:
    """One row, one channel, sizes without vectors, and rows that registers do not hold."""
    plan = write(name, spec(name, OPTIONS[name]), tmp_path)
    mode, (variant,) = plan.modes[0], plan.variants
    library = compile_kernels(tmp_path / name / "kernels.cu", cache=emulation_cache, modes=[mode.index])
    module = module_class(plan, tmp_path)(8)
    tail = EmulatedTail(plan, variant, library, module)
    for seed, (rows, channels) in enumerate(((1, 33), (4, 1), (40, 12), (9, 1030), (3, 20001))):
        torch.manual_seed(seed)
        special = [[row[min(i, len(row) - 1)] for i in range(channels)] for row in SPECIAL]
        x = torch.cat([torch.randn(rows, channels) * 4, torch.tensor(special)])
        target = torch.randint(0, channels, (len(x),))
        target[rows:] = 0
        target[: rows // 3] = 2 if name == "smooth" else -100
        if rows > 3 and channels > 2:
            target[rows + 2] = 2
        tensors = {"x": x, "target": target, variant.result_gradient: torch.randn(len(x), 1)}
        expected = tail_reference(plan, module, tensors, mode, True)
        compared = 0
        for schedule in schedules_of(variant):
            try:
                found = tail.run(tensors, mode, shapes=forced_shapes(schedule), seed=seed).values
            except EmulationError as error:
                assert "CUDA error 9" in str(error)  # the row does not fit
                continue
            for key in ("y", "grad_x"):
                torch.testing.assert_close(
                    found[key].double(), expected[key].view(found[key].shape), rtol=1e-5, atol=1e-5, equal_nan=True
                )
                compared += 1
        assert compared >= 4


@pytest.fixture(scope="module")
def package(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("losses")
    plan = write("mean_loss", spec("mean_loss", linear=True, dtypes="float32, bfloat16"), root)
    return module_of(plan), emulate_package(root / "mean_loss", cache=emulation_cache, checked=False)


def test_the_module_is_verified(package) -> None:
    suite = Suite(Subject(*package, "cpu"), full=False)
    (size, *_) = several(package[0], SMALL[:1])
    found = [*(each for mode in suite.modes() for each in suite.numerics(mode)), *suite.leading()]
    found += [*suite.training(size)]
    assert {"numerics", "leading dimensions", "training"} == {each.check for each in found}
    assert not [each for each in found if not each.item.ok]


WITHOUT_A_LAYER = """
fusegen: 1
name: loss_alone
dims: {batch: 64, features: 32}
inputs: {x: [batch, features], target: [batch]}
chain:
  - {op: mul, constant: 0.5}
  - {op: cross_entropy, target: target}
"""
BEHIND_A_BRANCH = """
fusegen: 1
name: loss_behind
dims: {batch: 64, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, features], target: [batch]}
chain:
  - {op: linear, name: up, out_features: 2 * hidden}
  - {op: swiglu}
  - {op: sum, keepdim: true, save: total}
  - {op: mul, from: x, value: total}
  - {op: cross_entropy, target: target}
"""


@pytest.mark.parametrize("text", [WITHOUT_A_LAYER, BEHIND_A_BRANCH], ids=["alone", "behind a branch"])
def test_a_loss_of_values_that_no_layer_makes_is_verified(text: str, tmp_path: Path, emulation_cache: Path) -> None:
    """Its targets name all channels of the first input, and torch.compile sees how they are made."""
    plan = planned_document(parse_yaml(text, "spec.yaml"))
    suite = emulated_suite(plan, tmp_path, emulation_cache)
    size, mode = suite._size(), suite.modes()[0]
    _, original, (x, *_) = suite.subject.pair(size, mode, seed=1)
    assert make_targets(plan, original, x).max() >= size.number("features") // 2
    found = suite._one("torch.compile", size, mode, "", suite._behaviour, execution.compiled, size, mode)
    assert all(finding.item.ok for finding in found)


@pytest.fixture
def called(package):
    torch.manual_seed(0)
    module = package[1].MeanLoss(width=6, classes=9)
    module.fusegen_strict = True
    target = torch.randint(0, 9, (11,))
    target[4] = -100
    return module, torch.randn(11, 6, requires_grad=True), target


def test_the_mean_is_of_the_rows_that_count(called) -> None:
    module, x, target = called
    loss, expected = module(x, target), F.cross_entropy(module.fc(x), target)
    assert loss.shape == () and loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected)
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager")
    gradients = [torch.autograd.grad(each, x)[0] for each in (module(x, target), compiled(x, target), expected)]
    torch.testing.assert_close(gradients[0], gradients[2])
    assert torch.equal(gradients[0], gradients[1]) and not gradients[0][4].any()
    assert module(x, torch.full_like(target, -100)).isnan()


class Called(TorchDispatchMode):
    """Notes which operators compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        if name.startswith("fusegen::") or name.rpartition("::")[2] in ("sum", "ne", "div", "mul", "_to_copy", "clone"):
            self.names.append("kernel" if name.startswith("fusegen::") else name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_kernel_takes_the_mean(called, dtype) -> None:
    """With one operator of PyTorch's in the backward pass, which makes the gradients of rows."""
    module, x, target = called
    module, x = module.to(dtype), x.detach().to(dtype).requires_grad_()
    with Called() as seen:
        loss = module(x, target)
        forward = len(seen.names)
        gradient, *_ = torch.autograd.grad(loss, [x, *module.parameters()], torch.full_like(loss, 3))
    assert seen.names[:forward] == ["kernel", "kernel"] and seen.names[forward:] == ["aten::div", "kernel"]
    x64 = x.detach().double().requires_grad_()
    expected = F.cross_entropy(F.linear(x64, *(each.double() for each in module.parameters())), target)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(loss.double(), expected, **tolerance)
    torch.testing.assert_close(gradient.double(), torch.autograd.grad(3 * expected, x64)[0], **tolerance)
    with torch.no_grad(), Called() as seen:
        assert torch.equal(module(x, target), loss) and seen.names == ["kernel", "kernel"]


def test_pytorch_takes_the_mean_of_many_rows(called, monkeypatch) -> None:
    module, x, target = called
    losses = part_of_support(type(module), "losses")
    found = [torch.autograd.grad(module(x, target), x)[0]]
    monkeypatch.setattr(losses, "_MOST_ROWS", 10)
    with Called() as seen:
        found.append(torch.autograd.grad(module(x, target), x)[0])
    assert seen.names.count("kernel") == 2 and torch.equal(*found)


def test_the_op_that_takes_the_mean(called) -> None:
    module, _, target = called
    op = part_of_support(type(module), "losses")._op(module._fusegen_package)
    for mode, dtype in ((0, torch.float32), (1, torch.bfloat16)):
        given = torch.rand(11, dtype=dtype)
        for weights in (None, torch.rand(9)):
            torch.library.opcheck(
                op, (given, target, weights, -100, mode), test_utils=("test_schema", "test_faketensor")
            )
    for wrong in (
        (given.double(), target, None, -100, 1),
        (given, target[:4], None, -100, 1),
        (given, target.int(), None, -100, 1),
        (given, target, given, -100, 1),
    ):
        with pytest.raises(RuntimeError, match="expected (dtype|shape)"):
            op(*wrong)


def test_a_target_that_is_no_channel_is_no_number(called) -> None:
    module, x, target = called
    for wrong in (9, -1, 2**40):
        target[7] = wrong
        loss = module(x, target)
        (gradient,) = torch.autograd.grad(loss, x)
        assert loss.isnan() and gradient[7].isnan().all() and gradient[[0, 5, 10]].isfinite().all()


def test_other_targets_take_pytorchs_operators(called) -> None:
    """Probabilities, which F.cross_entropy takes for other values of the same argument."""
    module, x, _ = called
    module.fusegen_strict = False
    target = torch.rand(11, 9)
    assert "target is torch.float32" in module.fusegen_kernels(x, target).reason
    with pytest.warns(UserWarning, match="target is torch.float32"):
        torch.testing.assert_close(module(x, target), F.cross_entropy(module.fc(x), target))


POSITIONS = """
fusegen: 1
name: loss_of_positions
about: a class for each position
dims: {batch: 4, channels: 3, height: 6, width: 5, classes: 8, out_height: 4, out_width: 3}
arguments: {channels: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, channels, height, width], labels: [batch, out_height, out_width]}
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: classes, kernel_size: 3}
  - {op: cross_entropy, target: labels, reduction: sum}
"""


def test_positions(tmp_path: Path, emulation_cache: Path) -> None:
    write("loss_of_positions", POSITIONS, tmp_path)
    module = emulate_package(tmp_path / "loss_of_positions", cache=emulation_cache, checked=False).LossOfPositions(3, 8)
    module.fusegen_strict = True
    x, target = torch.randn(2, 3, 6, 5), torch.randint(0, 8, (2, 3, 4)).mT
    loss, expected = module(x, target), F.cross_entropy(module.conv(x), target, reduction="sum")
    torch.testing.assert_close(loss, expected)
    gradients = [torch.autograd.grad(each, module.conv.weight)[0] for each in (loss, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


REFUSED = {
    "no input": (spec("refused").replace("target: target", "target: labels"), "FG301.*no input named 'labels'"),
    "another shape": (spec("refused").replace("target: [batch]", "target: [batch, classes]"), "FG303.*target"),
    "the first input": (spec("refused").replace("target: target", "target: x"), "FG303.*is no target"),
    "not the last": (spec("refused") + "  - {op: tanh}\n", "FG308.*can only be the last step"),
    "a share of two": (spec("refused", ", label_smoothing: 2"), "label_smoothing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, tmp_path: Path) -> None:
    text, message = REFUSED[case]
    with pytest.raises(SpecError, match=message):
        write("refused", text, tmp_path)

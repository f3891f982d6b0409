"""Products with a weight that is the module's own parameter, on the CPU: both ways that it may lie, with a bias."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.verify.checks import memory, operators, precisions  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.training import compare_steps  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """\
fusegen: 1
name: {name}
dims: {{batch: 32, features: 24, hidden: 16}}
arguments:
  features: {{type: dim}}
  hidden: {{type: dim}}
inputs: {{x: [batch, features]}}
dtypes: [float32, bfloat16]
chain:
  - {{op: matmul, parameter: weight, {weight}}}
  - {{op: {norm}, name: norm}}
  - {{op: silu}}
"""
WEIGHTS = {
    "by_columns": "shape: [features, hidden], init: randn, precision: fp32_split",
    "by_rows": "shape: [hidden, features], init: randn, transposed: true, bias: bias, bias_init: 0.5",
}
NORMS = {"by_columns": "layer_norm", "by_rows": "batch_norm"}
# Each weight with a bias in the product and without is multiplied by float32, and by 16 bits in one way.
MODES = {"by_columns": ("float32", "autocast bfloat16"), "by_rows": ("float32", "bfloat16")}
ROWS, WIDTH, CHANNELS = 9, 24, 16


class ByColumns(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, hidden))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x):
        return F.silu(self.norm(x @ self.weight))


class ByRows(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden, features))
        self.bias = nn.Parameter(torch.full((hidden,), 0.5))
        self.norm = nn.BatchNorm1d(hidden)

    def forward(self, x):
        return F.silu(self.norm(F.linear(x, self.weight, self.bias)))


ORIGINALS = {"by_columns": ByColumns, "by_rows": ByRows}


@pytest.fixture(scope="module")
def subjects(tmp_path_factory, emulation_cache):
    root, found = tmp_path_factory.mktemp("own_weights"), {}
    for name, weight in WEIGHTS.items():
        plan = write(name, SPEC.format(name=name, weight=weight, norm=NORMS[name]), root)
        package = emulate_package(root / name, cache=emulation_cache, checked=False)
        found[name] = Subject(module_of(plan), package, "cpu", ORIGINALS[name])
    return found


@pytest.fixture(params=WEIGHTS)
def subject(request, subjects):
    return subjects[request.param]


def pair(subject, dtype=torch.float32):
    """Generated and original module with one state, and an input."""
    torch.manual_seed(3)
    original = subject.original(WIDTH, CHANNELS)
    fused = subject.fused_class(WIDTH, CHANNELS)
    with torch.no_grad():
        for each in original.parameters():
            each.add_(torch.randn_like(each), alpha=0.3)
    fused.load_state_dict(original.state_dict())
    fused.fusegen_strict = True
    return fused.to(dtype), original.to(dtype), torch.randn(ROWS, WIDTH, dtype=dtype, requires_grad=True)


def failures(comparisons):
    return [item for item in comparisons if not item.ok]


def test_the_state_is_the_original_modules(subject) -> None:
    states = []
    for make in (subject.original, subject.fused_class):
        torch.manual_seed(5)
        states.append(make(WIDTH, CHANNELS).state_dict())
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, modes in MODES.items() for mode in modes])
def test_as_accurate_as_eager(subjects, name, mode) -> None:
    autocast = torch.bfloat16 if "autocast" in mode else None
    fused, original, x = pair(subjects[name], torch.float32 if autocast else getattr(torch, mode))
    for train in (True, False):
        found = compare_module(fused, original, [x], autocast_dtype=autocast, train=train)
        assert {item.name for item in found} >= {"output", "grad input", "grad weight"} and not failures(found)
        assert all(item.fused.largest > 0 for item in found if item.name in ("output", "grad weight"))


@pytest.mark.parametrize("precision", ["fp32_split", "bf16", "fp16"])
def test_precisions(subject, precision) -> None:
    fused, original, x = pair(subject)
    if precision == "fp32_split":
        found = compare_module(precisions.with_precision(fused, precision), original, [x])
        assert not failures([*found, *memory.footprint(fused, original, [x])])
    else:
        assert not failures(precisions.rounded_operands(fused, original, [x]))


def test_training(subject) -> None:
    fused, original, x = pair(subject)
    batches = [[torch.randn_like(x)] for _ in range(3)]
    assert not failures(compare_steps(fused, original, batches))


def test_gradients_lie_as_the_weights(subject) -> None:
    fused, _, x = pair(subject)
    fused(x).sum().backward()
    assert fused.weight.grad.stride() == fused.weight.stride()


def test_other_dimensions(subjects) -> None:
    fused, original, _ = pair(subjects["by_columns"])
    for shape in ((WIDTH,), (2, 3, WIDTH)):
        x = torch.randn(shape)
        torch.testing.assert_close(fused(x), original(x), rtol=1e-5, atol=1e-5)


def test_what_is_refused(subject) -> None:
    fused, _, x = pair(subject)
    fused.fusegen_strict = False
    with pytest.raises(ValueError, match=rf"x must be \[\*, {WIDTH}\], got \[9, 7\]"):
        fused(torch.randn(ROWS, 7))
    fused.weight = nn.Parameter(torch.randn(2, WIDTH, WIDTH))
    assert "weight is no strided tensor of 2 dimensions" in fused.fusegen_kernels(x).reason


def test_a_parametrised_weight(subject) -> None:
    fused, _, x = pair(subject)
    fused = parametrizations.weight_norm(fused)
    assert fused.fusegen_kernels(x)
    results = []
    for call in (fused, fused.fusegen_reference):
        y = call(x)
        results.append([y, *torch.autograd.grad(y.square().sum(), list(fused.parameters()))])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3)


@torch.no_grad()
def test_pieces_are_kept_and_renewed(subject, monkeypatch) -> None:
    """In evaluation, on request, of the parameter, whichever way it lies."""
    fused, _, x = pair(subject)
    module, split, split_rows = precisions.with_precision(fused.eval(), "fp32_split"), None, []
    module.fusegen_keep_pieces = True
    operators_of = [each for each in vars(subject.package).values() if type(each).__name__ == "Operator"]
    for each in operators_of:
        split = each.split
        monkeypatch.setattr(each, "split", lambda values, split=split: split_rows.append(len(values)) or split(values))
    first = module(x)
    assert torch.equal(module(x), first) and split_rows == [ROWS, CHANNELS, ROWS]
    module.weight.mul_(2)
    other = copy.deepcopy(module)
    assert torch.equal(module(x), other(x)) and not torch.equal(module(x), first)


def test_operators_and_compile(subject) -> None:
    fused, original, x = pair(subject)
    assert not failures(operators.opcheck(fused, original, [x]))
    torch._dynamo.reset()
    compiled = torch.compile(copy.deepcopy(fused), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), fused(x), rtol=1e-5, atol=1e-5)

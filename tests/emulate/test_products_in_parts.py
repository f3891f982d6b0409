"""Products that no layer makes, divided into parts, with dropout behind them and without the planner's rewrites."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.ir.rewrites import REWRITES  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import sizes  # noqa: E402
from fusegen.verify.checks.batches import batches  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.runs.dropout_replay import seeded  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

OWN = f"""\
fusegen: 1
name: own_parts
dims: {{batch: 64, features: 48, hidden: 40}}
arguments: {{features: {{type: dim}}, hidden: {{type: dim}}}}
inputs: {{x: [batch, features]}}
dtypes: [float32]
rewrites: {{{", ".join(f"{name}: false" for name in REWRITES)}}}
chain:
  - {{op: matmul, parameter: weight, shape: ["2 * hidden", features], init: randn, transposed: true,
     bias: bias, bias_init: zeros}}
  - {{op: chunk, parts: [a, gate]}}
  - {{op: mul, constant: 3}}
  - {{op: add, parameter: shift, shape: [hidden], init: ones}}
  - {{op: dropout, name: drop, p: 0.25}}
  - {{op: mul, value: gate}}
"""
BATCHED = """\
fusegen: 1
name: bmm_parts
dims: {batch: 4, queries: 33, features: 16, hidden: 24}
inputs: {q: [batch, queries, features], k: [batch, "2 * hidden", features]}
dtypes: [float32]
chain:
  - {op: bmm, input: k, transposed: true}
  - {op: chunk, parts: [a, gate], running: gate}
  - {op: sigmoid}
  - {op: dropout, name: drop, p: 0.25}
  - {op: drop_path, name: path, p: 0.25}
  - {op: mul, value: a}
"""
# rows, features, channels of a part
SIZES = {"odd": (9, 7, 13, 1), "vectors": (6, 16, 24, 1)}


class OwnParts(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(2 * hidden, features)), nn.Parameter(torch.zeros(2 * hidden))
        self.shift, self.drop = nn.Parameter(torch.ones(hidden)), nn.Dropout(0.25)

    def forward(self, x):
        a, gate = F.linear(x, self.weight, self.bias).chunk(2, -1)
        return self.drop(a * 3 + self.shift) * gate


@pytest.fixture(scope="module")
def subjects(tmp_path_factory, emulation_cache):
    root, found = tmp_path_factory.mktemp("products_in_parts"), {}
    for name, text, original in (("own_parts", OWN, OwnParts), ("bmm_parts", BATCHED, None)):
        plan = write(name, text, root)
        package = emulate_package(root / name, cache=emulation_cache, checked=False)
        found[name] = Subject(module_of(plan), package, "cpu", original)
    return found


def pair(subject, size):
    fused, original, inputs = subject.pair(sizes(subject.plan.single, *SIZES[size]), subject.plan.modes[0], 3)
    fused.fusegen_strict = True
    return fused, original, inputs


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["own_parts", "bmm_parts"])
def test_as_accurate_as_eager(subjects, name, size) -> None:
    fused, original, inputs = pair(subjects[name], size)
    for train in (True, False):
        found = compare_module(fused, original, inputs, train=train)
        assert len(found) > 3 and not [item for item in found if not item.ok]


def test_batches_in_parts(subjects) -> None:
    """A sample is an index of the first dimension, and has all rows of its matrix."""
    found = batches(*pair(subjects["bmm_parts"], "odd"))
    assert len(found) > 6 and not [item for item in found if not item.ok]


def test_a_parametrised_weight_in_parts(subjects) -> None:
    """The weight is computed once in a call, and the call draws once."""
    fused, original, inputs = pair(subjects["own_parts"], "odd")
    results = []
    for module in (fused, original):
        parametrizations.spectral_norm(module)
    original.load_state_dict(fused.state_dict())
    for module in (fused, original):
        with seeded(fused, inputs[0]):
            y = module(*inputs)
        gradients = torch.autograd.grad(y.square().sum(), [*inputs, *module.parameters()])
        results.append([y, *gradients, *module.buffers()])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_channels_without_equal_parts(subjects) -> None:
    fused, _, (q, k) = pair(subjects["bmm_parts"], "odd")
    assert "no equal parts" in fused.fusegen_kernels(q, k[:, :-1]).reason

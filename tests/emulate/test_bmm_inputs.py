"""Further inputs of any shape behind a product of two inputs, masks, and several results, on the CPU."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import typical  # noqa: E402
from fusegen.plan.sizes.module_sizes import module_sizes, module_typical  # noqa: E402
from fusegen.verify.checks import behaviour  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

# Scores of attention: what every query has, every batch, every key, one row of keys for each batch; two results.
SCORES = """\
fusegen: 1
name: masked_scores
dims: {batch: 3, queries: 5, keys: 7, width: 4}
inputs:
  q: [batch, queries, width]
  k: [batch, keys, width]
  bias: [queries, keys]
  slope: [batch, 1, 1]
  shift: [batch, keys]
  key: [keys]
  causal: [queries, keys]
  padding: [batch, 1, keys]
dtypes: [float32]
chain:
  - {op: bmm, input: k, transposed: true, save: scores}
  - {op: mul, input: slope, times: 0.5, plus: 1}
  - {op: add, input: bias}
  - {op: add, input: shift}
  - {op: sub, input: key}
  - {op: masked_fill, mask: causal, constant: -3.0}
  - {op: masked_fill, mask: padding, constant: -2.5}
  - {op: softmax}
outputs: [result, scores]
"""
# The same for all leading dimensions there are: the call may have any number. k is an operand of the tail, too.
KEYS = """\
fusegen: 1
name: scored_keys
dims: {batch: 3, rows: 5}
inputs: {q: [batch, rows, rows], k: [batch, rows, rows], key: [rows], number: [1], keep: [rows]}
dtypes: [float32]
chain:
  - {op: bmm, input: k}
  - {op: mul, input: key}
  - {op: add, input: number}
  - {op: masked_fill, mask: keep, constant: 0}
  - {op: mul, input: k}
  - {op: add, input: q}
"""


@pytest.fixture(scope="module")
def subjects(tmp_path_factory, emulation_cache):
    root, found = tmp_path_factory.mktemp("bmm_inputs"), {}
    for name, text in (("masked_scores", SCORES), ("scored_keys", KEYS)):
        plan = write(name, text, root)
        package = emulate_package(root / name, cache=emulation_cache, checked=False)
        found[name] = Subject(module_of(plan), package, "cpu")
    return found


def failures(comparisons):
    return [item for item in comparisons if not item.ok]


@pytest.mark.parametrize("name", ["masked_scores", "scored_keys"])
@pytest.mark.parametrize("size", [(33, 6, 11, 1), (1, 16, 24, 1), None], ids=["odd", "one row", "typical"])
def test_beside_the_original(subjects, name, size) -> None:
    subject = subjects[name]
    chosen = module_sizes(subject.plan, *size) if size else module_typical(subject.plan)
    fused, original, inputs = subject.pair(chosen, subject.plan.modes[0], 3)
    fused.fusegen_strict = True
    found = compare_module(fused, original, inputs)
    wanted = {f"grad input {index + 1}" for index, x in enumerate(inputs) if index and x.requires_grad}
    assert {item.name for item in found} >= {"output", "grad input", *wanted} and not failures(found)
    if size is None:
        assert not failures([*behaviour.strides(fused, original, inputs), *behaviour.frozen(fused, original, inputs)])


def by_hand(q, k, bias, slope, shift, key, causal, padding):
    scores = q @ k.mT
    y = scores * (slope * 0.5 + 1) + bias + shift[:, None] - key
    y = y.masked_fill(causal, -3.0).masked_fill(padding, -2.5)
    return F.softmax(y, -1), scores


def test_the_sums_of_what_is_spread(subjects) -> None:
    """Beside the chain by hand: each gradient has the shape of its input."""
    subject = subjects["masked_scores"]
    fused, _, inputs = subject.pair(typical(subject.plan.single), subject.plan.modes[0], 4)
    fused, results = type(fused).__mro__[1](), []  # what returns both
    fused.fusegen_strict = True
    for call in (fused, by_hand):
        y, scores = call(*inputs)
        wanted = [x for x in inputs if x.requires_grad]
        results.append([y, scores, *torch.autograd.grad(y.square().sum() + scores.sin().sum(), wanted)])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_more_dimensions(subjects) -> None:
    """Where all rows have the same of an input, a batch may have several dimensions; elsewhere it has one."""
    keys, scores = subjects["scored_keys"], subjects["masked_scores"]
    fused, original, (_, _, *others) = keys.pair(typical(keys.plan.single), keys.plan.modes[0], 3)
    fused.fusegen_strict = True
    given = [torch.randn(2, 3, 5, 5) for _ in range(2)]
    torch.testing.assert_close(fused(*given, *others), original(*given, *others), rtol=1e-5, atol=1e-5)
    fused, _, inputs = scores.pair(typical(scores.plan.single), scores.plan.modes[0], 3)
    with pytest.raises(ValueError, match="the spec gives its inputs so many"):
        fused(*(x[None] if x.dim() == 3 else x for x in inputs))


def test_torch_compile_without_graph_break(subjects) -> None:
    subject = subjects["masked_scores"]
    fused, _, inputs = subject.pair(typical(subject.plan.single), subject.plan.modes[0], 3)
    torch._dynamo.reset()
    compiled, results = torch.compile(copy.deepcopy(fused), fullgraph=True, backend="aot_eager"), []
    wanted = [x for x in inputs if x.requires_grad]
    for call in (fused, compiled):
        y = call(*inputs)
        results.append([y, *torch.autograd.grad(y.square().sum(), wanted)])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)

"""Modules with a condition of fewer rows, a gate of one channel behind a convolution, a loss beside its logits: on the
emulator, beside the same in nn.Modules."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.plan.load import planned_file  # noqa: E402
from tests.emulate.suites import compared, emulated_suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

HEAD = "fusegen: 1\nname: {name}\ndtypes: {dtypes}\n"
# The condition's rows are a batch norm's, whose statistics move; its region's parts are operands of later ones.
MODULATED = """\
dims: {batch: 4, positions: 16, features: 32, cond: 24}
arguments: {features: {type: dim}, cond: {type: dim}}
inputs: {x: [batch, positions, features], c: [batch, cond]}
chain:
  - {op: batch_norm, from: c, name: bn}
  - {op: linear, name: modulation, out_features: 3 * features}
  - {op: chunk, parts: [shift, scale, gate]}
  - {op: layer_norm, from: x, name: norm, affine: false}
  - {op: mul, value: scale, plus: 1}
  - {op: add, value: shift}
  - {op: linear, name: proj, out_features: features, save: projected}
  - {op: sigmoid, from: gate}
  - {op: div, value: projected, swap: true}
  - {op: add, input: x}
"""
GATED = """\
dims: {batch: 4, channels: 8, height: 12, width: 10}
arguments: {channels: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: conv2d, name: conv, out_channels: 1, kernel_size: 3, padding: 1}
  - {op: sigmoid}
  - {op: sub, input: x, save: gated}
  - {op: relu}
outputs: [result, gated]
"""
LOSS = """\
dims: {batch: 4, channels: 8, hidden: 12, classes: 10, height: 12, width: 10, lower: 6, narrower: 5}
arguments: {channels: {type: dim}, hidden: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, channels, height, width], target: [batch, lower, narrower]}
chain:
  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 3, stride: 2, padding: 1}
  - {op: relu}
  - {op: conv2d, name: head, out_channels: classes, kernel_size: 1, save: logits}
  - {op: cross_entropy, target: target}
outputs: [result, logits]
"""


class Modulated(nn.Module):
    def __init__(self, features: int, cond: int) -> None:
        super().__init__()
        self.bn, self.modulation = nn.BatchNorm1d(cond), nn.Linear(cond, 3 * features)
        self.norm, self.proj = nn.LayerNorm(features, elementwise_affine=False), nn.Linear(features, features)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift, scale, gate = self.modulation(self.bn(c)).unsqueeze(1).chunk(3, dim=-1)
        return self.proj(self.norm(x) * (1 + scale) + shift) / torch.sigmoid(gate) + x


class Gated(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gated = torch.sigmoid(self.conv(x)) - x
        return F.relu(gated), gated


class Loss(nn.Module):
    def __init__(self, channels: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(channels, hidden, 3, stride=2, padding=1), nn.Conv2d(hidden, classes, 1)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(F.relu(self.conv(x)))
        return F.cross_entropy(logits, target), logits


CASES = {
    "modulated_rows": (MODULATED, Modulated, (6, 5), [(3, 4, 6), (3, 5)], "[float32, bfloat16]"),
    "gated_image": (GATED, Gated, (4,), [(2, 4, 5, 3)], "[float32]"),
    "loss_and_logits": (LOSS, Loss, (4, 6, 7), [(2, 4, 6, 5)], "[float32]"),
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory, emulation_cache):
    name, root = request.param, tmp_path_factory.mktemp("conditions")
    text, original, sizes, shapes, dtypes = CASES[name]
    (root / f"{name}.yaml").write_text(HEAD.format(name=name, dtypes=dtypes) + text, encoding="utf-8")
    suite = emulated_suite(planned_file(root / f"{name}.yaml"), root, emulation_cache)
    return suite, original, sizes, shapes


def test_results_and_gradients(case) -> None:
    suite = case[0]
    found, wrong = compared(suite, ((33, 70, 96, 6), (1, 24, 32, 4), (31, 37, 41, 1)))
    assert not wrong and len(found) >= 3 * 2 * 4


def test_beside_the_module_by_hand(case) -> None:
    """In training: what the original computes with the same parameters, its gradients and statistics."""
    suite, original, sizes, shapes = case
    torch.manual_seed(1)
    fused = getattr(suite.subject.package, suite.subject.plan.spec.class_name)(*sizes)
    fused.fusegen_strict = True
    theirs = original(*sizes)
    theirs.load_state_dict(fused.state_dict())
    inputs = [torch.randn(shape) for shape in shapes]
    target = [torch.randint(0, sizes[-1], (2, 3, 3))] if original is Loss else []
    found = []
    for module in (fused, theirs):
        given = [x.clone().requires_grad_() for x in inputs]
        made = module(*given, *target)
        results = made if isinstance(made, tuple) else (made,)
        torch.autograd.backward(results, [torch.cos(torch.arange(float(y.numel()))).view(y.shape) for y in results])
        found.append([*results, *(x.grad for x in given), *(p.grad for p in module.parameters()), *module.buffers()])
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=2e-5, atol=2e-5)

"""Operands that are functions of a parameter, of rows and of images, on the emulator and beside PyTorch's by hand."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from fusegen.plan.load import planned_file  # noqa: E402
from tests.emulate.suites import compared, emulated_suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

# All that a parameter can vary over, each function, and what else an operand may be.
ROWS = """\
fusegen: 1
name: parameter_functions
dims: {rows: 64, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [rows, features], y: [rows, features]}
dtypes: [float32]
chain:
  - {op: normalize}
  - {op: mul, parameter: scale, shape: [], init: 0.7, function: exp}
  - {op: mul, parameter: decay, shape: [features], init: randn, function: exp, times: -1}
  - {op: add, input: y}
  - {op: mul, parameter: gate, shape: [1], init: 0.1, function: tanh}
  - {op: div, parameter: width, shape: [features], init: randn, function: softplus, plus: 0.01}
  - {op: minimum, parameter: bound, shape: [1, features], init: ones, function: sigmoid}
"""
# The first of the parameters of the channels has dimensions behind these.
IMAGES = """\
fusegen: 1
name: parameter_functions_of_images
dims: {batch: 4, channels: 8, height: 12, width: 10}
arguments: {channels: {type: dim}}
inputs: {x: [batch, channels, height, width]}
dtypes: [float32]
chain:
  - {op: mul, parameter: gate, shape: [channels, 1, 1], init: randn, function: sigmoid}
  - {op: batch_norm, name: bn}
"""


@pytest.fixture(scope="module", params=[ROWS, IMAGES], ids=["rows", "images"])
def suite(request, tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("parameter_functions")
    name = request.param.splitlines()[1].removeprefix("name: ")
    (root / f"{name}.yaml").write_text(request.param, encoding="utf-8")
    return emulated_suite(planned_file(root / f"{name}.yaml"), root, emulation_cache)


def test_results_and_gradients(suite) -> None:
    found, wrong = compared(suite, ((33, 70, 96, 6), (1, 24, 32, 4)))
    assert not wrong and len(found) >= 2 * 2 * 4


def test_what_they_are(suite) -> None:
    """The kernels' values beside the formula."""
    torch.manual_seed(1)
    module = getattr(suite.subject.package, suite.subject.plan.spec.class_name)(5).eval()
    module.fusegen_strict = True
    if suite.subject.plan.spatial:
        x = torch.randn(2, 5, 3, 4)
        wanted = module.bn(x * torch.sigmoid(module.gate))
        torch.testing.assert_close(module(x), wanted)
        return
    x, y = torch.randn(7, 5), torch.randn(7, 5)
    value = F.normalize(x, dim=-1) * module.scale.exp() * -module.decay.exp() + y
    value = value * module.gate.tanh() / (F.softplus(module.width) + 0.01)
    torch.testing.assert_close(module(x, y), torch.minimum(value, module.bound.sigmoid()))

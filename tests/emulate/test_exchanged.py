"""A value of each row beside one for each channel in a dimension in front of it: the result has the rows behind the
channels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """
fusegen: 1
name: exchanged
dims: {batch: 64, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [batch, features], scale: [features, 1]}
dtypes: [float32]
chain:
  - {op: mul, parameter: weight, shape: [features], init: ones}
  - {op: logsumexp, keepdim: false}
  - {op: mul, input: scale}
  - {op: tanh}
  - {op: threshold, threshold: -0.5, value: 0.25}
  - {op: mul, constant: 3}
"""


class Original(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x, scale):
        return F.threshold(torch.tanh(torch.logsumexp(x * self.weight, -1) * scale), -0.5, 0.25) * 3


@pytest.fixture(scope="module")
def built(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("exchanged")
    plan = write("exchanged", SPEC, root)
    return module_of(plan), emulate_package(root / "exchanged", cache=emulation_cache, checked=False)


def test_the_module_is_verified(built) -> None:
    suite = Suite(Subject(*built, "cpu", Original), full=False)
    found = [*suite.numerics(suite.modes()[0]), *suite.training(suite._size())]
    assert {each.check for each in found} == {"numerics", "training"}
    assert not [each for each in found if not each.item.ok]


def test_the_result_lies_as_pytorch_s(built) -> None:
    module = built[1].Exchanged(6)
    module.fusegen_strict = True
    x, scale = torch.randn(5, 6), torch.randn(6, 1)
    result, expected = module(x, scale), Original(6)(x, scale)
    assert result.shape == (6, 5) and result.stride() == expected.stride()
    torch.testing.assert_close(result, expected)
    with pytest.raises(ValueError, match="the rows behind the channels"):
        module(torch.randn(2, 5, 6), scale)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, scale), result)


def test_a_parameter_of_more_dimensions_tells_the_channels(tmp_path, emulation_cache) -> None:
    """Without a layer, whose weight would."""
    head = SPEC.partition("dtypes:")[0].replace(", scale: [features, 1]", "").replace("name: exchanged", "name: spread")
    chain = "  - {op: min, keepdim: true}\n  - {op: add, parameter: bias, shape: [1, features, 1, 1], init: randn}\n"
    plan = write("spread", f"{head}dtypes: [float32]\nchain:\n{chain}", tmp_path)
    subject = Subject(
        module_of(plan), emulate_package(tmp_path / "spread", cache=emulation_cache, checked=False), "cpu"
    )
    suite = Suite(subject, full=False)
    found = [*suite.numerics(suite.modes()[0]), *suite.training(suite._size())]
    assert found and not [each for each in found if not each.item.ok]

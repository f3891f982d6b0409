"""On a CPU, eager convolutions round as on a GPU, and sizes keep clear of what PyTorch gets wrong there."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.plan.load import planned_document  # noqa: E402
from fusegen.plan.sizes.positions import symbols_of_convolution, unequal  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402
from fusegen.verify.runs.run import run  # noqa: E402

CONV3D = """\
fusegen: 1
name: conv_of_volumes
dims: {batch: 2, channels: 12, depth: 5, height: 5, width: 5}
inputs: {x: [batch, 8, depth, height, width]}
arguments: {channels: {type: dim}}
dtypes: [bfloat16]
chain:
  - {op: conv3d, name: conv, out_channels: channels, kernel_size: 3, padding: 1}
  - {op: relu}
"""


# Where oneDNN has no convolution in 16 bits, PyTorch's own transposed one rounds each sum of it.
ROUNDED_ONCE = pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN has none in 16 bits")


@pytest.mark.parametrize("layer", [nn.Conv1d, nn.Conv2d, pytest.param(nn.ConvTranspose3d, marks=ROUNDED_ONCE)])
@pytest.mark.parametrize("autocast", [False, True])
def test_the_bias_is_added_to_a_rounded_result(layer, autocast) -> None:
    """It cancels most of the convolution, so that the low bits show."""
    torch.manual_seed(0)
    module = layer(8, 4, 3)
    dimensions = module.weight.dim() - 2
    x = torch.randn(2, 8, *[3] * dimensions).bfloat16()
    with torch.no_grad():
        module.weight.copy_(module.weight.bfloat16())
        once = layer(8, 4, 3, bias=False).double()
        once.weight.copy_(module.weight)
        product = once(x.double())
        module.bias.copy_(-product.transpose(0, 1).flatten(1).max(1).values.bfloat16())
    bias = module.bias.detach().bfloat16().view(-1, *[1] * dimensions)
    twice = product.bfloat16() + bias
    given = x.float() if autocast else x
    module = module if autocast else module.bfloat16()
    found = run(module, [given], None, autocast_dtype=torch.bfloat16 if autocast else None).output
    assert torch.equal(found, twice) and not torch.equal(found, (product + bias.double()).bfloat16())


def test_volumes_of_two_are_left_out() -> None:
    """oneDNN's gradient of a weight is wrong there."""
    assert all(unequal(rows, 3)[1][0] != 2 for rows in range(1, 200))
    assert any(2 in unequal(rows, 2)[1] for rows in range(1, 20))
    plan = planned_document(parse_yaml(CONV3D, "spec.yaml"))
    assert all(symbols_of_convolution(plan.single, rows, 8, 12)["depth"] > 2 for rows in range(1, 50))

"""An exported file whose loss has weights of classes, with the kernels on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """\
fusegen: 1
name: weighted_loss
dims: {batch: 4, tokens: 8, width: 16, classes: 9}
arguments: {width: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, tokens, width], labels: [batch, tokens], weights: [classes]}
dtypes: [float32]
chain:
  - {op: linear, name: head, out_features: classes}
  - {op: cross_entropy, target: labels, weight: weights}
"""


HELD = SPEC.replace("weighted_loss", "held_weights").replace(", weights: [classes]", "")
HELD = HELD.replace("weight: weights", "buffer: weights, init: ones")


@pytest.mark.parametrize("text", [SPEC, HELD], ids=["input", "buffer"])
def test_a_mean_by_weights(emulated, tmp_path: Path, text: str) -> None:
    spec = tmp_path / f"{'weighted_loss' if text is SPEC else 'held_weights'}.yaml"
    spec.write_text(text)
    (names,) = emulated.run((spec, None))
    model = names["ModelNew"](*names["get_init_inputs"]())
    x, labels, *given = names["get_inputs"]()
    weights = given[0] if given else model.state_dict()["weights"].copy_(torch.rand(9) + 0.5)
    assert weights.shape == (9,) and weights.min() >= 0.5
    labels[0, :3] = -100
    loss = model(x.requires_grad_(), labels, *given)
    wide = x.detach().double().requires_grad_()
    logits = torch.nn.functional.linear(wide, model.head.weight.double(), model.head.bias.double())
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), weights.double())
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    found = torch.autograd.grad(loss, x)[0].double()
    torch.testing.assert_close(found, torch.autograd.grad(expected, wide)[0], rtol=1e-5, atol=1e-6)

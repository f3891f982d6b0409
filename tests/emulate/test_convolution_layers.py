"""The layer that a chain begins with as users set it: its options, its weight, and what takes its place."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, weight_norm  # noqa: E402

from tests.emulate.convolutions import drawn, packages, pair  # noqa: E402

__all__ = ["packages"]  # a fixture

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

OPTIONS = (
    ("conv", {"stride": (2, 1), "padding": (0, 2)}),
    ("conv", {"dilation": (1, 2), "groups": 2}),
    ("conv", {"padding": "same", "dilation": 2}),
    ("conv", {"padding": "valid"}),
    ("conv", {"padding": (2, 1), "padding_mode": "reflect", "stride": 2}),
    ("conv", {"padding": 1, "padding_mode": "circular"}),
    ("conv", {"padding": "same", "padding_mode": "replicate"}),
    ("conv", {"groups": 4}),
    ("conv_transpose", {"stride": (3, 1), "padding": (1, 2), "output_padding": (2, 0), "groups": 2}),
    ("conv_transpose", {"dilation": (1, 3), "groups": 4}),
)


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_a_layer_as_it_is_now(packages, name, options) -> None:
    """What its attributes say counts, as for PyTorch, not what the spec said."""
    torch.manual_seed(3)
    if name == "conv":
        fused, kind = packages("batch_norm_scaling")[1](4, 8, 3, 2.0), nn.Conv2d
    else:
        fused, kind = packages("transposed_tanh")[1](4, 8, 3, 1, 0, 0, (8, 1, 1)), nn.ConvTranspose2d
    setattr(fused, name, kind(4, 8, 3, **options))
    fused.fusegen_strict = True
    for last in (False, True):
        x = torch.randn(2, 4, 7, 8)
        x = (x.contiguous(memory_format=torch.channels_last) if last else x).requires_grad_()
        exact, grad = copy.deepcopy(fused).double(), None
        results = []
        for call, given in ((fused, x), (exact.fusegen_reference, x.detach().double().requires_grad_())):
            y = call(given)
            grad = torch.randn_like(y) if grad is None else grad.to(y.dtype)
            module = fused if call is fused else exact
            results.append([y, *torch.autograd.grad(y, [given, *module.parameters()], grad)])
        for mine, theirs in zip(*results, strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-4)


PARAMETRISED = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "old weight norm": weight_norm,
}


@pytest.mark.parametrize("kind", PARAMETRISED)
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_a_weight_that_is_computed(packages, kind) -> None:
    """Gradients reach what it is computed of."""
    fused, _ = pair(packages, "relu_hardswish")
    PARAMETRISED[kind](fused.conv)
    (x,) = drawn(packages, "relu_hardswish", last=True)
    assert fused.fusegen_kernels(x)
    state, results = copy.deepcopy(fused.state_dict()), []
    for call in (fused, fused.fusegen_reference):
        fused.load_state_dict(state)
        y = call(x)
        results.append([y, *torch.autograd.grad(y, [x, *fused.parameters()], torch.ones_like(y)), *fused.buffers()])
    assert len(results[0]) == len(list(fused.state_dict())) + 2
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_what_takes_the_place_of_the_layer(packages) -> None:
    fused, _ = pair(packages, "relu_hardswish")
    (x,) = drawn(packages, "relu_hardswish")

    class Another(nn.Conv2d):
        pass

    others = [Another(3, 8, 3), nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(3, 8, 3)]
    others[1]._conv_forward = lambda *_: None
    for other in others:
        changed = copy.deepcopy(fused)
        changed.conv = other
        assert not changed.fusegen_kernels(x)
    changed = copy.deepcopy(fused)
    changed.conv.stride = 2  # as F.conv2d takes it
    changed.fusegen_strict = False
    assert "options that Conv2d would not make" in changed.fusegen_kernels(x).reason
    changed.conv.stride = (0, 1)
    with pytest.raises(RuntimeError, match="stride"):
        nn.functional.conv2d(x, changed.conv.weight, stride=(0, 1))
    with pytest.raises(RuntimeError, match="stride"):
        changed(x)
    fused.conv.register_forward_hook(lambda *_: None)
    assert fused.fusegen_kernels(x).reason == "conv has hooks"
    transposed, _ = pair(packages, "transposed_tanh")
    (x,) = drawn(packages, "transposed_tanh")
    transposed.conv_transpose.padding_mode = "circular"  # which PyTorch refuses
    assert "padding_mode" in transposed.fusegen_kernels(x).reason

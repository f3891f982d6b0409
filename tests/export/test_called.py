"""The norms that exported files call between regions, beside PyTorch's."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest

from fusegen.standalone.support import support_text

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

NAMES = ("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "instance_norm")


@pytest.fixture(scope="module")
def support() -> SimpleNamespace:
    text = "def _made(make):\n    return make()\n\n\n" + "\n".join(support_text(NAMES).lines)
    names = {"torch": torch, "nn": nn, "SimpleNamespace": SimpleNamespace}
    exec(text, names)
    return names["_support"]


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("momentum", [0.3, None])
def test_an_instance_norm_is_pytorchs(support, spatial: int, affine: bool, tracked: bool, momentum) -> None:
    options = {"eps": 1e-3, "momentum": momentum, "affine": affine, "track_running_stats": tracked}
    theirs = getattr(nn, f"InstanceNorm{spatial}d")(3, **options)
    ours = getattr(support, f"InstanceNorm{spatial}d")(3, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for training in (True, True, False):
        x = torch.randn(2, 3, *(4, 5, 6)[:spatial])
        ours.train(training)
        torch.testing.assert_close(support.instance_norm(ours, x), theirs.train(training)(x))
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


def test_one_position_has_no_statistics(support) -> None:
    layer, x = support.InstanceNorm2d(3, track_running_stats=True), torch.randn(2, 3, 1, 1)
    before = copy.deepcopy(layer.state_dict())
    for module, call in ((nn.InstanceNorm2d(3), nn.Module.__call__), (layer, support.instance_norm)):
        with pytest.raises(ValueError, match="more than 1 spatial element|more than one position"):
            call(module, x)
    torch.testing.assert_close(layer.state_dict(), before)
    assert support.instance_norm(layer.eval(), x).shape == x.shape

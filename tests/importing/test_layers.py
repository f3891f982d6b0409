"""Layers and norms in other places than attributes of the module, in classes of their own, and through views."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fusegen.errors import SpecError
from fusegen.importing.module import from_module
from tests.importing.modules import Source, chain, imported, plan

pytestmark = pytest.mark.torch


class BatchNormAct(nn.BatchNorm2d):
    """A batch norm with a forward of its own and its activation, as timm has it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.PReLU()

    def forward(self, x):
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        of_batch = self.training or (self.running_mean is None and self.running_var is None)
        given = (self.running_mean, self.running_var, self.weight, self.bias)
        return self.act(self.drop(F.batch_norm(x, *given, of_batch, momentum, self.eps)))


class Stem(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, channels, 3, bias=False), BatchNormAct(channels)

    def forward(self, x):
        return self.bn(self.conv(x))


def test_a_batch_norm_with_its_activation() -> None:
    spec = plan(from_module(Stem(8), [torch.randn(2, 3, 9, 10)], arguments=[8])).spec
    assert [step.op for step in spec.chain] == ["conv2d", "batch_norm", "prelu"]
    assert spec.chain[1].name == "bn" and spec.state_dict == {"bn_act": "bn.act"}


def test_layers_in_a_sequence() -> None:
    module = nn.Sequential(nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.1)), nn.LayerNorm(8), nn.PReLU())
    spec = plan(from_module(module, [torch.randn(4, 5)])).spec
    assert [step.op for step in spec.chain] == ["linear", "dropout", "layer_norm", "prelu"]
    assert [*spec.state_dict.values()] == ["0.0", "1", "2"]


@pytest.mark.parametrize(
    ("made", "body"),
    [
        ("self.n = nn.InstanceNorm1d(m)", "return self.n(y.unsqueeze(1)).squeeze(1)"),
        ("self.n = nn.InstanceNorm2d(m, eps=1e-3)", "return self.n(y[:, None, None]).flatten(1)"),
        ("self.n = nn.InstanceNorm2d(m)", "return self.n(y.unsqueeze(1).unsqueeze(1)).squeeze(1).squeeze(1) * y"),
    ],
)
@pytest.mark.filterwarnings("ignore:input's size at dim")
def test_instance_norm_of_a_row(made: str, body: str) -> None:
    assert chain(imported(Source(made, body)))[0]["op"] == "instance_norm"


@pytest.mark.filterwarnings("ignore:input's size at dim")
def test_instance_norm_with_a_weight_is_refused() -> None:
    source = Source("self.n = nn.InstanceNorm1d(1, affine=True)", "return self.n(y.unsqueeze(1)).squeeze(1)")
    with pytest.raises(SpecError, match="instance_norm with tensors of its own"):
        imported(source)


FUNCTIONS = {
    "y * torch.sigmoid(self.p)": {"op": "mul", "function": "sigmoid"},
    "self.p.exp() - y": {"op": "sub", "function": "exp", "swap": True},
    "y / F.softplus(self.p)": {"op": "div", "function": "softplus"},
    "y * (1 + 2 * self.p.tanh())": {"op": "mul", "function": "tanh", "times": 2, "plus": 1},
}


@pytest.mark.parametrize("text", FUNCTIONS)
def test_a_function_of_a_parameter(text: str) -> None:
    (step,) = chain(imported(Source("self.p = nn.Parameter(torch.randn(m))", f"return {text}")))
    written = {key: value for key, value in step.items() if key not in ("parameter", "shape", "init")}
    assert written == FUNCTIONS[text] and step["parameter"] == "p"


def test_a_gate_that_is_used_twice() -> None:
    found = chain(
        imported(
            Source(
                "self.p = nn.Parameter(torch.zeros(1))", "a = torch.sigmoid(self.p)\nreturn a * y + (1 - a) * y.tanh()"
            )
        )
    )
    taken = [(step["function"], step.get("times"), "init" in step) for step in found if "function" in step]
    assert taken == [("sigmoid", None, True), ("sigmoid", -1, False)]


def test_a_tensor_of_an_argument_stays_one() -> None:
    source = Source("self.c = c", "return torch.min(y, torch.tensor(self.c, device=y.device))", more="c=0.1")
    assert chain(imported(source)) == [{"op": "minimum", "constant": "c"}]


def test_a_layer_with_the_name_of_its_argument() -> None:
    """Both would be attributes of the spec's module."""
    source = Source("self.drop = nn.Dropout(drop)", "return self.drop(y).tanh()", more="drop=0.5")
    assert chain(imported(source))[0] == {"op": "dropout", "name": "drop_2", "p": "drop"}

"""Tensors that a parametrization computes: the kernels take them, and gradients reach what they are computed of."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize, remove_weight_norm  # noqa: E402
from torch.nn.utils import weight_norm as old_weight_norm  # noqa: E402

from tests.emulate.stand_in.chain import CHANNELS, WIDTH, same_as_eager  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


class Counted(nn.Module):
    """A parametrization of a user's that notes how often it computes, and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.gain = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        self.count += 1
        return self.gain * x * torch.rand_like(x[..., :1])


class OfTheData(nn.Module):
    """One that cannot do without data."""

    def forward(self, x):
        return x / (1 + float(x.detach().abs().max()))


def of_user(layer, name="weight"):
    parametrize.register_parametrization(layer, name, Counted())
    layer.parametrizations[name][0].count.zero_()  # it is tried when it is registered


def of_several(layer):
    parametrizations.weight_norm(layer)
    parametrizations.spectral_norm(layer)
    of_user(layer, "bias")


KINDS = {
    "weight norm": lambda m: parametrizations.weight_norm(m.fc),
    "weight norm, one for all": lambda m: parametrizations.weight_norm(m.fc, dim=None),
    "spectral norm": lambda m: parametrizations.spectral_norm(m.fc),
    "orthogonal": lambda m: parametrizations.orthogonal(m.fc),
    "old weight norm": lambda m: old_weight_norm(m.fc),
    "of a norm": lambda m: parametrizations.weight_norm(m.bn, "weight", dim=None),
    "of the data": lambda m: parametrize.register_parametrization(m.fc, "weight", OfTheData()),
    "of the module's own": lambda m: parametrizations.weight_norm(m, "scale", dim=None),
    "several": lambda m: of_several(m.fc),
}
OF_LAYERS = [kind for kind in KINDS if kind != "old weight norm"]


def apply(kind, module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KINDS[kind](module)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_run(kind, module, inputs) -> None:
    apply(kind, module)
    module.fusegen_strict = True
    if kind == "several":
        module.fc.parametrizations.bias[0].forward = lambda x: 2 * x  # without random numbers
    for train in (True, False, True):
        module.train(train)
        assert module.fusegen_kernels(*inputs)
        same_as_eager(module, inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_asking_changes_nothing(kind, module, inputs) -> None:
    apply(kind, module)
    before, drawn = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    assert module.fusegen_kernels(*inputs)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)


# What makes PyTorch's operators run, once the tensors have been read.
REFUSALS = {"none": lambda m: None, "a momentum": lambda m: setattr(m.bn, "momentum", -0.1)}


@pytest.mark.parametrize("why", REFUSALS)
@pytest.mark.filterwarnings("ignore:.*PyTorch's own operators run")
def test_computed_once_in_a_call(why, module, inputs) -> None:
    of_user(module.fc), of_user(module, "scale")
    REFUSALS[why](module)
    module.fusegen_kernels(*inputs)
    for call in range(3):
        module(*inputs).sum().backward()
        assert [int(value) for name, value in module.state_dict().items() if name.endswith("count")] == [call + 1] * 2
    assert module.fc.parametrizations.weight[0].gain.grad is not None


@pytest.mark.parametrize("kind", OF_LAYERS)
def test_the_state_is_the_original_modules(kind, module, package) -> None:
    """Its names, and a round by a file; a copy is another module."""
    apply(kind, module)
    other = package.StandsIn(WIDTH, CHANNELS)
    apply(kind, other)
    other.load_state_dict(module.state_dict())
    assert list(other.state_dict()) == list(module.state_dict())
    if kind not in ("of a norm", "of the module's own"):
        layer = copy.deepcopy(nn.Linear(WIDTH, CHANNELS))
        KINDS[kind](nn.ModuleDict({"fc": layer}))
        mine = [name.removeprefix("fc.") for name in module.state_dict() if name.startswith("fc.")]
        assert mine == list(layer.state_dict())


@pytest.mark.parametrize("kind", OF_LAYERS)
def test_a_copy_has_its_own(kind, module, inputs) -> None:
    apply(kind, module)
    module.eval()
    if kind == "several":
        module.fc.parametrizations.bias[0].forward = lambda x: 2 * x
    before = module(*inputs)
    other = copy.deepcopy(module)
    with torch.no_grad():
        for each in other.parameters():
            each.mul_(1.5)
    other.fusegen_strict = True
    assert other.fusegen_kernels(*inputs)
    same_as_eager(other, inputs)
    assert torch.equal(module(*inputs), before)


def test_within_cached_the_tensor_is_the_cached_one(module, inputs) -> None:
    of_user(module.fc)
    count = module.fc.parametrizations.weight[0].count
    with parametrize.cached():
        weight = module.fc.weight
        first, second = module(*inputs), module(*inputs)
        assert module.fc.weight is weight and int(count) == 1
    torch.testing.assert_close(first, second)
    module(*inputs)
    assert int(count) == 2


def test_removed_again(module, inputs) -> None:
    parametrizations.weight_norm(module.fc)
    module(*inputs)
    parametrize.remove_parametrizations(module.fc, "weight")
    assert type(module.fc) is nn.Linear and module.fusegen_kernels(*inputs)
    same_as_eager(module, inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old_weight_norm(module.fc)
    module(*inputs)
    remove_weight_norm(module.fc)
    same_as_eager(module, inputs)


def test_training_reaches_the_original_tensors(module, inputs) -> None:
    """Three steps of an optimiser, beside eager."""
    parametrizations.spectral_norm(module.fc)
    other = copy.deepcopy(module)
    for each, call in ((module, module), (other, other.fusegen_reference)):
        optimiser = torch.optim.SGD(each.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            call(*inputs).square().mean().backward()
            optimiser.step()
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-4, atol=1e-5)


class Other(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


@pytest.mark.filterwarnings("ignore:.*PyTorch's own operators run")
def test_what_is_refused(module, inputs) -> None:
    for change in (
        lambda m: setattr(m, "fc", parametrizations.weight_norm(Other(WIDTH, CHANNELS))),
        lambda m: parametrizations.weight_norm(m.bn, "running_mean", dim=None),
        lambda m: [old_weight_norm(m.fc), m.fc.register_forward_pre_hook(lambda _, x: (x[0] + 1,))],
        lambda m: setattr(type(parametrizations.weight_norm(m.fc)), "forward", lambda self, x: x @ self.weight.T),
    ):
        changed = copy.deepcopy(module)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            change(changed)
            assert not changed.fusegen_kernels(*inputs)


@pytest.mark.parametrize(
    ("kind", "why"),
    [("weight norm", "none"), ("spectral norm", "a momentum"), ("old weight norm", "none"), ("of both", "none")],
)
def test_torch_compile_without_graph_break(kind, why, module, inputs) -> None:
    for each in ("spectral norm", "of the module's own") if kind == "of both" else (kind,):
        apply(each, module)
    REFUSALS[why](module)
    torch._dynamo.reset()
    other = copy.deepcopy(module) if kind != "old weight norm" else None
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    y = compiled(*inputs)
    y.sum().backward()
    if other is not None:
        theirs = other.fusegen_reference(*inputs)
        torch.testing.assert_close(y, theirs, rtol=1e-5, atol=1e-5)
        theirs.sum().backward()
        for mine, expected in zip(module.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, expected.grad, rtol=1e-4, atol=1e-4)
        for mine, expected in zip(module.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(mine, expected)

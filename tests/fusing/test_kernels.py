"""Replaced modules with their kernels, emulated: results, training, and changes after which the original runs."""

from __future__ import annotations

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.fusing import fuse as fusing  # noqa: E402
from tests.fusing.models import Residual, losses  # noqa: E402

pytestmark = pytest.mark.torch


BLOCK, HEAD = "residual", "linear_batch_norm_silu"


class Small(nn.Module):
    """A whole module and a run of children, with the kernels of one chain each."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Residual(16)
        self.head = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.SiLU(), nn.Linear(24, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(x))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, emulation_cache: Path):
    """A replaced model, its original, and an input."""
    torch.manual_seed(0)
    model, x = Small(), torch.randn(12, 16)
    original = copy.deepcopy(model)
    directory = tmp_path_factory.mktemp("fused")

    def load(name: str, output: Path):
        package = emulate_package(output / name, cache=emulation_cache, modes=[0])
        return getattr(package, package.__all__[0])

    # Rendered first, so that both packages are compiled at once.
    fusing.fuse(copy.deepcopy(model), x, directory=directory, compile=False)
    with ThreadPoolExecutor() as pool:
        generated = dict(zip((BLOCK, HEAD), pool.map(load, (BLOCK, HEAD), [directory / "generated"] * 2), strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusing, "load", lambda name, output: generated[name])
        report = fusing.fuse(model, x, directory=directory, compile=False)
    assert [each.path for each in report.replaced] == ["block", "head[0:3]"]
    return model, original, x


@pytest.fixture
def fused(case):
    """The same, to be changed by one test."""
    model, original, x = case
    return copy.deepcopy(model), copy.deepcopy(original), x


def with_kernels(model: nn.Module, x: torch.Tensor) -> list[str]:
    """The specs whose kernels run in a call of the model."""
    found: list[str] = []
    base = next(each for each in type(model.block._fusegen_regions[0]).mro() if each.__name__ == "FusedModule")
    choose = base._fusegen_choose

    def noted(self, inputs, count):
        operator, arguments = choose(self, inputs, count)
        found.extend([self._fusegen_package.name] if operator is not None else [])
        return operator, arguments

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "_fusegen_choose", noted)
        model(x)
    return found


def test_kernels_run_in_both_modes(fused) -> None:
    model, original, x = fused
    for training in (True, False):
        assert with_kernels(model.train(training), x) == [BLOCK, HEAD]
        torch.testing.assert_close(model(x), original.train(training)(x))
        original.load_state_dict(model.state_dict())


def test_the_same_training(fused) -> None:
    """Losses, weights and running statistics after some steps."""
    model, original, x = fused
    torch.testing.assert_close(losses(model, [x]), losses(original, [x]), rtol=1e-5, atol=0)
    assert model.head[1].num_batches_tracked == original.head[1].num_batches_tracked == 4
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, original.state_dict()[name], rtol=1e-5, atol=1e-6, msg=name)


def test_a_frozen_norm(fused) -> None:
    """The norm alone in evaluation: as PyTorch has it, its statistics stay."""
    model, original, x = fused
    for each in (model, original):
        each.train()
        each.head[1].eval()
    assert with_kernels(model, x) == [BLOCK, HEAD]
    torch.testing.assert_close(model(x), original(x))
    assert torch.equal(model.head[1].running_mean, original.head[1].running_mean)


def test_a_copy_runs_kernels_of_its_own(fused) -> None:
    model, original, x = fused
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.block.scale.mul_(2)
        original.block.scale.mul_(2)
    assert with_kernels(other, x) == [BLOCK, HEAD]
    torch.testing.assert_close(other(x), original(x))


def _number(model: nn.Module) -> None:
    model.block.factor = 0.5


def _number_of_a_part(model: nn.Module) -> None:
    model.block.net[1].eps = 0.5


def _choice_of_a_part(model: nn.Module) -> None:
    model.block.net[2].approximate = "tanh"


def _other_type(model: nn.Module) -> None:
    model.block.net[2] = nn.ReLU()


def _one_more(model: nn.Module) -> None:
    model.block.net.append(nn.ReLU())


def _hook(model: nn.Module) -> None:
    model.block.net[2].register_forward_hook(lambda module, inputs, result: result * 2)


def _forward(model: nn.Module) -> None:
    model.block.net[2].forward = torch.relu


def _a_mode(model: nn.Module) -> None:
    model.block.net[2].eval()


def _parametrization(model: nn.Module) -> None:
    nn.utils.parametrizations.weight_norm(model.block.net[0])
    with torch.no_grad():
        model.block.net[0].parametrizations.weight.original0.mul_(3)


def _no_bias(model: nn.Module) -> None:
    model.block.net[0].bias = None


CHANGES = (
    *(_number, _number_of_a_part, _choice_of_a_part, _other_type, _one_more),
    *(_hook, _forward, _a_mode, _parametrization, _no_bias),
)


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_the_original_runs(fused, change) -> None:
    """Once with a warning that names it; the other chain's kernels run on."""
    model, original, x = fused
    before = copy.deepcopy(original)(x)
    change(model)
    change(original)
    expected = copy.deepcopy(original)(x)
    assert change is _a_mode or not torch.allclose(before, expected)
    with pytest.warns(UserWarning, match="residual: PyTorch's own operators run, not the kernels") as told:
        assert with_kernels(model, x) == [HEAD]
    assert len(told) == 1 and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(model(x), expected)


def test_a_change_in_a_run(fused) -> None:
    model, original, x = fused
    for each in (model, original):
        each.head[2] = nn.ReLU()
    with pytest.warns(UserWarning, match="2 is of type ReLU now, not SiLU"):
        assert with_kernels(model, x) == [BLOCK]
    model.eval(), original.eval()
    original.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(x), original(x))


def test_a_change_elsewhere_is_none(fused) -> None:
    """What is behind a run may change."""
    model, original, x = fused
    for each in (model, original):
        each.head[3].register_forward_hook(lambda module, inputs, result: result * 2)
    assert with_kernels(model, x) == [BLOCK, HEAD]
    torch.testing.assert_close(model(x), original(x))


def test_hooks_for_all_modules(fused) -> None:
    model, _, x = fused
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.warns(UserWarning, match="hooks are registered for all modules"):
            assert with_kernels(model, x) == []
    finally:
        handle.remove()
    assert with_kernels(model, x) == [BLOCK, HEAD]


def test_dimensions_that_only_the_original_takes(fused) -> None:
    """The kernels' batch norm takes [rows, channels]."""
    head = fused[0].head
    with pytest.warns(UserWarning, match="an input has 1 dimensions, and the example 2"), pytest.raises(ValueError):
        head(torch.randn(16))


def test_strict(fused) -> None:
    model, _, x = fused
    model.block.factor = 0.5
    for each in (*model.block._fusegen_regions, *model.head._fusegen_regions):
        each.fusegen_strict = True
    with pytest.raises(RuntimeError, match="factor is not 0.75 any more"):
        model(x)


@pytest.mark.parametrize("training", [True, False])
def test_compile(fused, training: bool) -> None:
    """As one graph, with the gradients of the uncompiled model."""
    model, original, x = fused
    model.train(training)
    compiled = torch.compile(copy.deepcopy(model), backend="aot_eager", fullgraph=True)
    result, expected = compiled(x), model(x)
    assert torch.equal(result, expected)
    result.sum().backward()
    expected.sum().backward()
    for (name, ours), theirs in zip(compiled.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad), name

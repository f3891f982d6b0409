"""Modules of several layers in a model: what is replaced as a whole, and with its kernels, emulated."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fusegen  # noqa: E402
from tests.fusing.emulated import fuse_emulated  # noqa: E402
from tests.fusing.models import losses  # noqa: E402

pytestmark = pytest.mark.torch


class ResidualMlp(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    """Two blocks of one form, and a layer that is no chain."""

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ResidualMlp(8, 20) for _ in range(count))
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return torch.sort(self.last(x)).values


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, emulation_cache: Path):
    """A replaced model, its original, an input, and the report."""
    torch.manual_seed(0)
    model, x = Model(), torch.randn(3, 5, 8)
    original, directory = copy.deepcopy(model), tmp_path_factory.mktemp("layers")
    report = fuse_emulated(model, x, directory, emulation_cache)
    return model, original, x, report


def test_blocks_of_one_form_have_one_spec(case) -> None:
    *_, report = case
    found = [(each.path, each.spec, " ".join(each.ops)) for each in report.replaced]
    assert found == [(f"blocks.{i}", "residual_mlp", "linear gelu linear add") for i in range(2)]
    assert all(each.saving.bytes > 0 and each.saving.kernels > 1 for each in report.replaced)
    assert (report.specs.parent / "generated" / "residual_mlp_down").is_dir()


def test_kernels_run_and_train_as_the_original(case) -> None:
    model, original, x = (copy.deepcopy(each) for each in case[:3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of kernels that do not run
        for training in (True, False):
            torch.testing.assert_close(model.train(training)(x), original.train(training)(x))
        torch.testing.assert_close(losses(model, [x]), losses(original, [x]), rtol=1e-5, atol=0)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, original.state_dict()[name], rtol=1e-5, atol=1e-6, msg=name)


def test_every_region_runs_its_kernels(case, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, x = (copy.deepcopy(each) for each in case[:3])
    base = next(each for each in type(model.blocks[0]._fusegen_regions[0]).mro() if each.__name__ == "FusedModule")
    choose, found = base._fusegen_choose, []

    def noted(self, inputs, count, part=None):
        operator, arguments = choose(self, inputs, count, part)
        found.append((part._fusegen_package.name, operator is not None))
        return operator, arguments

    monkeypatch.setattr(base, "_fusegen_choose", noted)
    model(x)
    assert found == [(f"residual_mlp_{name}", True) for name in ("up", "down")] * 2


def test_a_change_of_a_layer_is_seen(case) -> None:
    model, original, x = (copy.deepcopy(each) for each in case[:3])
    for each in (model, original):
        each.blocks[0].up.register_forward_hook(lambda module, inputs, result: result * 2)
    with pytest.warns(UserWarning, match="up has hooks"):
        torch.testing.assert_close(model(x), original(x))


def test_a_module_of_many_layers_is_looked_at_by_its_parts(tmp_path: Path) -> None:
    class Whole(Model):
        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.last(x)

    report = fusegen.fuse(Whole(2), torch.randn(6, 8), directory=tmp_path, dry_run=True)
    assert [each.path for each in report.replaced] == ["blocks.0", "blocks.1"]

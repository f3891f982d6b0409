"""What is not replaced, though its operators are those of a chain."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn.utils import parametrizations, weight_norm  # noqa: E402

import fusegen  # noqa: E402


class Chain(nn.Module):
    def __init__(self, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc, self.norm, self.drop = nn.Linear(width, width), nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(self, x: Tensor, bias: Tensor | None = None, flag: bool = False) -> Tensor:
        y = self.drop(self.norm(self.fc(x)))
        return y.relu() if bias is None else y.relu() + bias


class Holder(nn.Module):
    """Calls what it holds, once or several times."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: Tensor) -> Tensor:
        for part in self.children():
            for x in inputs:
                y = part(x)
        return y


def reasons(model: nn.Module, *inputs: Tensor, tmp_path: Path) -> dict[str, str]:
    report = fusegen.fuse(model, inputs or torch.randn(4, 8), directory=tmp_path, dry_run=True)
    assert not report.replaced
    return {each.path: each.reason for each in report.left}


def test_the_chain_is_one(tmp_path: Path) -> None:
    report = fusegen.fuse(Holder(chain=Chain()), torch.randn(4, 8), directory=tmp_path, dry_run=True)
    assert [each.path for each in report.replaced] == ["chain"]


@pytest.mark.parametrize(
    "hook",
    [
        lambda part: part.register_forward_hook(lambda *_: None),
        lambda part: part.register_forward_pre_hook(lambda *_: None),
        lambda part: part.register_full_backward_hook(lambda *_: None),
        lambda part: part.register_full_backward_pre_hook(lambda *_: None),
    ],
)
def test_hooks_inside(tmp_path: Path, hook) -> None:
    model = Holder(chain=Chain())
    hook(model.chain.norm)
    assert reasons(model, tmp_path=tmp_path)["chain"] == "chain.norm has hooks, which would not run"


def test_hooks_of_the_module_itself(tmp_path: Path) -> None:
    """They run as before, and are no part of the chain."""
    model, x = Holder(chain=Chain()), torch.randn(4, 8)
    model.chain.register_forward_hook(lambda module, inputs, result: result * 2)
    before = model(x)
    report = fusegen.fuse(model, x, directory=tmp_path, compile=False)
    assert [each.path for each in report.replaced] == ["chain"]
    assert torch.equal(model(x), before)


def test_hooks_in_a_run(tmp_path: Path) -> None:
    """The layer in question ends the run, and does not begin one."""
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
    model[1].register_forward_hook(lambda *_: None)
    assert reasons(model, tmp_path=tmp_path) == {"1": "1 has hooks, which would not run"}


def test_a_parametrization(tmp_path: Path) -> None:
    model = Holder(chain=Chain())
    parametrizations.weight_norm(model.chain.fc)
    assert reasons(model, tmp_path=tmp_path)["chain"] == "chain.fc has a parametrization"


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_a_weight_that_a_hook_computes(tmp_path: Path) -> None:
    model = Holder(chain=Chain())
    weight_norm(model.chain.fc)
    assert reasons(model, tmp_path=tmp_path)["chain"] == "chain.fc has hooks, which would not run"


def test_shared_layers(tmp_path: Path) -> None:
    model = Holder(chain=Chain(), other=nn.Linear(8, 8))
    model.other = model.chain.fc
    assert reasons(model, tmp_path=tmp_path)["chain"] == "chain.fc is in the model under another name too: other"


def test_a_shared_activation_is_no_obstacle(tmp_path: Path) -> None:
    act = nn.GELU()
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), act, nn.Linear(8, 8), nn.LayerNorm(8), act)
    report = fusegen.fuse(model, torch.randn(4, 8), directory=tmp_path, compile=False)
    assert [each.path for each in report.replaced] == ["[0:3]", "[3:6]"]
    assert len({each.spec for each in report.replaced}) == 1


def test_a_forward_of_its_own(tmp_path: Path) -> None:
    model = Holder(chain=Chain())
    model.chain.forward = lambda x: x
    assert reasons(model, tmp_path=tmp_path)["chain"] == "has a forward of its own"


def test_compiled_before(tmp_path: Path) -> None:
    model = Holder(chain=Chain())
    model.chain.compile(backend="eager")
    assert "fuse before" in reasons(model, tmp_path=tmp_path)["chain"]


def test_inputs_of_several_widths_or_none(tmp_path: Path) -> None:
    chain = Holder(chain=nn.Module())
    chain.chain = Elementwise()
    found = reasons(chain, torch.randn(4, 8), torch.randn(4, 6), tmp_path=tmp_path)
    assert found["chain"] == "its calls have inputs of several forms"


class Elementwise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (torch.sigmoid(x) * x + 1).tanh()


def test_several_numbers_of_rows_are_fine(tmp_path: Path) -> None:
    model = Holder(chain=Elementwise())
    inputs = [torch.randn(4, 8), torch.randn(7, 8), torch.randn(2, 3, 8)]
    report = fusegen.fuse(model, inputs, directory=tmp_path, dry_run=True)
    assert [each.path for each in report.replaced] == ["chain"]


def test_a_layer_of_rows_in_front_of_images(tmp_path: Path) -> None:
    """Batch norm of [rows, channels] would take the channels elsewhere: it is one of images, by itself."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(5), nn.ReLU())
    report = fusegen.fuse(model, torch.randn(4, 5, 8), directory=tmp_path, dry_run=True)
    assert [(each.path, each.ops) for each in report.replaced] == [("[1:3]", ("batch_norm", "relu"))]
    assert "batch_norm" in next(each.reason for each in report.left if each.path == "0")


def test_in_place_at_the_begin_of_a_run(tmp_path: Path) -> None:
    """It changes what it is given; a run may begin behind it. Inside a run it is as any."""
    model = nn.Sequential(nn.Conv1d(3, 3, 1), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(inplace=True))
    report = fusegen.fuse(model, torch.randn(4, 3, 8), directory=tmp_path, dry_run=True)
    assert [(each.path, each.ops) for each in report.replaced] == [("[2:4]", ("linear", "relu"))]


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self._fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self._fc(x)) * 2


def test_a_name_that_no_spec_has(tmp_path: Path) -> None:
    assert "another name for '_fc'" in reasons(Holder(chain=Hidden()), tmp_path=tmp_path)["chain"]


def test_an_argument_that_is_no_tensor(tmp_path: Path) -> None:
    class Flagged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.chain = Chain()

        def forward(self, x: Tensor) -> Tensor:
            return torch.sort(self.chain(x, None, True)).values

    assert reasons(Flagged(), tmp_path=tmp_path)["chain"] == "it is called with something else than tensors"


def test_several_results(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.fc(x).relu()
            return y, y + 1

    model = Holder(chain=Two())
    assert reasons(model, tmp_path=tmp_path)["chain"] == "it returns a tuple, and a chain one tensor"


def test_nothing_to_save(tmp_path: Path) -> None:
    """One operator is a kernel already."""

    class Relu(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x)

    assert reasons(Holder(chain=Relu()), tmp_path=tmp_path)["chain"].startswith("kernels would move as much")


def test_double(tmp_path: Path) -> None:
    found = reasons(Holder(chain=Chain()).double(), torch.randn(4, 8).double(), tmp_path=tmp_path)
    assert found["chain"] == "there are no kernels for float64"


def test_a_chain_in_the_middle_of_a_forward(tmp_path: Path) -> None:
    """It is named, and what to do about it."""

    class Middle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.second = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sort(self.second(nn.functional.silu(self.norm(self.first(x))) * 2)).values

    reason = reasons(Middle(), tmp_path=tmp_path)[""]
    assert "'sort' is not supported" in reason
    assert "its forward itself has silu, mul: in a module of their own they would be looked at" in reason


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_module_of_jit(tmp_path: Path) -> None:
    model = Holder(chain=torch.jit.trace(Chain(), torch.randn(4, 8)))
    assert reasons(model, tmp_path=tmp_path)["chain"] == "chain is compiled by torch.jit"


def test_a_module_that_no_tracer_takes(tmp_path: Path) -> None:
    """Whatever a module of somebody else does, the others are looked at."""

    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.relu() if x.sum() > 0 else x.sigmoid()

    model = nn.Sequential(Odd(), Chain())
    report = fusegen.fuse(model, torch.rand(4, 8), directory=tmp_path, dry_run=True)
    assert [each.path for each in report.replaced] == ["1"]
    assert [(each.path, each.diagnostic.code) for each in report.left] == [("0", "FG702")]


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn(self.conv(x)))


def test_convolutions_beside_layers_of_rows(tmp_path: Path) -> None:
    run = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    model = nn.Sequential(Convolved(), run, nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU())
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 3, 6, 6).contiguous(memory_format=memory_format)
        report = fusegen.fuse(model.to(memory_format=memory_format), x, directory=tmp_path, dry_run=True)
        convolved = ("conv2d", "batch_norm", "relu")
        found = {each.path: each.ops for each in report.replaced}
        assert found == {"0": convolved, "1[0:3]": convolved, "[2:5]": ("linear", "layer_norm", "gelu")}
